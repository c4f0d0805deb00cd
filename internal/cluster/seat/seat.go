// Package seat works out for how long a seat (cluster.Seat: room that a plan promised to a pod) is kept.
package seat

import (
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// Longest is how long room is kept for a pod on a node that is ready, even if its scheduler does not bind it.
	Longest = 10 * time.Minute
	// Vacancy is how long a vacant seat is kept for the pod that replaces a pod that went. Normally its owner makes it within a second.
	Vacancy = 20 * time.Second
)

// Until returns until when the room of a seat is kept; a time in the past if it is not kept. While the machine boots, the time moves
// with now. The seat itself ends earlier if its pod is bound or gone.
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

// Landing returns the nodes with vacant seats that are kept, to which pods are on the way. Disruption plans nothing onto these nodes
// and does not remove them. A pod that exists needs no such protection, because its own seat keeps its room. Seats that have been
// vacant since over or longer were not taken in time; over is zero if there are none.
func Landing(snap *cluster.Snapshot, now time.Time) (nodes map[string]bool, over time.Time) {
	nodes = map[string]bool{}
	for s := range snap.Seats() {
		if !s.Vacant() { // vacant seats come first
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
