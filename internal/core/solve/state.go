package solve

// A state is a placement in the making: a fleet, and what is known while places are looked for.
type state struct {
	facts    *facts
	fleet    *fleet
	ties     *ties
	opener   *opener
	schedule *schedule
	trial    trial
	prefers  Preference
	turn     []int32 // by class: its first place in the queue, where classes are placed in that order; nil: they are not
	dropped  bool    // finish gave pods back
}

func newState(f *facts) *state {
	fleet := newFleet(f)
	ties := newTies(f, fleet.stock)
	return &state{facts: f, fleet: fleet, ties: ties, trial: newTrial(f), opener: &opener{facts: f, fleet: fleet},
		schedule: &schedule{facts: f, fleet: fleet, ties: ties}}
}

// emptied returns an empty placement that knows what this one knows.
func (s *state) emptied() *state {
	next := newState(s.facts)
	next.ties.touch, next.ties.anyMachine = s.ties.touch, s.ties.anyMachine
	next.prefer(s.prefers)
	next.opener.worth, next.turn, next.fleet.census.keepsSpread = s.opener.worth, s.turn, s.fleet.census.keepsSpread
	return next
}
