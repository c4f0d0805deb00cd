package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
)

// Run places the pods of p. It does not modify p, but for its meter, and gives the same result for the same problem, unless the
// meter cuts it short.
func Run(p *Problem) *Result {
	s := newState(p)
	s.findWorth()
	s, left := s.inOrder(s.place())
	r := &Result{Left: left, Partial: s.meter.CutAt() > 0, Memory: Memory{Known: p.Settings.Memory.Known}}
	r.Bins, r.Placed = s.finish(left), s.placed
	r.Why = s.explain(left, r.Partial)
	r.charge(billOf(r.Bins, &p.Settings.Terms))
	if !p.Settings.FirstFit && !r.Partial && !s.dropped && len(r.Bins) > 0 {
		r.take(s.deal(), len(left))
		r.take(s.improve(r), len(left))
		if r.Proof.Problem == nil && !p.Settings.Unproven {
			s.bound(r)
		}
	}
	return r
}

// take makes a placement of the same pods the result, if it is cheaper.
func (r *Result) take(better *state, classes int) {
	if better == nil {
		return
	}
	if better.avoid(); len(better.misplaced()) > 0 {
		return
	}
	more := make([]int, classes)
	bins := better.finish(more)
	bill := billOf(bins, &better.p.Settings.Terms)
	if bill.cost < r.Cost && !slices.ContainsFunc(more, func(n int) bool { return n > 0 }) {
		r.Bins, r.Placed = bins, better.placed
		r.charge(bill)
	}
}

func (r *Result) charge(b bill) { r.Price, r.Floor, r.Cost = b.price, b.floor, b.cost }

// A Proof shows that no plan can be cheaper than a bound.
// It is empty where no bound was proven.
type Proof struct {
	Problem     *pack.Problem
	Certificate pack.Certificate
}
