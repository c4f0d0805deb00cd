package upstream

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/karpenter/pkg/operator/options"

	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/operator"
)

// An injectable reads our settings together with those of the provider's operator, from one command line. A flag that both have means
// the same to both.
type injectable struct{ settings operator.Settings }

// core is filled in by the provider's operator, before main gets it.
var core = &injectable{settings: operator.DefaultSettings()}

// The provider's operator parses the command line when it is made: flags have to be known before main runs.
func init() { options.Injectables = append(options.Injectables, core) }

// An ignoredFlag is a flag that only our settings have. Its value is read from the arguments.
type ignoredFlag struct{ boolean bool }

func (t *ignoredFlag) String() string   { return "" }
func (t *ignoredFlag) Set(string) error { return nil }
func (t *ignoredFlag) IsBoolFlag() bool { return t.boolean }

// AddFlags implements options.Injectable.
func (c *injectable) AddFlags(fs *options.FlagSet) {
	defaults := operator.DefaultSettings()
	for _, s := range defaults.List() {
		if fs.Lookup(s.Flag) == nil {
			fs.Var(&ignoredFlag{boolean: s.Default == "true" || s.Default == "false"}, s.Flag, s.Usage)
		}
	}
}

// Parse implements options.Injectable.
func (c *injectable) Parse(fs *options.FlagSet, args ...string) error {
	read := operator.DefaultSettings()
	if err := setting.Read("karpenter", read.List(), coreArguments(fs.FlagSet, read.List(), args), os.LookupEnv, os.Stderr); err != nil {
		return err
	}
	if err := read.Validate(); err != nil {
		return err
	}
	c.settings = read
	return nil
}

// ToContext implements options.Injectable. Our settings are not for providers.
func (c *injectable) ToContext(ctx context.Context) context.Context { return ctx }

// given returns the arguments that are settings of the core, each with its value.
func coreArguments(fs *flag.FlagSet, ours []setting.Setting, args []string) (out []string) {
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "-") && args[i] != "--"; i++ {
		name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		f := fs.Lookup(name)
		if f == nil {
			continue // the provider's operator has refused it
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !hasValue && ok && b.IsBoolFlag() {
			value = "true"
		} else if i++; !hasValue && i < len(args) {
			value = args[i]
		} else {
			i--
		}
		if slices.ContainsFunc(ours, func(s setting.Setting) bool { return s.Flag == name }) {
			out = append(out, "--"+name+"="+value)
		}
	}
	return out
}
