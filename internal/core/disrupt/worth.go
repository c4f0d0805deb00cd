package disrupt

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/podclass"
)

// worth prices CPU and memory as the market does: the most that one core and one gibibyte can be worth so that no machine
// on offer holds more worth than it costs. What a node's pods are worth is then a lower bound of what any fleet pays for them.
//
// It is what makes nodes comparable that hold different things. A node at half of its memory and all of its cores is not half empty if
// cores are what machines are priced by. With u_core and u_gib such that no machine on offer is worth more than it costs, the pods on a
// node are worth at most what the cheapest fleet would pay for them; what the node costs beyond is waste, whoever is to blame. Of all such
// prices those are taken under which everything that may move is worth most: they are the tightest, by the duality that package pack rests
// on (its volume LP).
type worth struct{ core, gib float64 }

func (w worth) of(l podLoads) float64 { return l.cores*w.core + l.gib*w.gib }

// machine is one thing that can be bought.
type machine struct{ cores, gib, price float64 }

// marketWorth finds the prices of CPU and memory that make the whole demand worth most.
func marketWorth(pools []engine.Pool, demand podLoads) worth {
	machines := onOffer(pools)
	if len(machines) == 0 || demand.cores+demand.gib == 0 {
		return worth{}
	}
	// For a fixed price of memory the price of a core is bound by one machine; the value is concave in the price of
	// memory, so that thirds find its top.
	core := func(gibPrice float64) float64 {
		least := math.Inf(1)
		for _, m := range machines {
			least = min(least, (m.price-gibPrice*m.gib)/m.cores)
		}
		return least
	}
	lo, hi := 0.0, math.Inf(1)
	for _, m := range machines {
		hi = min(hi, m.price/m.gib)
	}
	value := func(g float64) float64 { return core(g)*demand.cores + g*demand.gib }
	for range 60 {
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if value(a) < value(b) {
			lo = a
		} else {
			hi = b
		}
	}
	g := (lo + hi) / 2
	return worth{core: max(0, core(g)), gib: g}
}

// onOffer lists the machines that the pools may launch, each at its cheapest.
func onOffer(pools []engine.Pool) []machine {
	var out []machine
	for _, p := range pools {
		needs := need.Of(p.Pool.Spec.Template.Spec.Requirements)
		for _, it := range p.Catalog.Types {
			best := math.Inf(1)
			for i := range it.Offerings {
				o := &it.Offerings[i]
				if o.Available && needs.AllowLabels(o.Labels) {
					best = min(best, o.Price.Dollars())
				}
			}
			if math.IsInf(best, 1) || it.Exotic || !needs.Allow(it.Labels) {
				continue
			}
			m := machine{cores: it.Capacity.Cpu().AsApproximateFloat64(), gib: it.Capacity.Memory().AsApproximateFloat64() / (1 << 30), price: best}
			if m.cores > 0 && m.gib > 0 {
				out = append(out, m)
			}
		}
	}
	return out
}

// podLoads is what pods ask for together.
type podLoads struct{ cores, gib float64 }

// loadsOf returns what the pods of each candidate ask for, and all of them. Pods of a class ask for the same.
//
// Spares count like pods: somebody wants that room, and pays for it.
func loadsOf(candidates []*Candidate) (loads map[*Candidate]podLoads, all podLoads) {
	loads = make(map[*Candidate]podLoads, len(candidates))
	known := map[*podclass.Class]podLoads{}
	for _, c := range candidates {
		sum := podLoads{}
		for _, p := range slices.Concat(c.Pods, c.Spares) {
			asks, ok := known[p.Class]
			if !ok {
				requests := podclass.Requests(p.Class.Spec)
				asks = podLoads{requests.Cpu().AsApproximateFloat64(), requests.Memory().AsApproximateFloat64() / (1 << 30)}
				known[p.Class] = asks
			}
			sum.cores, sum.gib = sum.cores+asks.cores, sum.gib+asks.gib
		}
		loads[c] = sum
		all.cores, all.gib = all.cores+sum.cores, all.gib+sum.gib
	}
	return loads, all
}

// byWaste puts the candidates first whose price is least covered by what their pods are worth, and notes how much of it is not.
// perPod is what a pod is worth on average.
//
// Waste is taken as a part of the price. In dollars large nodes would always come first, though what they waste may be less than what any
// fleet would; as a part, a node that is nine tenths empty comes before one that is half empty, whatever their sizes.
func (s *search) byWaste(candidates []*Candidate) (order []*Candidate, perPod float64) {
	loads, all := loadsOf(candidates)
	market := marketWorth(s.openable, all)
	s.wasted = make(map[*Candidate]float64, len(candidates))
	for _, c := range candidates {
		s.wasted[c] = c.Price.Dollars() - market.of(loads[c])
	}
	part := func(c *Candidate) float64 { return s.wasted[c] / max(c.Price.Dollars(), 1e-9) }
	order = slices.Clone(candidates)
	slices.SortFunc(order, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Name(), b.Name()))
	})
	return order, market.of(all) / float64(max(1, podsOf(candidates)))
}
