package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/replay"
)

// curveLines is how many moments of the curve a table has.
const curveLines = 12

// writeReplay prints the results of the variants side by side: figures first, then the price over time with the least
// possible one.
func writeReplay(out io.Writer, form string, results []*replay.Result) error {
	if form == "json" {
		return writeJSON(out, map[string]any{"variants": results})
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(r *replay.Result) string) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, cell(r))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	first := results[0]
	fmt.Fprintf(out, "%s from %s to %s\n\n", sentence.Count(first.Pods, "pod"), first.From.Format(time.RFC3339),
		first.To.Format(time.RFC3339))
	row("", func(r *replay.Result) string { return r.Variant })
	row("bill", func(r *replay.Result) string { return fmt.Sprintf("$%.2f", r.Dollars) })
	row("least possible, about", func(r *replay.Result) string { return fmt.Sprintf("$%.2f", r.Bound) })
	row("above the least, where proven", func(r *replay.Result) string { return fmt.Sprintf("%.1f %%", 100*r.Regret) })
	row("nodes, mean and most", func(r *replay.Result) string { return fmt.Sprintf("%.1f, %d", r.MeanNodes, r.PeakNodes) })
	row("machines launched", func(r *replay.Result) string { return fmt.Sprint(r.Launched) })
	row("evictions", func(r *replay.Result) string { return fmt.Sprint(r.Evictions) })
	row("per pod and day", func(r *replay.Result) string { return fmt.Sprintf("%.3f", r.EvictionsByPodDay) })
	row("waited, half of the pods", func(r *replay.Result) string { return waited(r.WaitSeconds.P50) })
	row("waited, 95 % of them", func(r *replay.Result) string { return waited(r.WaitSeconds.P95) })
	row("waited at most", func(r *replay.Result) string { return waited(r.WaitSeconds.Max) })
	row("pods without a place", func(r *replay.Result) string { return fmt.Sprint(r.Unplaced) })
	if slices.ContainsFunc(results, func(r *replay.Result) bool { return r.SoldOut > 0 }) {
		row("launches that met nothing", func(r *replay.Result) string { return fmt.Sprint(r.SoldOut) })
	}
	for _, reason := range reasonsOf(results) {
		row("steps, "+strings.ToLower(reason), func(r *replay.Result) string { return fmt.Sprint(r.Steps[reason]) })
	}
	fmt.Fprintln(t)
	row("$ an hour (least)", func(r *replay.Result) string { return r.Variant })
	for n := range min(curveLines, len(first.Curve)) {
		i := n * len(first.Curve) / min(curveLines, len(first.Curve))
		row(first.Curve[i].At.Format("2006-01-02 15:04"), func(r *replay.Result) string {
			return fmt.Sprintf("%.2f (%.2f)", r.Curve[i].Price, r.Curve[i].Bound)
		})
	}
	return t.Flush()
}

// waited writes seconds as a duration.
func waited(seconds int) string { return (time.Duration(seconds) * time.Second).String() }

// reasonsOf returns the reasons of all steps, sorted.
func reasonsOf(results []*replay.Result) []string {
	all := map[string]bool{}
	for _, r := range results {
		for reason := range r.Steps {
			all[reason] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
