package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
)

// Run places the pods of p. It does not modify p, but for its meter, and gives the same result for the same problem, unless the
// meter cuts it short.
func Run(p *Problem) *Result {
	s := newState(factsOf(p))
	s.findWorth()
	s, left := s.inOrder(s.place())
	r := &Result{Left: left, Partial: s.meter.CutAt() > 0, Memory: Memory{Known: p.Settings.Memory.Known}}
	r.Bins, r.Placed = s.finish(left), s.placed
	r.Why = s.explain(left, r.Partial)
	r.charge(billOf(r.Bins, &p.Settings.Terms))
	if !p.Settings.FirstFit && !r.Partial && !s.dropped && len(r.Bins) > 0 {
		r.take(s.deal(), left)
		r.take(s.improve(r), left)
		if r.Proof.Problem == nil && !p.Settings.Unproven && s.arrival == nil {
			s.bound(r)
		}
	}
	return r
}

// take makes another placement the result, if it leaves fewer pods over or is cheaper. It comes with the pods of the first placement; what that
// left over gets the room that there is now, and pods that kube-scheduler would not put there get other places.
func (r *Result) take(better *state, left []int) {
	if better == nil {
		return
	}
	better.avoid()
	left = slices.Clone(left)
	if sum(left) > 0 {
		better.fillIn(left)
	}
	if len(better.misplaced()) > 0 {
		better, left = better.mend(left)
	}
	bins := better.finish(left)
	bill := billOf(bins, &better.p.Settings.Terms)
	if sum(left) < sum(r.Left) || sum(left) == sum(r.Left) && bill.cost < r.Cost {
		r.Bins, r.Placed, r.Left = bins, better.placed, left
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
