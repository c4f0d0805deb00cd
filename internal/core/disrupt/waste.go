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

// Waste is what makes nodes comparable that hold different things. A node at half of its memory and all of its
// cores is not half empty if cores are what machines are priced by. At market prices (package worth) the pods on a
// node are worth at most what the cheapest fleet would pay for them; what the node costs beyond is waste, for any
// reason.

// onOffer lists the machines that the pools may launch, each at its cheapest.
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

func amountsOf(r corev1.ResourceList) worth.Amounts {
	return worth.Amounts{CPU: 1000 * r.Cpu().AsApproximateFloat64(), Memory: r.Memory().AsApproximateFloat64()}
}

// loadsOf returns what the pods of each candidate ask for, and all of them. Pods of a class ask for the same.
//
// Spares count like pods: a buffer wants that room, and pays for it.
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

// byWaste puts the candidates first whose price is least covered by what their pods are worth, and notes how much of it is not.
// perPod is what a pod is worth on average.
//
// Waste is taken as a part of the price. In dollars large nodes would always come first, though what they waste may be less than what any
// fleet would; as a part, a node that is nine tenths empty comes before a node that is half empty, whatever their sizes.
func (s *search) byWaste(candidates []*Candidate) (order []*Candidate, perPod float64) {
	loads, all := loadsOf(candidates)
	market := worth.Find(onOffer(s.whatIf.openable), all)
	s.wasted = make(map[*Candidate]float64, len(candidates))
	for _, c := range candidates {
		s.wasted[c] = c.Price.Dollars() - market.Of(loads[c])
	}
	part := func(c *Candidate) float64 { return s.wasted[c] / max(c.Price.Dollars(), 1e-9) }
	order = slices.Clone(candidates)
	slices.SortFunc(order, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Name(), b.Name()))
	})
	return order, market.Of(all) / float64(max(1, podsOf(candidates)))
}
