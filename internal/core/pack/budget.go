package pack

import "karpenter.sh/karpenter/internal/core/work"

// A budget decides when to stop. It counts work and reads no clock; only the meter may do that.
//
// The first part of the work (least) is always granted. After it the search continues only while there is something to gain (price and
// bound are more than stakeShare and stakeLeast apart) and it makes progress (the last half of all work so far brought them nearer to each
// other).
//
// Money decides. One percent of a fleet that costs ten dollars an hour is not worth a second of the controller; one percent of a thousand
// dollars is. A search that made no progress in the last half of its work is stopped however much is at stake, because gains get rarer the
// longer a search lasts.
type budget struct {
	meter       *work.Meter
	began       work.Units // what the meter had counted when the budget was made
	least, most work.Units // see Options
	trials      int        // how often spend said yes
	over        bool       // the work is used up; stays true
	sure        bool       // the work has to be done: nothing ends it
	without     stage      // stages that are left out

	watched  *solution  // whose price and bound are compared; nil while there is none
	apart    float64    // price less bound when that last improved
	looked   work.Units // when worthwhile last compared them
	improved work.Units // when apart was set
}

const (
	stakeShare = 5e-3
	stakeLeast = 2e7 // nano-dollars an hour
	// stakeWhole is the stake, in nano-dollars an hour, for which one attempt may use all of the least work (see grant). With four dollars
	// the price workloads, of which half a dollar is at stake, keep what column generation and search gain; and 5,000 pods of nearly as
	// many shapes, which neither makes cheaper by a thousandth, are planned with a third of the work.
	stakeWhole = 4e9
	// paceGain is the part by which the distance of price and bound has to shrink for a search to get more work (pace).
	paceGain = 0.05
	// stakeGain is the part by which the distance of price and bound has to shrink to count as progress (worthwhile).
	stakeGain = 0.01
	// stakeLooks is how often worthwhile compares price and bound during the least work. Later it compares them at the same intervals.
	stakeLooks = 8
)

// newBudget returns a budget that begins now. Without a meter in the options it counts with its own.
func newBudget(o Options) *budget {
	b := &budget{meter: o.Meter, least: o.Least, most: o.Most, without: o.without}
	if b.meter == nil {
		b.meter = &work.Meter{}
	}
	b.began = b.meter.Spent()
	return b
}

// uncut returns a budget for work that has to be done: spend always says yes.
func (b *budget) uncut() *budget {
	return &budget{meter: b.meter, began: b.meter.Spent(), sure: true, without: b.without}
}

// grant returns how much work an attempt that may gain nothing gets: the part stake/stakeWhole of the least work. If stakes do not count
// (least is 0), it returns 0, which means any amount.
func (b *budget) grant(stake float64) work.Units {
	if b.least == 0 {
		return 0
	}
	return max(work.Units(float64(b.least)*min(stake/stakeWhole, 1)), 1)
}

// granted returns a budget for one such attempt, with at most the work that is left.
//
// With its own budget an attempt cannot use up the work of the next one. A column generation that does not finish has no bound and few good
// patterns, so the search, which can use any amount of work, must still get some.
func (b *budget) granted(stake float64) *budget {
	out := &budget{meter: b.meter, began: b.meter.Spent(), sure: b.sure, over: b.over, most: b.grant(stake), without: b.without}
	if left, ok := b.left(); ok && (out.most == 0 || left < out.most) {
		out.most = max(left, 1)
	}
	return out
}

// left returns how much work may still be done; ok is false if that is any amount.
func (b *budget) left() (left work.Units, ok bool) { return b.most - b.spent(), b.most > 0 }

// charge notes work that was done.
func (b *budget) charge(n int) { b.meter.Charge(work.Units(n)) }

// spent is the work since the budget was made.
func (b *budget) spent() work.Units { return b.meter.Spent() - b.began }

// spend reports whether one more trial may be done, and counts it. After the first no it always says no, so that a run is deterministic.
// The first trial is always granted, so that there is always a fleet to return.
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

// A pace ends a search that makes no progress. The search gets the work that its stake justifies (grant). After that it continues while the
// last half of its work brought price and bound noticeably nearer to each other.
type pace struct {
	b        *budget
	began    work.Units
	improved work.Units // work since began when apart last shrank by paceGain
	granted  work.Units // 0: any amount
	apart    float64    // price less bound at that time
}

// newPace returns the pace of a search that begins now, with this distance of price and bound.
func (b *budget) newPace(apart float64) *pace {
	return &pace{b: b, began: b.spent(), granted: b.grant(apart), apart: apart}
}

// onward reports whether the search may continue. apart is the present distance of price and bound.
//
// "Half of the work so far" needs no constant for the size of the question: a search whose last progress was after one second may continue
// until two seconds, one whose last progress was after a minute until two minutes.
func (p *pace) onward(apart float64) bool {
	now := p.b.spent() - p.began
	if apart < p.apart*(1-paceGain) {
		p.apart, p.improved = apart, now
	}
	return p.granted == 0 || now <= p.granted || p.improved >= now/2
}

// watch makes worthwhile look at the price and bound of s from now on.
func (b *budget) watch(s *solution) { b.watched, b.improved = s, 0 }

// worthwhile reports whether more work may pay, as described at budget. It compares price and bound only at intervals, and says yes in
// between.
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

// stakes returns the price and the bound so far. ok is false until there is a fleet that holds every item.
func (s *solution) stakes() (price int64, bound float64, ok bool) {
	for _, r := range s.runs {
		if r.best == nil || r.best.lost > 0 {
			return 0, 0, false
		}
	}
	price, _ = s.sum()
	return price, s.bound(), true
}
