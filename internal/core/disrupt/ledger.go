package disrupt

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/budget"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// A PoolCount is the arithmetic of budgets for one pool.
type PoolCount struct {
	Nodes     int                         // nodes that count
	Consuming int                         // of these, not ready or on their way out
	NotReady  int                         // of these, not ready and staying
	Stuck     int                         // of those, what will not be gone soon: not ready, or on their way out for long
	Raw       map[v1.DisruptionReason]int // what the budgets allow, before Consuming is taken off
	Err       error                       // a budget does not parse; nothing is allowed
}

// Uses returns how many nodes use up what the budgets allow for a reason. A node that is not ready does not keep others from being
// repaired: it is what they are repaired for.
func (c *PoolCount) Uses(reason v1.DisruptionReason) int {
	if reason == v1.DisruptionReasonUnhealthy {
		return c.Consuming - c.NotReady
	}
	return c.Consuming
}

// A ledger says how many nodes of each pool may go now, for each reason, and keeps count of what was taken.
// Every node that goes uses up every reason's allowance, as a node that is being deleted for any cause does.
//
// Budgets are counts that several reasons share. A pool that allows five of a hundred for any reason, and none for drift, lets an empty
// node go and not a drifted one; either way it is one of five. That is why a node that goes is taken off all of them, and why the account
// is kept for a pass as a whole: each method sees what those before it took.
type ledger struct {
	counts  map[string]*PoolCount // not changed
	taken   map[string]int
	waiting map[string]int // nodes of steps that wait for their confirmation or their turn
	ahead   bool           // consolidation plans for more than may go now
	// rollouts bound how many drifted nodes may begin to go, and drifted are those that were taken; nil where nothing does.
	rollouts map[string]rollout.Allowance
	drifted  map[string]int
}

// inTurns is how often as many nodes as may go at once are planned for where steps may wait for their turn. A step
// waits for its second look, and then its nodes take their time to go: who looks for the next one only when they
// have gone leaves the budget unused while that one waits. What is found meanwhile waits beside them and is ready
// when they have gone.
const inTurns = 2

// stuckAfter is how long after its deletion no loop waits any more for a node to go.
const stuckAfter = 5 * time.Minute

// allow evaluates the budgets of a pool.
func (c *PoolCount) allow(pool *v1.NodePool, now time.Time) {
	for _, reason := range v1.DisruptionReasons {
		allowed, err := budget.Allowed(pool.Spec.Disruption.Budgets, reason, c.Nodes, now)
		if err != nil {
			c.Err, allowed = err, 0
		}
		c.Raw[reason] = allowed
	}
}

// ledger starts an account of what may go.
func (s *survey) ledger() *ledger {
	l := &ledger{counts: map[string]*PoolCount{}, taken: map[string]int{}, waiting: s.w.Promised, ahead: s.w.Ahead,
		rollouts: s.w.Rollouts, drifted: map[string]int{}}
	for name, sum := range s.pools {
		l.counts[name] = &sum.count
	}
	return l
}

// Left returns how many more nodes of the pool may be planned to go for the reason. Emptiness and drift do not
// wait: what steps that are not confirmed yet would take is free for them, and those will find it gone.
func (l *ledger) Left(pool string, reason v1.DisruptionReason) int {
	if reason != v1.DisruptionReasonUnderutilized {
		return l.Now(pool, reason)
	}
	count := l.counts[pool]
	if count == nil {
		return 0
	}
	most, turns := count.Raw[reason]-count.Stuck, 1
	if l.ahead {
		turns = inTurns
	}
	return max(0, min(most, turns*most-(count.Consuming-count.Stuck)-l.taken[pool]-l.waiting[pool]))
}

// Now returns how many more nodes of the pool may go for the reason at this moment.
func (l *ledger) Now(pool string, reason v1.DisruptionReason) int {
	left := l.budget(pool, reason)
	if a, bound := l.rollouts[pool]; bound && reason == v1.DisruptionReasonDrifted {
		return max(0, min(left, a.More-l.drifted[pool]))
	}
	return left
}

// budget returns how many more the budgets let go.
func (l *ledger) budget(pool string, reason v1.DisruptionReason) int {
	count := l.counts[pool]
	if count == nil {
		return 0
	}
	return max(0, count.Raw[reason]-count.Uses(reason)-l.taken[pool])
}

// Spent reports whether nothing is left of a budget at this moment.
func (l *ledger) Spent(pool string, reason v1.DisruptionReason) bool {
	if reason != v1.DisruptionReasonUnderutilized {
		return l.budget(pool, reason) == 0
	}
	return min(l.Now(pool, reason), l.Left(pool, reason)) == 0
}

// cramped returns how many more nodes may go for the reason of each pool of which others have gone, are going or are not ready.
//
// A search that found nothing while some pool had less than its full allowance may have found nothing because of that. When it gets more,
// the question is another one, although neither pods nor prices changed.
func (l *ledger) cramped(reason v1.DisruptionReason) map[string]int {
	out := map[string]int{}
	for pool, count := range l.counts {
		if left := l.Left(pool, reason); left < count.Raw[reason] {
			out[pool] = left
		}
	}
	return out
}

// perPool counts nodes by their pools.
func perPool(nodes []*Candidate) map[string]int {
	out := map[string]int{}
	for _, c := range nodes {
		out[c.Pool.Name]++
	}
	return out
}

// Take uses up the allowance for all nodes of a step, or for none of them when it does not fit.
func (l *ledger) Take(reason v1.DisruptionReason, nodes []*Candidate) bool {
	if !l.take(nodes, func(pool string) int { return l.Now(pool, reason) }) {
		return false
	}
	if reason == v1.DisruptionReasonDrifted {
		for _, c := range nodes {
			l.drifted[c.Pool.Name]++
		}
	}
	return true
}

// Plan does so for a step that may have to wait for its turn.
func (l *ledger) Plan(reason v1.DisruptionReason, nodes []*Candidate) bool {
	return l.take(nodes, func(pool string) int { return l.Left(pool, reason) })
}

// Fit reports whether all nodes of a step may go with everything else that is planned, without waiting for a turn.
func (l *ledger) Fit(reason v1.DisruptionReason, nodes []*Candidate) bool {
	for pool, n := range perPool(nodes) {
		if l.Now(pool, reason)-l.waiting[pool] < n {
			return false
		}
	}
	return true
}

func (l *ledger) take(nodes []*Candidate, left func(pool string) int) bool {
	need := perPool(nodes)
	for pool, n := range need {
		if left(pool) < n {
			return false
		}
	}
	for pool, n := range need {
		l.taken[pool] += n
	}
	return true
}

// Fits returns the candidates, in their order, that the budgets would let go together.
//
// It walks on past candidates of pools that are used up: the budget of one pool never holds the nodes of another, however the candidates
// are sorted.
func (l *ledger) Fits(reason v1.DisruptionReason, candidates []*Candidate) []*Candidate {
	used := map[string]int{}
	var out []*Candidate
	for _, c := range candidates {
		if used[c.Pool.Name] < l.Left(c.Pool.Name, reason) {
			used[c.Pool.Name]++
			out = append(out, c)
		}
	}
	return out
}
