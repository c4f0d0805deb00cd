// Package paused reads the switch by which people stop voluntary disruption: an annotation on a NodePool, or on the namespace
// kube-system for the whole cluster.
//
// Both kinds of object are among those without which nothing is disrupted (cluster.Snapshot.Fed): a switch that cannot be read counts as
// thrown. So does a switch whose value is not understood: its author meant to stop something.
package paused

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// A Halt says that no node of a pool may be disrupted voluntarily.
type Halt struct {
	Pool   string    // the pool that stands still, "" for all of them
	Until  time.Time // when it ends by itself, zero if it does not
	Reason string    // the reason that its author gave, "" if nothing
	Unread string    // the value, where it is none that is understood
}

// Of reports whether a pool stands still now. Of two switches that of the cluster is reported, unless the pool's lasts longer.
func Of(snap *cluster.Snapshot, pool string, now time.Time) (h Halt, halted bool) {
	if ns := cluster.Namespaces.Get(snap, v1.PausedNamespace); ns != nil {
		h, halted = Read(ns.Annotations, now)
	}
	p := cluster.Pools.Get(snap, pool)
	if p == nil {
		return h, halted
	}
	if own, ok := Read(p.Annotations, now); ok && (!halted || own.outlasts(h)) {
		own.Pool = pool
		return own, true
	}
	return h, halted
}

func (h Halt) outlasts(other Halt) bool {
	return !other.Until.IsZero() && (h.Until.IsZero() || h.Until.After(other.Until))
}

// Node reports whether a node stands still with its pool. A Node may say of itself that it is of another pool than
// its claim: then both count.
func Node(snap *cluster.Snapshot, n *cluster.Node, now time.Time) (Halt, bool) {
	return (&Switches{Snap: snap, Now: now}).Node(n)
}

// Switches are those of one moment. Each is read once, however many nodes are asked about.
type Switches struct {
	Snap *cluster.Snapshot
	Now  time.Time
	read map[string]*Halt // by pool; nil for a pool that does not stand still
}

func (s *Switches) of(pool string) *Halt {
	known, ok := s.read[pool]
	if !ok {
		if s.read == nil {
			s.read = map[string]*Halt{}
		}
		if h, halted := Of(s.Snap, pool, s.Now); halted {
			known = &h
		}
		s.read[pool] = known
	}
	return known
}

// Node reports whether a node stands still.
func (s *Switches) Node(n *cluster.Node) (Halt, bool) {
	pools := make([]string, 1, 2) // "" asks for the cluster
	if n.Claim != nil {
		pools[0] = n.Claim.Labels[v1.NodePoolLabelKey]
	}
	if n.Node != nil && n.Node.Labels[v1.NodePoolLabelKey] != pools[0] {
		pools = append(pools, n.Node.Labels[v1.NodePoolLabelKey])
	}
	for _, pool := range pools {
		if h := s.of(pool); h != nil {
			return *h, true
		}
	}
	return Halt{}, false
}

// Read reads the switch on one object.
func Read(annotations map[string]string, now time.Time) (h Halt, halted bool) {
	value, there := annotations[v1.PausedAnnotationKey]
	if !there || value == "false" {
		return Halt{}, false
	}
	h.Reason = annotations[v1.PausedReasonAnnotationKey]
	if value == "true" {
		return h, true
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		h.Unread = value
		return h, true
	}
	if !until.After(now) {
		return Halt{}, false
	}
	h.Until = until
	return h, true
}
