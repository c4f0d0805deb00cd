package pack

import "karpenter.sh/karpenter/internal/core/work"

// A budget says when to stop. It counts work and asks no clock; the meter alone may do that.
//
// A first part of the work is granted whatever it brings. After it the search goes on only as long as there is something at stake and
// it still gets somewhere: price and bound are more than stakeShare and stakeLeast apart, and the last half of all work so far brought
// them noticeably nearer to each other.
//
// Stopping is decided by money. One percent of a fleet that costs ten dollars an hour is worth no second of a
// controller that thirty pools wait for; one percent of a fleet that costs a thousand is. And a search that has
// used half of its work since it last got anywhere is given up, however much is at stake: gains get rarer the
// longer a search lasts, and a gain that came late announces the next one for later still.
type budget struct {
	meter       *work.Meter
	began       work.Units
	least, most work.Units
	trials      int
	over        bool
	sure        bool  // the work has to be done: nothing ends it
	without     stage // what is left out

	watched  *solution // whose price and bound are at stake; nil while there is none
	apart    float64   // how far they were from each other when that last improved
	looked   work.Units
	improved work.Units // when that was
}

const (
	stakeShare = 5e-3
	stakeLeast = 2e7 // nano-dollars an hour
	// stakeWhole is for how many nano-dollars an hour at stake the whole sure part of the work may go into one attempt. With four dollars
	// the price workloads, of which half a dollar is at stake, keep what column generation and search win them, and 5,000 pods of nearly
	// as many shapes, which neither makes cheaper by a thousandth, are planned in a third of the work.
	stakeWhole = 4e9
	// paceGain is by which part price and bound have to get nearer to each other for a search to be given as much work again.
	paceGain = 0.05
	// stakeGain is by which part price and bound have to get nearer to each other to count as improved.
	stakeGain = 0.01
	// stakeLooks is how often stakes are looked at during the first part of the work; it goes on at that pace.
	stakeLooks = 8
)

func newBudget(o Options) *budget {
	b := &budget{meter: o.Meter, least: o.Least, most: o.Most, without: o.without}
	if b.meter == nil {
		b.meter = &work.Meter{}
	}
	b.began = b.meter.Spent()
	return b
}

// uncut is a budget for work that has to be done.
func (b *budget) uncut() *budget {
	return &budget{meter: b.meter, began: b.meter.Spent(), sure: true, without: b.without}
}

// grant is how much work goes into something that may come to nothing: so much of the sure part of all work as what is at stake is of
// stakeWhole. Without a sure part stakes do not count; then it is 0, for any amount.
func (b *budget) grant(stake float64) work.Units {
	if b.least == 0 {
		return 0
	}
	return max(work.Units(float64(b.least)*min(stake/stakeWhole, 1)), 1)
}

// granted is a budget for one such attempt, and for no more than is left.
//
// An attempt gets a budget of its own so that it cannot eat what the next one was meant to have. A column generation that does not come to
// its end leaves nothing behind, no bound and few good patterns; the search, which could have used the same work piece by piece, would
// then find the purse empty.
func (b *budget) granted(stake float64) *budget {
	out := &budget{meter: b.meter, began: b.meter.Spent(), sure: b.sure, over: b.over, most: b.grant(stake), without: b.without}
	if left, ok := b.left(); ok && (out.most == 0 || left < out.most) {
		out.most = max(left, 1)
	}
	return out
}

// left is how much more may be done; ok is false when that is any amount.
func (b *budget) left() (left work.Units, ok bool) { return b.most - b.spent(), b.most > 0 }

// charge notes work that was done.
func (b *budget) charge(n int) { b.meter.Charge(work.Units(n)) }

// spent is the work since the budget was made.
func (b *budget) spent() work.Units { return b.meter.Spent() - b.began }

// spend asks to do one more trial. Once it has said no it stays with it. The first trial is always granted.
//
// That it stays with a no keeps a run deterministic: whatever is asked afterwards, in whatever order, sees the same end. That the first
// trial is granted means that there is always a fleet to return.
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

// A pace ends a search that gets nowhere: it is granted what is at stake, and beyond that goes on as long as the last half of its work
// brought price and bound noticeably nearer to each other.
type pace struct {
	b               *budget
	began, improved work.Units
	granted         work.Units // 0: any amount
	apart           float64
}

func (b *budget) newPace(apart float64) *pace {
	return &pace{b: b, began: b.spent(), granted: b.grant(apart), apart: apart}
}

// onward reports whether to go on.
//
// Half of the work so far is the measure because it needs no constant that knows how large the question is: a
// search that last got somewhere after one second may go on until two, a search that got somewhere after a minute
// until two minutes. It can waste no more than it has used well.
func (p *pace) onward(apart float64) bool {
	now := p.b.spent() - p.began
	if apart < p.apart*(1-paceGain) {
		p.apart, p.improved = apart, now
	}
	return p.granted == 0 || now <= p.granted || p.improved >= now/2
}

// watch says whose price and bound are at stake from now on.
func (b *budget) watch(s *solution) { b.watched, b.improved = s, 0 }

// worthwhile looks at the stakes now and then.
func (b *budget) worthwhile() bool {
	now := b.spent()
	if b.least == 0 || b.watched == nil || now-b.looked < b.least/stakeLooks {
		return true
	}
	// The price and the bound of all parts are added up, which takes longer than a trial; so it is done a few times only.
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
