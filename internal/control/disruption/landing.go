package disruption

import (
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/seat"
)

// landing names the nodes that pods are on their way to: those with vacant seats. A pod that has not been evicted yet, and one that waits,
// needs no protection here: its own seat keeps its room, and that of steps which wait for their second look is kept by World.Coming. Seats
// that nobody took are cleared.
func (l *Loop) landing(snap *cluster.Snapshot, now time.Time) map[string]bool {
	out := map[string]bool{}
	for s := range snap.Seats() {
		if !s.Vacant() {
			break
		}
		if seat.Kept(snap, s, now) {
			out[snap.Target(s.Target).Name] = true
			continue
		}
		l.store.Update(func(d *cluster.Draft) { d.DropVacant(s.At) })
	}
	return out
}
