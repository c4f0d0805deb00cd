package pack

import (
	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// The question, a fleet and the proof of a bound are those of the package that checks them.
type (
	Problem     = verify.Problem
	Class       = verify.Class
	Cell        = verify.Cell
	Limit       = verify.Limit
	Item        = verify.Item
	Pattern     = verify.Pattern
	Certificate = verify.Certificate
)

// Options say how long and how hard to look.
//
// Work is what limits a search, not time: the same options give the same fleet on a fast and on a slow machine. Least and Most are two
// amounts because they answer two questions. Least is what a question deserves in any case; Most is where even a search that gets
// somewhere has to stop.
type Options struct {
	Fast bool // greedy fleets and the volume bound only
	// CloseMillionths is how close to the bound a fleet has to be for the search to end.
	CloseMillionths int64
	Meter           *work.Meter // counts the work and may cut it, once there is a fleet and a bound; nil: the call uses a meter of its own
	Least           work.Units  // work that is always done after the first fleet; 0: the search ignores how much money is at stake
	Most            work.Units  // the most work after the first fleet; 0 means any amount
	// Gain is how many thousandths of the bill each step of larger cells has to save, or these cells stay closed.
	Gain   int64
	Memory *Memory    // of an earlier answer; nil for none
	Known  Answers    // earlier answers; one of them is returned if the question is equal
	Price  int64      // of a fleet that the caller has; 0 for none. Solve searches only if a clearly cheaper one may exist
	Over   int        // only for Bound: cells up to so many steps too large are open to all items in the fleets that it bounds
	Exact  work.Units // work for branch and price on small parts, after all other stages

	without stage
}

// A Result is a fleet and what is known about cheaper ones.
//
// VolumeBound and ConfigBound are separate because they show a reader of a gap where to look: if already the volume
// of all items costs that much, no packing helps, and only other machines would.
type Result struct {
	Fleet       []Pattern
	Left        []int // per class, items without a place
	Price       int64
	VolumeBound int64 // no fleet that holds all items costs less, by volume alone
	ConfigBound int64 // the same by the configuration LP; 0 when it was not looked for
	Certificate Certificate
	Work        work.Units
	Partial     bool    // the budget ended the search
	Memory      *Memory // for the next question; nil where it would not help
	Known       Answers // those of the options, and this one if it took a long search
}

// Bound is the best proven bound.
func (r *Result) Bound() int64 { return max(r.VolumeBound, r.ConfigBound) }

// Gap is how much dearer the fleet is than the bound, as a fraction.
//
// A gap of one percent may be a fleet that is one percent too dear, or a bound that is one percent too low. More work shows which: either
// the fleet gets cheaper or the bound rises.
func (r *Result) Gap() float64 {
	if r.Bound() <= 0 {
		return 0
	}
	return float64(r.Price)/float64(r.Bound()) - 1
}
