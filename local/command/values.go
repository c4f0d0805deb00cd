package command

import (
	"cmp"
	"flag"
	"fmt"
	"regexp"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli/values"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/release"
)

// A wish is what was said about the charts.
type wish struct {
	values values.Options
	reset  bool
	empty  *bool // nil where nothing was said
	// provider and name of the cluster are "" where nothing was said.
	provider, name string
}

func wishFlags(flags *flag.FlagSet) *wish {
	w := &wish{}
	list := func(into *[]string) func(string) error {
		return func(text string) error { *into = append(*into, text); return nil }
	}
	flags.Func("set", "a value of the chart karpenter, as helm takes it: `key=value`; kept for the next times", list(&w.values.Values))
	flags.Func("values", "a `file` with values of the chart; kept for the next times", list(&w.values.ValueFiles))
	flags.StringVar(&w.provider, "provider", "",
		"the `provider` of machines: aws for this project's own; kwok and aws-upstream for Karpenter's own under this project's core; "+
			"kept for the next times")
	flags.StringVar(&w.name, "name", "",
		"the `name` of the cluster in AWS and for the controller, local at first; a cluster keeps it until clean")
	flags.BoolVar(&w.reset, "reset-values", false, "forget the values that were kept")
	flags.BoolFunc("empty", "install nothing: neither charts nor first objects", func(text string) error {
		empty := text == "true"
		w.empty = &empty
		return nil
	})
	return w
}

// of is what is wanted, with what was wanted before, and whether any of it was said now.
func (w *wish) of(dir home.Dir) (home.Install, bool, error) {
	wanted, err := dir.ReadInstall()
	if err != nil {
		return wanted, false, err
	}
	if w.empty != nil {
		wanted.Empty = *w.empty
	}
	if w.reset {
		wanted.Values = nil
	}
	if err := w.nameIt(dir, &wanted); err != nil {
		return wanted, false, err
	}
	given, err := w.values.MergeValues(nil)
	if err != nil {
		return wanted, false, err
	}
	now := len(given) > 0 || w.reset || w.provider != ""
	if w.provider != "" {
		wanted.Provider = w.provider
	}
	if wanted.Provider == release.AWS {
		wanted.Provider = ""
	}
	if now && wanted.Empty {
		return wanted, false, fmt.Errorf("an empty cluster has no charts to give values to; --empty=false installs them")
	}
	wanted.Values = loader.MergeMaps(wanted.Values, given)
	if err := release.Check(wishOf(wanted, now)); err != nil {
		return wanted, false, err
	}
	return wanted, now || w.empty != nil, nil
}

// clusterName is what the names of roles leave room for.
var clusterName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,39}$`)

// nameIt gives a new cluster the name that was said. A cluster that has machines and volumes keeps its name.
func (w *wish) nameIt(dir home.Dir, wanted *home.Install) error {
	last, err := dir.Read()
	now := cmp.Or(wanted.Name, plane.ClusterName)
	switch {
	case err != nil || w.name == "" || w.name == now:
		return err
	case !clusterName.MatchString(w.name):
		return fmt.Errorf("%q cannot be the name of a cluster: letters, digits, - and _ are, 40 at most", w.name)
	case last.Server != "":
		return fmt.Errorf("the cluster here is named %s; `karpenter-local clean` forgets it", now)
	}
	wanted.Name = w.name
	return nil
}

// wishOf is what was stored as package release takes it; now says that the user asked for it just now.
func wishOf(i home.Install, now bool) release.Wish {
	return release.Wish{Provider: i.Provider, Cluster: i.Name, Values: i.Values, Override: now}
}
