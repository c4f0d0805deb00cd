// Package setting reads settings from flags and the environment: a flag takes precedence over its environment variable, and that over
// the default.
//
// The variable of a flag has the same name in upper case with underscores. A value that does not parse is an error in both places. An
// empty variable counts as not set for numbers, durations and booleans, and so does the address that Kubernetes sets for a Service
// (serviceLink).
package setting

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Setting is one thing that can be set.
type Setting struct {
	Flag  string // lower-case, with dashes
	Usage string
	// Default is the value as text, for the usage.
	Default string

	set          func(string) error
	emptyIsUnset bool // an empty environment variable counts as not given
	boolean      bool
}

// Env returns the name of the setting's environment variable.
func (s *Setting) Env() string {
	return strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Int returns the setting of a whole number.
func Int(p *int, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: strconv.Itoa(*p), emptyIsUnset: true, set: parse(p, strconv.Atoi)}
}

// Int64 returns the setting of a whole number.
func Int64(p *int64, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: strconv.FormatInt(*p, 10), emptyIsUnset: true,
		set: parse(p, func(s string) (int64, error) {
			return strconv.ParseInt(s, 10, 64)
		})}
}

// Float returns the setting of a number.
func Float(p *float64, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: strconv.FormatFloat(*p, 'g', -1, 64), emptyIsUnset: true,
		set: parse(p, func(s string) (float64, error) {
			return strconv.ParseFloat(s, 64)
		})}
}

// Duration returns the setting of a length of time such as 10s.
func Duration(p *time.Duration, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: p.String(), emptyIsUnset: true, set: parse(p, time.ParseDuration)}
}

// String returns the setting of any text.
func String(p *string, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: *p, set: parse(p, func(s string) (string, error) { return s, nil })}
}

// List returns the setting of a list of texts with commas between them.
func List(p *[]string, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: strings.Join(*p, ","), set: parse(p, func(s string) ([]string, error) {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }), nil
	})}
}

// Bool returns the setting of true or false. In the environment, other spellings that strconv.ParseBool reads are allowed too.
func Bool(p *bool, name, usage string) Setting {
	return Setting{Flag: name, Usage: usage, Default: strconv.FormatBool(*p), emptyIsUnset: true, boolean: true,
		set: parse(p, strconv.ParseBool)}
}

// Func returns the setting of a text that set parses; value is the default, for the usage.
func Func(name, value, usage string, set func(string) error) Setting {
	return Setting{Flag: name, Usage: usage, Default: value, set: set}
}

// Gates parses a list of feature gates such as "A=true,B=false", and calls set for each. set should ignore gates that it does not know,
// because one text may be for several programs.
func Gates(text string, set func(gate string, on bool) error) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if !ok || err != nil {
			return fmt.Errorf("%q is not of the form Name=true or Name=false", part)
		}
		if err := set(strings.TrimSpace(name), on); err != nil {
			return err
		}
	}
	return nil
}

func parse[T any](p *T, read func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := read(s)
		if err == nil {
			*p = v
		}
		return err
	}
}

// Read sets settings from the command line and, through lookup, the environment. If help is asked for, it writes that to usage and
// returns flag.ErrHelp.
func Read(name string, settings []Setting, args []string, lookup func(string) (string, bool), usage io.Writer) error {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.Usage = func() { printUsage(usage, name, settings) }
	given := map[string]bool{}
	for i := range settings {
		s := &settings[i]
		fs.Var(&value{s, given}, s.Flag, s.Usage)
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var errs []error
	for i := range settings {
		s := &settings[i]
		text, ok := lookup(s.Env())
		if given[s.Flag] || !ok || s.emptyIsUnset && (text == "" || serviceLink(text)) {
			continue
		}
		if err := s.set(text); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w; write a value such as %q, or unset it", s.Env(), err, s.Default))
		}
	}
	return errors.Join(errs...)
}

// serviceLink reports whether a variable was set by Kubernetes for a Service: a Service with the name metrics sets
// METRICS_PORT.
func serviceLink(text string) bool {
	return strings.HasPrefix(text, "tcp://") || strings.HasPrefix(text, "udp://") || strings.HasPrefix(text, "sctp://")
}

// printUsage prints what can be set.
func printUsage(w io.Writer, name string, settings []Setting) {
	fmt.Fprintf(w, "Usage of %s (each flag has an environment variable of the same name in upper case, with underscores):\n", name)
	for _, s := range slices.SortedFunc(slices.Values(settings), func(a, b Setting) int { return strings.Compare(a.Flag, b.Flag) }) {
		fmt.Fprintf(w, "  --%s\n        %s (default %q)\n", s.Flag, s.Usage, s.Default)
	}
}

// value is a Setting as a flag.Value.
type value struct {
	*Setting
	given map[string]bool
}

func (v *value) String() string { return "" }

func (v *value) IsBoolFlag() bool { return v.boolean }

// Set is called for each time the flag is given. On the command line booleans are written in one way only.
func (v *value) Set(text string) error {
	if v.boolean && text != "true" && text != "false" {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	v.given[v.Flag] = true
	return v.set(text)
}
