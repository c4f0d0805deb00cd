package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
)

// A proof is a bound by an LP: worths per class and per unit of the limits.
//
// Several are kept, because the best one in floating point is not always the best one in whole numbers: a worth of a limit that is too
// large to be written down, or a worth of items that lie just above their price, can cost it more than another one is behind.
type proof struct {
	value float64
	worth []float64
	limit []float64
}

// proofSlack is taken off worths before they are rounded down. It is a thousand times what floating point may have got wrong in showing
// that no cell holds more than it costs, so that whole numbers show it too.
const proofSlack = 2e-6

// An exactProof is a proof in whole numbers.
type exactProof struct {
	bound int64
	worth []int64
	limit []int64
}

// certify makes whole numbers of the best proof that fits into them.
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

// exact rounds worths down, and what limits are worth up, so that every cell costs at least what it did; ok is false where a limit is
// worth more than can be written down. A node that uses several limits loses up to one unit for each in rounding: an item is worth so
// much less.
//
// Rounding worths down can only make nodes hold less than they cost, which keeps the proof. It costs at most one nano-dollar for each
// item, so a fleet of ten thousand items loses a hundred-thousandth of a dollar of its bound.
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
