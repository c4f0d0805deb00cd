package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
)

// A proof is a bound by an LP, with its worths.
//
// A run keeps several, because the best one in floating point may not be usable in whole numbers (see exact).
type proof struct {
	value float64   // the bound
	worth []float64 // per class
	limit []float64 // per limit: worth of one unit
}

// proofSlack is the part of each worth that is taken off before rounding down. It is a thousand times the error of floating point in the
// proof that no cell holds more than it costs, so that the proof also holds in whole numbers.
const proofSlack = 2e-6

// An exactProof is a proof in whole numbers.
type exactProof struct {
	bound int64
	worth []int64
	limit []int64
}

// certify returns the best proof that can be written in whole numbers, or a proof of 0 if there is none.
func (r *run) certify() exactProof {
	proofs := slices.Clone(r.proofs)
	slices.SortStableFunc(proofs, func(a, b proof) int { return cmp.Compare(b.value, a.value) })
	for _, f := range proofs {
		if e, ok := r.exact(f); ok {
			return e
		}
	}
	return exactProof{worth: make([]int64, r.p.classes()), limit: make([]int64, len(r.p.limits))}
}

// exact writes a proof in whole numbers: worths of items rounded down and worths of limits rounded up, so that no node holds more than it
// costs. ok is false if a limit is worth more than verify.MaxLimitWorth.
//
// Rounding may lower the cost of a node by up to one nano-dollar for each limit that it uses, so each item is worth lost less. Rounding a
// worth down costs at most a nano-dollar for each item: ten thousand items lower the bound by a hundred-thousandth of a dollar.
func (r *run) exact(f proof) (e exactProof, ok bool) {
	lost := float64(max(len(f.limit)-1, 0))
	back := -f.value // what limits and short stock give back
	for k, w := range f.worth {
		n := r.p.count[k]
		back += float64(w * float64(n))
		whole := int64(max(min(w*(1-proofSlack)-lost, verify.MaxWorth), 0))
		e.worth, e.bound = append(e.worth, whole), addTimes(e.bound, whole, n)
	}
	for l, w := range f.limit {
		whole := math.Ceil(w * (1 << verify.LimitShift))
		if whole > verify.MaxLimitWorth {
			return e, false
		}
		back -= float64(w * float64(r.p.limits[l]))
		e.limit = append(e.limit, int64(whole))
		e.bound -= verify.LimitPrice(int64(whole), r.p.limits[l])
	}
	if slices.ContainsFunc(r.p.cells, func(c cell) bool { return c.stock > 0 }) {
		e.bound -= int64(math.Ceil(max(back, 0) * (1 + proofSlack)))
	}
	e.bound = max(e.bound, 0)
	return e, true
}

// write adds the proof of a part to the certificate of the whole.
func (e *exactProof) write(c *Certificate, p *part) {
	c.Bound += e.bound
	for k, members := range p.member {
		for _, m := range members {
			c.Worth[m] = e.worth[k]
		}
	}
	for l, id := range p.limitID {
		c.LimitWorth[id] = e.limit[l]
	}
}
