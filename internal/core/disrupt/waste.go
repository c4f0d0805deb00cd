package disrupt

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/worth"
)

// Waste compares nodes that hold different pods. The pods on a node have a worth at market prices (package worth): at most what the
// cheapest fleet would pay for them. The rest of the node's price is waste. A count of free resources would not do: a node that uses
// half of its memory and all of its cores is not half empty if machines are priced by cores.

// onOffer lists the types that the pools may launch, each with its lowest price. Exotic types are left out.
func onOffer(pools []engine.Pool) []worth.Machine {
	var out []worth.Machine
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
			if room := amountsOf(it.Capacity); room.CPU > 0 && room.Memory > 0 {
				out = append(out, worth.Machine{Room: room, Price: best})
			}
		}
	}
	return out
}

// amountsOf returns the CPU in thousandths of a core and the memory in bytes.
func amountsOf(r corev1.ResourceList) worth.Amounts {
	return worth.Amounts{CPU: 1000 * r.Cpu().AsApproximateFloat64(), Memory: r.Memory().AsApproximateFloat64()}
}

// loadsOf returns the sum of requests of the pods of each candidate, and of all candidates. Spares count like pods, because their buffer
// pays for the room. Requests are worked out once for each class of pods.
func loadsOf(candidates []*Candidate) (loads map[*Candidate]worth.Amounts, all worth.Amounts) {
	loads = make(map[*Candidate]worth.Amounts, len(candidates))
	known := map[*podclass.Class]worth.Amounts{}
	for _, c := range candidates {
		sum := worth.Amounts{}
		for _, p := range slices.Concat(c.Pods, c.Spares) {
			asks, ok := known[p.Class]
			if !ok {
				asks = amountsOf(podclass.Requests(p.Class.Spec))
				known[p.Class] = asks
			}
			sum = sum.Plus(asks)
		}
		loads[c] = sum
		all = all.Plus(sum)
	}
	return loads, all
}

// byWaste sorts the candidates by the part of their price that is wasted, the most wasteful first, and sets s.wasted. perPod is what a
// pod is worth on average, in dollars an hour. In dollars large nodes would always come first; as a part, a node that is nine tenths
// empty comes before a node that is half empty, whichever is larger.
func (s *search) byWaste(candidates []*Candidate) (order []*Candidate, perPod float64) {
	loads, all := loadsOf(candidates)
	market := worth.Find(onOffer(s.whatIf.openable), all)
	s.wasted = make(map[*Candidate]float64, len(candidates))
	for _, c := range candidates {
		s.wasted[c] = c.Price.Dollars() - market.Of(loads[c])
	}
	part := func(c *Candidate) float64 { return s.wasted[c] / max(c.Price.Dollars(), 1e-9) } // 1e-9: never divide by 0
	order = slices.Clone(candidates)
	slices.SortFunc(order, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Name(), b.Name()))
	})
	return order, market.Of(all) / float64(max(1, podsOf(candidates)))
}
