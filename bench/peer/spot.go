package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/bench/peer/interrupt"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// months is how often each fleet is played, with other pools and failures each time.
const months = 20

// lists are the numbers of types that launches name.
func lists() []int { return []int{1, 5, 15, 60} }

// interruptions plays our fleets on spot whose launches name few types or many.
func interruptions(_ context.Context, w *wish, tell func(string)) (string, error) {
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Means of %d times ninety days. %s\n\n", months, kinds())
	b.WriteString("| pods | types a launch may name | it names, in pools | in pools at the start | $/h | failures a " +
		"week | one ends, of all pods | the worst of ninety days | a pod's machine fails, in 30 days | on-demand " +
		"|\n|---|---|---|---|---|---|---|---|---|---|\n")
	rows := 0
	for _, name := range []string{"few3", "few2skew", "zonespread", "hostanti"} {
		if !w.wants(name, false) {
			continue
		}
		tell("interruptions of " + name)
		for _, types := range lists() {
			fleet, err := fleetOf(name, catalog, types)
			if err != nil {
				return "", err
			}
			rows++
			b.WriteString(outcome(name, types, fleet))
		}
	}
	if rows == 0 {
		return "", nil
	}
	return b.String(), nil
}

func kinds() string {
	var out []string
	for _, k := range interrupt.Kinds() {
		out = append(out, fmt.Sprintf("%.0f %% of them give %.0f machines and fail every %.0f days", 100*k.Share,
			k.Machines, k.Every.Hours()/24))
	}
	return "Of all pools " + strings.Join(out, ", ") + "."
}

// fleetOf plans pods on spot, with launches that name so many types.
func fleetOf(workload string, catalog *cloud.Catalog, types int) ([]interrupt.Claim, error) {
	pods, err := benchload.Pods(workload)
	if err != nil {
		return nil, err
	}
	band := shape.SpotBand(types)
	band.Fewest = min(band.Fewest, types)
	p := newPlanner(benchload.Pool(true, false), catalog)
	p.settings = engine.Settings{Band: band}
	plan := p.plan(pods)
	var out []interrupt.Claim
	for i := range plan.Open {
		out = append(out, p.claim(&plan.Open[i]))
	}
	return out, nil
}

// claim says what the launch of an opening names: its first types by price, in every pool that is not dearer than
// the dearest that is sent.
func (p *planner) claim(open *engine.Opening) interrupt.Claim {
	c := interrupt.Claim{Pods: len(open.Pods)}
	onDemand := cloud.NanoUSD(0)
	var offers []interrupt.Offer
	for _, name := range open.Types {
		it := p.byName[name]
		for j := range it.Offerings {
			o := &it.Offerings[j]
			switch {
			case !o.Available || !slices.Contains(open.Zones, o.Zone()):
			case o.CapacityType() == v1.CapacityTypeSpot && o.Price <= open.Worst:
				offers = append(offers, interrupt.Offer{Pool: interrupt.Pool{Type: name, Zone: o.Zone()}, Dollars: o.Price.Dollars()})
			case o.CapacityType() == v1.CapacityTypeOnDemand && (onDemand == 0 || o.Price < onDemand):
				onDemand = o.Price
			}
		}
	}
	c.OnDemand = onDemand.Dollars()
	slices.SortStableFunc(offers, func(a, b interrupt.Offer) int { return cmp.Compare(a.Dollars, b.Dollars) })
	named := map[string]bool{}
	for _, o := range offers {
		if named[o.Type] || len(named) < open.Sent {
			named[o.Type] = true
			c.Sent = append(c.Sent, o)
		}
	}
	return c
}

// outcome is a row of the table.
func outcome(name string, types int, fleet []interrupt.Claim) string {
	var sum interrupt.Outcome
	for seed := range uint64(months) {
		o := interrupt.Play(fleet, seed)
		sum.Pools += o.Pools
		sum.Failures += o.Failures
		sum.Mean += o.Mean
		sum.Most += o.Most
		sum.Lost += o.Lost
		sum.Dollars += o.Dollars
		sum.OnDemand += o.OnDemand
	}
	const n = float64(months)
	named, pools := middle(fleet)
	return fmt.Sprintf("| %s | %d | %d types, %d pools | %.0f | %.2f | %.1f | "+
		"%.0f %% | %.0f %% | %.2f times | %.1f %% |\n", name, types, named, pools, float64(sum.Pools)/n,
		sum.Dollars/n, sum.Failures/n, 100*sum.Mean/n, 100*sum.Most/n, sum.Lost/n, 100*sum.OnDemand/n)
}

// middle is how many types and pools the middle one of the claims names.
func middle(fleet []interrupt.Claim) (types, pools int) {
	var all [2][]int
	for i := range fleet {
		named := map[string]bool{}
		for _, o := range fleet[i].Sent {
			named[o.Type] = true
		}
		all[0], all[1] = append(all[0], len(named)), append(all[1], len(fleet[i].Sent))
	}
	slices.Sort(all[0])
	slices.Sort(all[1])
	return all[0][len(all[0])/2], all[1][len(all[1])/2]
}
