package day

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/history/kubescore"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// Defaults of Cluster Autoscaler, as its FAQ documents them.
const (
	scanInterval  = 10 * time.Second
	delayAfterAdd = 10 * time.Minute
	unneededTime  = 10 * time.Minute
	threshold     = 0.5
	emptyAtOnce   = 10
)

// Groups are node groups of a cluster: for each category one machine type of a size, in each zone.
type Groups struct {
	Categories []string // c, m, r
	VCPU       string
}

// AllGroups are the groups that are played.
func AllGroups() []Groups {
	return []Groups{{[]string{"m"}, "8"}, {[]string{"m"}, "16"}, {[]string{"c", "m", "r"}, "8"}}
}

// A kind is the node groups of one machine type.
type kind struct {
	it    *cloud.InstanceType
	zones []*cloud.Offering // one group each
}

// kinds returns, for each category, the cheapest type of the size that the pool of the day allows and every zone has.
func (g Groups) kinds(catalog *cloud.Catalog, spot bool) ([]kind, error) {
	var out []kind
	for _, category := range g.Categories {
		var best kind
		least := cloud.NanoUSD(math.MaxInt64)
		for _, it := range catalog.Types {
			label := func(key string) string { return strings.Join(it.Labels[key], "") }
			generation, _ := strconv.Atoi(label(awsv1.LabelInstanceGeneration))
			if it.Exotic || label(awsv1.LabelInstanceCPU) != g.VCPU || label(awsv1.LabelInstanceCategory) != category || generation <= 4 {
				continue
			}
			k, sum := kind{it: it}, cloud.NanoUSD(0)
			for i := range it.Offerings {
				if o := &it.Offerings[i]; o.Available && o.CapacityType() == capacityType(spot) {
					k.zones = append(k.zones, o)
					sum += o.Price
				}
			}
			if len(k.zones) == len(benchload.Zones()) && sum < least {
				best, least = k, sum
			}
		}
		if best.it == nil {
			return nil, fmt.Errorf("no type of category %s has %s vCPU", category, g.VCPU)
		}
		out = append(out, best)
	}
	return out, nil
}

func capacityType(spot bool) string {
	if spot {
		return v1.CapacityTypeSpot
	}
	return v1.CapacityTypeOnDemand
}

// PlayGroups plays a day with node groups that a model of Cluster Autoscaler scales.
func PlayGroups(ctx context.Context, trace *Trace, catalog *cloud.Catalog, g Groups, spot bool) (*replay.Result, error) {
	kinds, err := g.kinds(catalog, spot)
	if err != nil {
		return nil, err
	}
	name := "node groups of"
	for _, k := range kinds {
		name += " " + k.it.Name
	}
	return playFleet(ctx, trace.Recording, name, &clusterAutoscaler{kinds: kinds, unneeded: map[*machine]time.Time{}})
}

// clusterAutoscaler is a model of Cluster Autoscaler with its documented defaults and the expander least-waste, for
// pods with requests only. Groups of equal types are kept balanced between zones.
type clusterAutoscaler struct {
	*fleet
	kinds    []kind
	bought   int
	added    time.Time
	unneeded map[*machine]time.Time // since when
	draining *machine               // that had pods
}

func (a *clusterAutoscaler) begin(f *fleet) {
	a.fleet, a.added = f, f.now
	f.at(f.now, a.scan)
}
func (*clusterAutoscaler) waits(*pod)          {}
func (*clusterAutoscaler) bound(*pod)          {}
func (*clusterAutoscaler) left(*pod, *machine) {}
func (*clusterAutoscaler) joined(*machine)     {}
func (a *clusterAutoscaler) ended(m *machine)  { delete(a.unneeded, m) }

// scan is one round of its loop.
func (a *clusterAutoscaler) scan() {
	a.at(a.now.Add(scanInterval), a.scan)
	if a.scaleUp() {
		a.added = a.now
		return
	}
	a.scaleDown()
}

// fill puts pods into boxes by first fit, and returns those that have no room.
func fill(boxes []*machine, pods []*pod) (left []*pod) {
	for _, p := range pods {
		if i := slices.IndexFunc(boxes, func(m *machine) bool { return m.holds(p.asks.Request) }); i >= 0 {
			boxes[i].add(p)
		} else {
			left = append(left, p)
		}
	}
	return left
}

// scaleUp buys machines for pods that neither nodes nor machines on their way hold, and reports whether it did.
func (a *clusterAutoscaler) scaleUp() bool {
	if len(a.waiting) == 0 {
		return false
	}
	var coming []*machine
	for _, m := range a.machines {
		if !m.ready && !m.closed {
			coming = append(coming, m.copy())
		}
	}
	pods := fill(coming, decreasing(a.waiting, a.kinds[0].it))
	if len(pods) == 0 {
		return false
	}
	var best kind
	count, least := 0, math.Inf(1)
	for _, k := range a.kinds {
		n, wasted := estimate(k, pods)
		if n > 0 && wasted < least {
			best, count, least = k, n, wasted
		}
	}
	for range count {
		a.buy(best.it, best.zones[a.bought%len(best.zones)])
		a.bought++
	}
	return count > 0
}

// estimate returns how many machines of a kind pods need by first fit decreasing, and which part of their CPU and
// memory, in sum, stays idle.
func estimate(k kind, pods []*pod) (count int, wasted float64) {
	var boxes []*machine
	var has, used kubescore.Request
	for _, p := range decreasing(pods, k.it) {
		if len(fill(boxes, []*pod{p})) == 0 {
			used = used.Plus(p.asks.Request)
			continue
		}
		m := newMachine("", k.it, k.zones[0])
		if m.holds(p.asks.Request) {
			m.add(p)
			boxes, has, used = append(boxes, m), has.Plus(m.load.Has), used.Plus(p.asks.Request)
		}
	}
	if len(boxes) == 0 {
		return 0, 0
	}
	return len(boxes), 2 - part(used.CPU, has.CPU) - part(used.Memory, has.Memory)
}

// decreasing orders pods by the part of a machine that they take, the largest first.
func decreasing(pods []*pod, it *cloud.InstanceType) []*pod {
	m := newMachine("", it, &it.Offerings[0])
	size := func(p *pod) float64 {
		return part(p.asks.Request.CPU, m.load.Has.CPU) + part(p.asks.Request.Memory, m.load.Has.Memory)
	}
	return slices.SortedStableFunc(slices.Values(pods), func(x, y *pod) int { return cmp.Compare(size(y), size(x)) })
}

func part(n, of int64) float64 { return float64(n) / float64(of) }

// scaleDown notes which machines are not needed, and removes those that have not been for long.
func (a *clusterAutoscaler) scaleDown() {
	nodes := map[*machine]*machine{} // with their copies
	var candidates []*machine
	for _, m := range a.machines {
		if !m.ready || m.closed {
			continue
		}
		nodes[m] = m.copy()
		if max(part(m.load.Used.CPU, m.load.Has.CPU), part(m.load.Used.Memory, m.load.Has.Memory)) < threshold {
			candidates = append(candidates, m)
		}
	}
	slices.SortStableFunc(candidates, func(x, y *machine) int { // the empty ones, then those that were not needed for long
		return cmp.Or(cmp.Compare(min(len(x.pods), 1), min(len(y.pods), 1)), a.since(x).Compare(a.since(y)))
	})
	still := map[*machine]time.Time{}
	for _, m := range candidates {
		var others []*machine
		for _, x := range a.machines {
			if c := nodes[x]; c != nil && x != m {
				others = append(others, c.copy())
			}
		}
		if len(fill(others, nodes[m].pods)) > 0 {
			continue
		}
		delete(nodes, m)
		for i, x := range slices.DeleteFunc(slices.Clone(a.machines), func(x *machine) bool { return nodes[x] == nil }) {
			nodes[x] = others[i]
		}
		still[m] = a.since(m)
	}
	a.unneeded = still
	if a.now.Sub(a.added) < delayAfterAdd {
		return
	}
	empty := 0
	for _, m := range candidates {
		since, ok := still[m]
		switch {
		case !ok || a.now.Sub(since) < unneededTime:
		case len(m.pods) == 0 && empty < emptyAtOnce:
			empty++
			a.drain(m)
		case len(m.pods) > 0 && (a.draining == nil || a.draining.gone):
			a.draining = m
			a.drain(m)
		}
	}
}

// since returns since when a machine is not needed, now if it was needed at the last scan.
func (a *clusterAutoscaler) since(m *machine) time.Time {
	if t, ok := a.unneeded[m]; ok {
		return t
	}
	return a.now
}
