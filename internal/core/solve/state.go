package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A state is a placement in the making: a fleet, and what is known while places are looked for.
type state struct {
	fleet
	trial   trial
	visit   visit
	touch   [][]touches      // [class][variant], made when first needed
	reaches map[string]reach // see reachOf
	lavish  bits.Set         // classes that may use exotic and large machines too: they have no other place
	worth   quantity.Vec     // nano-dollars for each unit, scaled; see price.go
	turn    []int32          // by class: its first place in the queue, where classes are placed in that order; nil: they are not
	dropped bool             // finish gave pods back
}

func newState(f *facts) *state {
	return &state{fleet: newFleet(f), trial: newTrial(f), touch: make([][]touches, len(f.p.Classes)), lavish: bits.Make(len(f.p.Classes))}
}

// emptied is an empty placement that knows what this one knows.
func (s *state) emptied() *state {
	next := newState(s.facts)
	next.worth, next.touch, next.lavish, next.turn, next.wary = s.worth, s.touch, s.lavish, s.turn, s.wary
	return next
}
