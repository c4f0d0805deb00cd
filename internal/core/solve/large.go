package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A node is large if it has more than a quarter of the CPU that the pods of its pool ask for: its loss would hit much of the pool. Nodes
// up to largeLeast are never large.
const (
	largeShare = 4
	largeLeast = 8 // vCPU
)

// findLarge returns by pool the vCPU above which a node is large, 0 if none is. A large node is opened only for a pod that needs it, or for
// a lower bill. The pods of a pool are those on its nodes, and those to be placed that suit one of its templates, in the heaviest
// tier in which they suit any.
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

// mayBeOn reports whether labels and taints of a template suit some variant of a class.
func mayBeOn(p *problem.Problem, c *problem.Class, t int) bool {
	return slices.ContainsFunc(c.Variants, func(v problem.Variant) bool {
		return p.Labels.TolTmpl[v.Tol].Has(t) && p.Labels.OnTemplate[v.Reqs][t].OK
	})
}

// sizeSteps returns how many steps a node with so many vCPU is too large for the pool of a template, where a step is a doubling of the vCPU
// above which a node is large; 0: the node is not large.
func (f *facts) sizeSteps(tmpl *problem.Template, vcpu int64) (times int) {
	most := f.large[tmpl.Pool]
	if most == 0 {
		return 0
	}
	for ; most < vcpu; most *= 2 {
		times++
	}
	return times
}
