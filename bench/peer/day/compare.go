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

// Compare plays a day with our fleet, Karpenter's and fixed node groups, and writes a table for each capacity type.
func Compare(ctx context.Context, trace *Trace, catalog *cloud.Catalog, tell func(string)) (string, error) {
	_ = sold.Types(catalog) // makes the labels known to Karpenter before anything runs at the same time
	var plays []play
	for _, spot := range []bool{false, true} {
		plays = append(plays, contenders(trace, catalog, spot)...)
	}
	all := make([]*replay.Result, len(plays))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range plays {
		i = longestFirst(i, len(plays)/2)
		group.Go(func() (err error) {
			begin := time.Now()
			if all[i], err = plays[i](ctx); err == nil {
				r := all[i]
				tell(fmt.Sprintf("a day with %s took %.0f s: $%.2f, bound $%.2f, %d evictions, %d machines, waits %v, %d unplaced", r.Variant,
					time.Since(begin).Seconds(), r.Dollars, r.Bound, r.Evictions, r.Launched, r.WaitSeconds, r.Unplaced))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	half := len(all) / 2
	return "### On demand\n\n" + table(all[0].Bound, all[1:half]) + "\n### With spot\n\n" + table(all[half].Bound, all[half+1:]), nil
}

// longestFirst returns the play that begins as number i: those of one capacity type and the other in turn, and the
// last ones first.
func longestFirst(i, half int) int { return i%2*half + half - 1 - i/2 }

// contenders are those of a table, before them one that proves the bound. Those that take long are the last.
func contenders(trace *Trace, catalog *cloud.Catalog, spot bool) []play {
	zero, five, never := Calms()[0], Calms()[1], Calms()[3]
	out := []play{func(ctx context.Context) (*replay.Result, error) {
		return Play(ctx, trace, asOnDemand(catalog, spot), never, false)
	}}
	for _, calm := range []Calm{five, zero} {
		out = append(out, func(ctx context.Context) (*replay.Result, error) {
			r, err := Play(ctx, trace, catalog, calm, spot)
			if err == nil {
				r.Variant = "ours, `consolidateAfter: " + calm.Name + "`"
			}
			return r, err
		})
	}
	for _, g := range AllGroups() {
		out = append(out, func(ctx context.Context) (*replay.Result, error) { return PlayGroups(ctx, trace, catalog, g, spot) })
	}
	other := Pool{Spot: spot, Calm: five, Below: "65"}
	if spot {
		other = Pool{Spot: spot, Calm: five, SpotToSpot: true}
	}
	for _, pool := range []Pool{other, {Spot: spot, Calm: five}, {Spot: spot, Calm: zero}} {
		out = append(out, func(ctx context.Context) (*replay.Result, error) {
			return PlayKarpenter(ctx, trace, catalog, pool, lookEvery)
		})
	}
	return out
}

// table compares fleets with a bound and with the first one.
func table(bound float64, all []*replay.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The bound is $%.2f.\n\n| fleet | bill | bill ÷ bound | evictions | waited: middle, 95 %%, most | machines bought | ours ÷ this |\n"+
		"|---|---|---|---|---|---|---|\n", bound)
	for i, r := range all {
		w, ratio := r.WaitSeconds, "–"
		if i > 0 {
			ratio = fmt.Sprintf("**%.3f**", all[0].Dollars/r.Dollars)
		}
		name := r.Variant
		if r.Unplaced > 0 {
			name += fmt.Sprintf(", %d pods without a place", r.Unplaced)
		}
		fmt.Fprintf(&b, "| %s | $%.2f | %.3f | %d | %d s, %d s, %d s | %d | %s |\n", name, r.Dollars, r.Dollars/bound, r.Evictions, w.P50, w.P95, w.Max,
			r.Launched, ratio)
	}
	return b.String()
}

// asOnDemand returns a catalogue for a bound on what launches pay that get the cheapest offering. The bound of a plan
// with spot is for the mean of the offerings that a launch names; as on-demand offerings they are taken one by one.
func asOnDemand(catalog *cloud.Catalog, spot bool) *cloud.Catalog {
	if !spot {
		return catalog
	}
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
