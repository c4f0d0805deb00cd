package day

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/replay"
)

// lookEvery is after how long Karpenter's disruption controller looks again at a fleet in which it found nothing to do.
const lookEvery = time.Minute

// atOnce is how many fleets are played at the same time.
const atOnce = 2

// A play plays a day.
type play func(context.Context) (*replay.Result, error)

// short is the part of the day that is played with a calm of 0s, with which Karpenter's controllers take long to play.
const short = 2 * time.Hour

// Compare plays a day with our fleet, Karpenter's and fixed node groups, and writes a table for each capacity type.
func Compare(ctx context.Context, trace *Trace, catalog *cloud.Catalog, tell func(string)) (string, error) {
	_ = sold.Types(catalog) // makes the labels known to Karpenter before anything runs at the same time
	cut, err := trace.Cut(trace.Begin, trace.Begin.Add(short))
	if err != nil {
		return "", err
	}
	zero, five, never := Calms()[0], Calms()[1], Calms()[3]
	tables := []struct {
		title  string
		plays  []play
		played []*replay.Result
	}{
		{title: "A day, on demand", plays: contenders(trace, catalog, five, false)},
		{title: "A day, with spot", plays: contenders(trace, catalog, five, true)},
		{title: "Two hours of it, on demand", plays: contenders(&Trace{Recording: cut}, catalog, zero, false)},
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range tables {
		t := &tables[i]
		t.played = make([]*replay.Result, len(t.plays))
		for j, play := range t.plays {
			group.Go(func() (err error) {
				begin := time.Now()
				if t.played[j], err = play(inGroup); err == nil {
					tell(fmt.Sprintf("%s, in %.0f s: %s", t.title, time.Since(begin).Seconds(), cells(t.played[j])))
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	spot, err := Play(ctx, trace, asOnDemand(catalog), never, false) // only for its bound, which is that of every fleet
	if err != nil {
		return "", err
	}
	tables[1].played[0].Bound = spot.Bound
	text := ""
	for i := range tables {
		text += fmt.Sprintf("### %s\n\n%s\n", tables[i].title, table(tables[i].played))
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// contenders are those of a table, ours first.
func contenders(trace *Trace, catalog *cloud.Catalog, calm Calm, spot bool) []play {
	out := []play{func(ctx context.Context) (*replay.Result, error) {
		r, err := Play(ctx, trace, catalog, calm, spot)
		if err == nil {
			r.Variant = "ours, `consolidateAfter: " + calm.Name + "`"
		}
		return r, err
	}, func(ctx context.Context) (*replay.Result, error) {
		return PlayKarpenter(ctx, trace, catalog, calm, spot, lookEvery)
	}}
	for _, g := range AllGroups() {
		out = append(out, func(ctx context.Context) (*replay.Result, error) { return PlayGroups(ctx, trace, catalog, g, spot) })
	}
	return out
}

// table compares fleets with the bound of the first one, and with its bill.
func table(all []*replay.Result) string {
	var b strings.Builder
	bound := all[0].Bound
	fmt.Fprintf(&b, "The bound is $%.2f.\n\n| fleet | bill | evictions | waited: middle, 95 %%, most | machines bought | "+
		"bill ÷ bound | ours ÷ this |\n|---|---|---|---|---|---|---|\n", bound)
	for i, r := range all {
		ratio := "–"
		if i > 0 {
			ratio = fmt.Sprintf("**%.3f**", all[0].Dollars/r.Dollars)
		}
		fmt.Fprintf(&b, "| %s | %.3f | %s |\n", cells(r), r.Dollars/bound, ratio)
	}
	return b.String()
}

// cells are those of a fleet by itself.
func cells(r *replay.Result) string {
	name, w := r.Variant, r.WaitSeconds
	if r.Unplaced > 0 {
		name += fmt.Sprintf(", %d pods without a place", r.Unplaced)
	}
	return fmt.Sprintf("%s | $%.2f | %d | %d s, %d s, %d s | %d", name, r.Dollars, r.Evictions, w.P50, w.P95, w.Max, r.Launched)
}

// asOnDemand returns a catalogue for a bound on what launches pay that get the cheapest offering. The bound of a plan
// with spot is for the mean of the offerings that a launch names; as on-demand offerings they are taken one by one.
func asOnDemand(catalog *cloud.Catalog) *cloud.Catalog {
	out := &cloud.Catalog{}
	for _, it := range catalog.Types {
		t := *it
		t.Offerings = slices.Clone(it.Offerings)
		for i := range t.Offerings {
			o := &t.Offerings[i]
			o.Labels, o.Hazard = maps.Clone(o.Labels), 0
			o.Labels[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand
		}
		out.Types = append(out.Types, &t)
	}
	return out
}
