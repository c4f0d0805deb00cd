// Package static keeps pools of a fixed number of nodes: how many are missing, which go first when there are too many, and what a new
// one is. No pod is asked: such a pool has its nodes whether pods need them or not.
package static

import (
	"cmp"
	"math"
	"slices"
	"time"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
)

// atOnce is how many machines of a pool are asked of the cloud at once. A number that was mistyped must not fill the memory.
const atOnce = 1000

// A Stand is where the machines of a pool are in their lives.
type Stand struct {
	Active     []*cluster.Node // they stay
	Unlaunched int             // of those
	Leaving    int             // they are being replaced: what replaces them is active, or is about to be
	Ending     int             // they are being deleted
}

// StandOf counts the machines of a pool. gone tells of claims that are being deleted although the picture does not show it yet.
func StandOf(snap *cluster.Snapshot, pool string, gone func(*v1.NodeClaim) bool) (s Stand) {
	for n := range snap.Nodes() {
		switch {
		case n.Claim == nil || n.Claim.Labels[v1.NodePoolLabelKey] != pool:
		case n.Deleting() || gone(n.Claim):
			s.Ending++
		case n.MarkedForRemoval || condition.IsTrue(n.Claim, v1.ConditionTypeDisruptionReason):
			s.Leaving++
		default:
			s.Active = append(s.Active, n)
			if !launched(n.Claim) {
				s.Unlaunched++
			}
		}
	}
	return s
}

// Missing is how many machines the pool lacks.
func (s *Stand) Missing(pool *v1.NodePool) int {
	return max(0, int(*pool.Spec.Replicas)-len(s.Active)-s.Leaving)
}

// Headroom is how many more machines the pool may have at this moment. Every machine counts until it is gone.
func (s *Stand) Headroom(pool *v1.NodePool) int {
	limit, limited := pool.Spec.Limits[v1.ResourceNodes]
	if !limited {
		return math.MaxInt
	}
	return max(0, int(limit.Value())-len(s.Active)-s.Leaving-s.Ending)
}

// Openable is how many machines may be opened before others were launched.
func (s *Stand) Openable() int { return max(0, atOnce-s.Unlaunched) }

// Surplus lists the machines that the pool has too many, in the order in which they go: those that are not launched
// yet; those that run nothing which comes back; then those whose end costs least, and last of all those that users
// asked not to disrupt.
func (s *Stand) Surplus(pool *v1.NodePool, now time.Time) []*cluster.Node {
	excess := len(s.Active) - int(*pool.Spec.Replicas)
	if excess <= 0 {
		return nil
	}
	ranks := make(map[*cluster.Node]rank, len(s.Active))
	for _, n := range s.Active {
		ranks[n] = rankOf(n, now)
	}
	order := slices.SortedFunc(slices.Values(s.Active), func(a, b *cluster.Node) int {
		x, y := ranks[a], ranks[b]
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.cost, y.cost), cmp.Compare(a.Claim.Name, b.Claim.Name))
	})
	return order[:excess]
}

// A rank says when a machine goes.
type rank struct {
	group int
	cost  float64 // of moving its pods, less near the end of its life
}

// The groups of a rank.
const (
	unlaunched = iota
	vacant
	busy
	protected
)

func rankOf(n *cluster.Node, now time.Time) rank {
	if !launched(n.Claim) {
		return rank{group: unlaunched}
	}
	r := rank{group: vacant}
	cost, held := 1.0, n.Claim.Annotations[v1.DoNotDisruptAnnotationKey] == "true" ||
		n.Annotations()[v1.DoNotDisruptAnnotationKey] == "true"
	for _, p := range n.Pods {
		held = held || movable.Protected(p, now).Held
		if !p.DaemonSet && !p.Mirror {
			r.group = busy
		}
		if movable.Reschedulable(p) {
			cost += max(0, movable.EvictionCost(p))
		}
	}
	r.cost = cost * left(n.Claim, now)
	if held {
		r.group = protected
	}
	return r
}

func launched(claim *v1.NodeClaim) bool { return claim.Status.ProviderID != "" }

// left is the part of its life that a claim still has.
func left(claim *v1.NodeClaim, now time.Time) float64 {
	expiry, expires := lifecycle.Expiry(claim)
	if !expires {
		return 1
	}
	whole := expiry.Sub(claim.CreationTimestamp.Time)
	if whole <= 0 {
		return 0
	}
	return min(1, max(0, expiry.Sub(now).Seconds()/whole.Seconds()))
}
