package solve

// A state is a placement in the making: a fleet, and what is known while places are looked for. States of one run share only facts.
type state struct {
	facts      *facts
	fleet      *fleet
	ties       *ties
	opener     *opener
	schedule   *schedule
	trial      trial // memory for one trial at a time; see ask
	preference Preference
	turn       []int32 // by class: its first place in the queue, if classes are placed in that order; nil otherwise
	dropped    bool    // finish dropped a node and left its pods over
}

func newState(f *facts) *state {
	fleet := newFleet(f)
	ties := newTies(f, fleet.stock)
	return &state{facts: f, fleet: fleet, ties: ties, trial: newTrial(f), opener: &opener{facts: f, fleet: fleet},
		schedule: &schedule{facts: f, fleet: fleet, ties: ties}}
}

// emptied returns a state without new nodes and placed pods that knows what this one knows: ties, worth, preference and order.
func (s *state) emptied() *state {
	next := newState(s.facts)
	next.ties.touch, next.ties.anyMachine = s.ties.touch, s.ties.anyMachine
	next.prefer(s.preference)
	next.opener.worth, next.turn, next.fleet.census.keepsSpread = s.opener.worth, s.turn, s.fleet.census.keepsSpread
	return next
}
