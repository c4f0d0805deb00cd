package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A node above a quarter of what the pods of its pool ask for would be much of the pool; below largeLeast that does not count.
const (
	largeShare = 4
	largeLeast = 8 // vCPU
)

// findLarge returns by pool the vCPU above which a node is large: it takes a pod that needs it, or a lower bill. The pods of a pool are
// those on its nodes, and those that are to be placed and may come to it.
func findLarge(p *problem.Problem) []int64 {
	out := make([]int64, len(p.Pools))
	if p.Settings.Large <= 0 {
		return out
	}
	asked := make([]int64, len(p.Pools))
	for i := range p.Pools {
		asked[i] = p.Pools[i].Asks
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		tier := p.Tiers
		for t := range p.Templates { // heaviest first
			tmpl := &p.Templates[t]
			if tmpl.Tier > tier {
				break
			}
			if mayBeOn(p, c, t) {
				tier = tmpl.Tier
				asked[tmpl.Pool] += c.Need[quantity.CPU] * int64(c.Count)
			}
		}
	}
	for i := range out {
		out[i] = min(p.Settings.Large, max(asked[i]/1000/largeShare, largeLeast))
	}
	return out
}

// mayBeOn reports whether a template suits some reading of a class.
func mayBeOn(p *problem.Problem, c *problem.Class, t int) bool {
	return slices.ContainsFunc(c.Variants, func(v problem.Variant) bool {
		return p.Labels.TolTmpl[v.Tol].Has(t) && p.Labels.OnTemplate[v.Reqs][t].OK
	})
}

// tooLarge says how many times a node of so many vCPU is twice too large for the pool of a template.
func (f *facts) tooLarge(tmpl *problem.Template, vcpu int64) (times int) {
	most := f.large[tmpl.Pool]
	if most == 0 {
		return 0
	}
	for ; most < vcpu; most *= 2 {
		times++
	}
	return times
}
