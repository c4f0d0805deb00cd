package disrupt

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/budget"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// A PoolCount is the arithmetic of budgets for one pool.
type PoolCount struct {
	Nodes     int                         // initialized nodes
	Consuming int                         // of Nodes: not ready or on their way out
	NotReady  int                         // of Consuming: not ready, and not on their way out
	Stuck     int                         // of Consuming: not ready, or being deleted for more than stuckAfter
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

// A ledger says how many nodes of each pool may go now, for each reason, and counts the nodes that the steps of a pass take.
//
// A node that goes for one reason is taken off the allowance of every reason, as a node that a user deletes is. Example: a pool allows
// five nodes for any reason and none for drift. An empty node may go and is one of the five; a drifted one may not. The ledger is kept
// for a whole pass, so that each method sees what the methods before it took.
type ledger struct {
	counts  map[string]*PoolCount // not changed
	taken   map[string]int        // nodes of steps of this pass, by pool
	waiting map[string]int        // nodes of steps that wait for their confirmation or their turn, by pool
	ahead   bool                  // consolidation plans for more nodes than may go now
	// rollouts bound how many drifted nodes of a pool may begin to go; nil if there are no policies. drifted counts those that were
	// taken.
	rollouts map[string]rollout.Allowance
	drifted  map[string]int
}

// inTurns is the number of turns that consolidation plans for if steps may wait (World.Ahead). A turn is as many nodes as the budgets
// let go at once. A step waits for its second look, and then its nodes take some time to go. If the next step were looked for only
// after that, the budget would be unused while that step waits.
const inTurns = 2

// stuckAfter is how long after its deletion a node counts as stuck: consolidation does not plan for the time when it has gone.
const stuckAfter = 5 * time.Minute

// allow sets what the budgets of a pool allow for each reason (Raw), and Err if a budget does not parse.
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

// Left returns how many more nodes of the pool may be planned to go for the reason. Only consolidation plans for later turns, and leaves
// free what waiting steps need. Other reasons may use that: a waiting step is then refused when it is confirmed.
//
// Stuck nodes lower the allowance of every turn. Others that are on their way out use up one turn only.
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

// Now returns how many more nodes of the pool may go for the reason at this moment, by the budgets and, for drift, the rollout policy.
func (l *ledger) Now(pool string, reason v1.DisruptionReason) int {
	left := l.budget(pool, reason)
	if a, bound := l.rollouts[pool]; bound && reason == v1.DisruptionReasonDrifted {
		return max(0, min(left, a.More-l.drifted[pool]))
	}
	return left
}

// budget returns how many more nodes the budgets let go at this moment. Rollout policies do not count here.
func (l *ledger) budget(pool string, reason v1.DisruptionReason) int {
	count := l.counts[pool]
	if count == nil {
		return 0
	}
	return max(0, count.Raw[reason]-count.Uses(reason)-l.taken[pool])
}

// Spent reports whether the budgets let no node go for the reason at this moment, so that reports name them as what holds nodes back.
func (l *ledger) Spent(pool string, reason v1.DisruptionReason) bool {
	if reason != v1.DisruptionReasonUnderutilized {
		return l.budget(pool, reason) == 0
	}
	return min(l.Now(pool, reason), l.Left(pool, reason)) == 0
}

// cramped returns Left of each pool that has less than its full allowance. A search that found nothing may have found nothing because of
// that, and has to be repeated when such a pool gets more (lastSearch.freed).
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

// Plan does the same for a step that may have to wait for its turn: it has to fit into Left.
func (l *ledger) Plan(reason v1.DisruptionReason, nodes []*Candidate) bool {
	return l.take(nodes, func(pool string) int { return l.Left(pool, reason) })
}

// Fit reports whether all nodes of a step may go at once, beside the steps of this pass and those that wait already.
func (l *ledger) Fit(reason v1.DisruptionReason, nodes []*Candidate) bool {
	for pool, n := range perPool(nodes) {
		if l.Now(pool, reason)-l.waiting[pool] < n {
			return false
		}
	}
	return true
}

// take counts the nodes as taken if each pool has enough left, and reports whether it did.
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

// Fits returns the candidates, in their order, that the budgets would let go together. It skips candidates of pools that have nothing
// left and goes on with those of other pools.
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
