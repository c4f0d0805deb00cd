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
// amounts because they answer two questions. Least is what a question deserves whatever comes of it; Most is where even a search that gets
// somewhere has to stop.
type Options struct {
	Fast bool // greedy fleets and the volume bound only
	// CloseMillionths is how close to the bound a fleet has to be for the search to end.
	CloseMillionths int64
	Meter           *work.Meter // counts the work, and may cut it, but not before there is a fleet and a bound; nil for one of its own
	Least           work.Units  // so much work is done after the first fleet whatever is at stake; 0 means that stakes are not looked at
	Most            work.Units  // at most so much work after the first fleet; 0 means any amount
	// cells that are too large are for all only if each step makes the bill lower by more than so many thousandths
	Gain   int64
	Memory *Memory    // of an earlier answer; nil for none
	Known  Answers    // to the very same questions
	Price  int64      // of a known fleet; 0 for none: no other that costs nearly as much is looked for
	Over   int        // so many steps too large may cells be for anybody in the fleets that are bounded, for Bound
	Exact  work.Units // so much work may go into small parts in whole nodes, after all else

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
	Known       Answers // those of the options, and this one if it took a search
}

// Bound is the best proven bound.
func (r *Result) Bound() int64 { return max(r.VolumeBound, r.ConfigBound) }

// Gap is how much dearer the fleet is than the bound, as a fraction.
//
// It is a property of the fleet and of the proof alike: a gap of one percent may be a fleet that is one percent too dear, or a bound that
// is one percent too low. Who wants to know which asks for more of either and looks what moves.
func (r *Result) Gap() float64 {
	if r.Bound() <= 0 {
		return 0
	}
	return float64(r.Price)/float64(r.Bound()) - 1
}
