package pack

import "karpenter.sh/karpenter/internal/core/work"

// A budget says when to stop. It counts work and asks no clock; the meter alone may do that.
//
// A first part of the work is granted whatever it brings. After it the search goes on only as long as there is something at stake and
// it still gets somewhere: price and bound are more than stakeShare and stakeLeast apart, and the last half of all work so far brought
// them noticeably nearer to each other.
type budget struct {
	meter       *work.Meter
	began       work.Units
	least, most work.Units
	trials      int
	over        bool
	sure        bool // the work has to be done: nothing ends it

	watched  *solution // whose price and bound are at stake; nil while there is none
	apart    float64   // how far they were from each other when that last improved
	looked   work.Units
	improved work.Units // when that was
}

const (
	stakeShare = 5e-3
	stakeLeast = 2e7 // nano-dollars an hour
	// stakeGain is by which part price and bound have to get nearer to each other to count as improved.
	stakeGain = 0.01
	// stakeLooks is how often stakes are looked at during the first part of the work; it goes on at that pace.
	stakeLooks = 8
)

func newBudget(o Options) *budget {
	b := &budget{meter: o.Meter, least: o.Least, most: o.Most}
	if b.meter == nil {
		b.meter = &work.Meter{}
	}
	b.began = b.meter.Spent()
	return b
}

// uncut is a budget for work that has to be done.
func (b *budget) uncut() *budget { return &budget{meter: b.meter, began: b.meter.Spent(), sure: true} }

// charge notes work that was done.
func (b *budget) charge(n int) { b.meter.Charge(work.Units(n)) }

// spent is the work since the budget was made.
func (b *budget) spent() work.Units { return b.meter.Spent() - b.began }

// spend asks to do one more trial. Once it has said no it stays with it. The first trial is always granted.
func (b *budget) spend() bool {
	if b.over || b.sure {
		return b.sure
	}
	cut := b.meter.Cut()
	if b.trials > 0 && (cut || b.most > 0 && b.spent() >= b.most || !b.worthwhile()) {
		b.over = true
		return false
	}
	b.trials++
	return true
}

// watch says whose price and bound are at stake from now on.
func (b *budget) watch(s *solution) { b.watched, b.improved = s, 0 }

// worthwhile looks at the stakes now and then.
func (b *budget) worthwhile() bool {
	now := b.spent()
	if b.least == 0 || b.watched == nil || now-b.looked < b.least/stakeLooks {
		return true
	}
	b.looked = now
	price, bound, ok := b.watched.stakes()
	if !ok {
		return true
	}
	apart := float64(price) - bound
	if b.improved == 0 || apart < float64(b.apart*(1-stakeGain)) {
		b.apart, b.improved = apart, now
	}
	return now < b.least || apart > float64(stakeShare*bound) && apart > stakeLeast && b.improved >= now/2
}

// stakes are the price and the bound so far. ok is false before there is a fleet that holds everything.
func (s *solution) stakes() (price int64, bound float64, ok bool) {
	for _, r := range s.runs {
		if r.best == nil || r.best.lost > 0 {
			return 0, 0, false
		}
	}
	price, _ = s.sum()
	return price, s.bound(), true
}
