package pack

// A budget counts trials and says when to stop. Only spend asks the clock, so that the number of trials at which a run was cut
// repeats it.
type budget struct {
	trials, most int
	stop         func() bool
	over         bool
}

func newBudget(o Options) *budget { return &budget{most: o.Trials, stop: o.Stop} }

// spend asks to do one more trial. Once it has said no it stays with it. The first trial is always granted.
func (b *budget) spend() bool {
	if b.over {
		return false
	}
	if b.trials > 0 && (b.most > 0 && b.trials >= b.most || b.stop != nil && b.stop()) {
		b.over = true
		return false
	}
	b.trials++
	return true
}
