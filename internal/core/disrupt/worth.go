package disrupt

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// worth prices CPU and memory as the market does: the most that one core and one gibibyte can be worth so that no machine
// on offer holds more worth than it costs. What a node's pods are worth is then a lower bound of what any fleet pays for them.
type worth struct{ core, gib float64 }

// machine is one thing that can be bought.
type machine struct{ cores, gib, price float64 }

// marketWorth finds the prices of CPU and memory that make the whole demand worth most.
func marketWorth(pools []engine.Pool, cores, gib float64) worth {
	machines := onOffer(pools)
	if len(machines) == 0 || cores+gib == 0 {
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
	value := func(g float64) float64 { return core(g)*cores + g*gib }
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
		requirements := p.Pool.Spec.Template.Spec.Requirements
		for _, it := range p.Catalog.Types {
			best := math.Inf(1)
			for i := range it.Offerings {
				o := &it.Offerings[i]
				if o.Available && admits(requirements, o.Labels) {
					best = min(best, o.Price.Dollars())
				}
			}
			if math.IsInf(best, 1) || it.Exotic || !admitsType(p, it.Labels) {
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

// admitsType tells whether the pool's requirements allow some value of each label of a type.
func admitsType(p engine.Pool, labels map[string][]string) bool {
	for i := range p.Pool.Spec.Template.Spec.Requirements {
		r := &p.Pool.Spec.Template.Spec.Requirements[i]
		values, ok := labels[r.Key]
		if ok && !slices.ContainsFunc(values, r.Allows) {
			return false
		}
	}
	return true
}

// load is what pods ask for.
func load(pods []*cluster.Pod) (cores, gib float64) {
	for _, p := range pods {
		requests := resource.PodRequests(&corev1.Pod{Spec: *p.Class.Spec}, resource.PodResourcesOptions{})
		cores += requests.Cpu().AsApproximateFloat64()
		gib += requests.Memory().AsApproximateFloat64() / (1 << 30)
	}
	return cores, gib
}

// byWaste puts the candidates first whose price is least covered by what their pods are worth, and notes how much of it is not.
// perPod is what a pod is worth on average.
func (s *search) byWaste(candidates []*Candidate) (order []*Candidate, perPod float64) {
	loads := make(map[*Candidate][2]float64, len(candidates))
	cores, gib := 0.0, 0.0
	for _, c := range candidates {
		a, b := load(c.Pods)
		loads[c] = [2]float64{a, b}
		cores, gib = cores+a, gib+b
	}
	market := marketWorth(s.q.pools, cores, gib)
	s.wasted = make(map[*Candidate]float64, len(candidates))
	for _, c := range candidates {
		s.wasted[c] = c.Price.Dollars() - loads[c][0]*market.core - loads[c][1]*market.gib
	}
	part := func(c *Candidate) float64 { return s.wasted[c] / max(c.Price.Dollars(), 1e-9) }
	order = slices.Clone(candidates)
	slices.SortFunc(order, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Name(), b.Name()))
	})
	return order, (market.core*cores + market.gib*gib) / float64(max(1, podsOf(candidates)))
}
