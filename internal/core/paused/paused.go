// Package paused reads the switch by which people pause voluntary disruption: an annotation on a NodePool, or on the namespace
// kube-system for the whole cluster.
//
// An unknown value of the annotation counts as a pause, because its author meant to stop something. Until NodePools and namespaces have
// been read (cluster.Snapshot.Fed), no node is disrupted at all.
package paused

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// A Halt is a pause: no node of a pool may be disrupted voluntarily.
type Halt struct {
	Pool   string    // the pool that is paused, "" for the whole cluster
	Until  time.Time // when it ends by itself, zero if it does not
	Reason string    // the reason that its author gave, "" if none
	Unread string    // the value of the annotation, if it is unknown
}

// Of reports whether a pool is paused now. If both the cluster and the pool are paused, it returns the cluster's pause, unless the pool's
// lasts longer.
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

// outlasts reports whether h ends later than other. A pause without an end lasts longest.
func (h Halt) outlasts(other Halt) bool {
	return !other.Until.IsZero() && (h.Until.IsZero() || h.Until.After(other.Until))
}

// Node reports whether a node is paused; see Switches.Node.
func Node(snap *cluster.Snapshot, n *cluster.Node, now time.Time) (Halt, bool) {
	return (&Switches{Snap: snap, Now: now}).Node(n)
}

// A Switches answers Node for many nodes of a snapshot. It reads the switches of each pool once.
type Switches struct {
	Snap *cluster.Snapshot
	Now  time.Time
	read map[string]*Halt // by pool; nil for a pool that is not paused
}

// of returns the pause of a pool, nil if it is not paused. The pool "" has only the pause of the cluster.
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

// Node reports whether a node is paused, by the pool of its claim, the pool in the labels of its Node, or the cluster. A changed label on
// the Node cannot get around a pause, because both pools count.
func (s *Switches) Node(n *cluster.Node) (Halt, bool) {
	pools := make([]string, 1, 2) // of a node without a claim, the first is "": only the cluster
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

// Read returns the pause that the annotations of one object set, and false if they set none now. A time that has passed sets none.
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
