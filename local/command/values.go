package command

import (
	"flag"
	"fmt"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli/values"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/release"
)

// A wish is what was said about the charts.
type wish struct {
	values values.Options
	reset  bool
	empty  *bool // nil where nothing was said
}

func wishFlags(flags *flag.FlagSet) *wish {
	w := &wish{}
	list := func(into *[]string) func(string) error {
		return func(text string) error { *into = append(*into, text); return nil }
	}
	flags.Func("set", "a value of the chart karpenter, as helm takes it: `key=value`; kept for the next times", list(&w.values.Values))
	flags.Func("values", "a `file` with values of the chart; kept for the next times", list(&w.values.ValueFiles))
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
	given, err := w.values.MergeValues(nil)
	if err != nil {
		return wanted, false, err
	}
	now := len(given) > 0 || w.reset
	if now && wanted.Empty {
		return wanted, false, fmt.Errorf("an empty cluster has no charts to give values to; --empty=false installs them")
	}
	wanted.Values = loader.MergeMaps(wanted.Values, given)
	if err := release.Refused(wanted.Values); err != nil {
		return wanted, false, fmt.Errorf("the chart refuses its values: %w", err)
	}
	return wanted, now || w.empty != nil, nil
}
