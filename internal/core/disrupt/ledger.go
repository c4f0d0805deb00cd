package disrupt

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/budget"
)

// A PoolCount is the arithmetic of budgets for one pool.
type PoolCount struct {
	Nodes     int                         // nodes that count
	Consuming int                         // of these, not ready or on their way out
	Raw       map[v1.DisruptionReason]int // what the budgets allow, before Consuming is taken off
	Err       error                       // a budget does not parse; nothing is allowed
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
	waiting map[string]int // nodes of steps that wait for their confirmation, for which room is kept
}

// reasons lists the reasons for which budgets are kept.
var reasons = []v1.DisruptionReason{v1.DisruptionReasonEmpty, v1.DisruptionReasonDrifted, v1.DisruptionReasonUnderutilized}

// allow evaluates the budgets of a pool.
func (c *PoolCount) allow(pool *v1.NodePool, now time.Time) {
	for _, reason := range reasons {
		allowed, err := budget.Allowed(pool.Spec.Disruption.Budgets, reason, c.Nodes, now)
		if err != nil {
			c.Err, allowed = err, 0
		}
		c.Raw[reason] = allowed
	}
}

// ledger starts an account of what may go.
func (s *survey) ledger() *ledger {
	l := &ledger{counts: map[string]*PoolCount{}, taken: map[string]int{}, waiting: s.w.Promised}
	for name, sum := range s.pools {
		l.counts[name] = &sum.count
	}
	return l
}

// Left returns how many more nodes of the pool may go for the reason. Emptiness waits for nobody: what steps that are not
// confirmed yet would take is free for it, and they will find it gone.
func (l *ledger) Left(pool string, reason v1.DisruptionReason) int {
	count := l.counts[pool]
	if count == nil {
		return 0
	}
	left := count.Raw[reason] - count.Consuming - l.taken[pool]
	if reason != v1.DisruptionReasonEmpty {
		left -= l.waiting[pool]
	}
	return max(0, left)
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

// Take uses up the allowance for all nodes of a step, or for none of them when it does not fit.
func (l *ledger) Take(reason v1.DisruptionReason, nodes []*Candidate) bool {
	need := map[string]int{}
	for _, c := range nodes {
		need[c.Pool.Name]++
	}
	for pool, n := range need {
		if l.Left(pool, reason) < n {
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
