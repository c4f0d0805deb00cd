// Package seat says for how long promises of room are kept. Who has one is known to the store: see cluster.Seat.
package seat

import (
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// Longest is how long room is kept for a pod on a node that is ready, whether or not its scheduler does anything.
	Longest = 10 * time.Minute
	// Vacancy is how long it is kept for the pod that comes in the place of a pod that went. Its owner makes it within a second, unless
	// it has a lot to do.
	Vacancy = 20 * time.Second
)

// Until returns when room is not kept any more because no pod came; a moment that has passed where it is not kept.
// It ends earlier when the pod is bound or gone. A machine that boots is waited for.
func Until(snap *cluster.Snapshot, s cluster.Seat, now time.Time) time.Time {
	target := snap.Target(s.Target)
	if target == nil {
		return time.Time{}
	}
	if s.Vacant() {
		return s.At.Add(Vacancy)
	}
	since, ok := target.InitializedSince()
	if !ok {
		return now.Add(Longest)
	}
	return ztime.Later(s.At, since).Add(Longest)
}

// Kept reports whether room is kept now.
func Kept(snap *cluster.Snapshot, s cluster.Seat, now time.Time) bool {
	return Until(snap, s, now).After(now)
}

// Landing names the nodes with vacant seats, for which pods are on the way: nothing else is planned onto them or
// removes them. A pod that has not been evicted yet, and a pod that waits, needs no protection by it, because its
// own seat keeps its room. Seats that have been vacant since over, or for longer, were not taken in time; over is
// zero where there are none.
func Landing(snap *cluster.Snapshot, now time.Time) (nodes map[string]bool, over time.Time) {
	nodes = map[string]bool{}
	for s := range snap.Seats() {
		if !s.Vacant() { // those come first
			break
		}
		if Kept(snap, s, now) {
			nodes[snap.Target(s.Target).Name] = true
		} else {
			over = s.At
		}
	}
	return nodes, over
}
