// Package static decides about pools with a fixed number of nodes (spec.replicas): how many nodes are missing, which of too many nodes are
// removed first (static.go), and what a new node is (opening.go). Such a pool has its nodes whether pods need them or not.
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

// atOnce is the most machines of a pool that are opened and not launched yet. So a mistyped number of replicas does not fill the memory.
const atOnce = 1000

// A Stand has the machines of a pool by their state.
type Stand struct {
	Active     []*cluster.Node // they stay
	Unlaunched int             // how many of Active are not launched yet
	Leaving    int             // they are about to be removed, and their replacements are among Active or will be
	Ending     int             // they are being deleted
}

// StandOf sorts the machines of a pool. gone returns true for claims whose deletion the snapshot does not show yet.
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

// Missing returns how many machines the pool lacks. A machine that is leaving is not missing: its step opens the replacement.
func (s *Stand) Missing(pool *v1.NodePool) int {
	return max(0, int(*pool.Spec.Replicas)-len(s.Active)-s.Leaving)
}

// Headroom returns how many more machines the pool's limit on nodes allows now; math.MaxInt without a limit. Every machine counts until it
// is gone.
func (s *Stand) Headroom(pool *v1.NodePool) int {
	limit, limited := pool.Spec.Limits[v1.ResourceNodes]
	if !limited {
		return math.MaxInt
	}
	return max(0, int(limit.Value())-len(s.Active)-s.Leaving-s.Ending)
}

// Openable returns how many machines may be opened now, so that at most atOnce are not launched.
func (s *Stand) Openable() int { return max(0, atOnce-s.Unlaunched) }

// Surplus returns the machines to remove if the pool has too many, in the order of removal: machines that are not launched yet, then
// machines with pods of DaemonSets and static pods only, then the others, and last machines that are protected by do-not-disrupt. In each
// group the machine with the lowest cost goes first.
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

// A rank decides the order of removal: lower groups and costs first.
type rank struct {
	group int
	cost  float64 // of moving its pods, less near the end of its life
}

// The groups of a rank.
const (
	unlaunched = iota
	vacant     // only pods of DaemonSets and static pods
	busy
	protected // by do-not-disrupt on the claim, the Node or a pod
)

// rankOf returns the rank of a machine.
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

// launched reports whether a claim has a machine.
func launched(claim *v1.NodeClaim) bool { return claim.Status.ProviderID != "" }

// left returns the part of its life that a claim still has before it expires, 1 if it does not expire.
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
