package disruption

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/seat"
)

// landing names the nodes that pods are on their way to: those of steps that wait for their second look, and those with vacant seats. A pod
// that has not been evicted yet, and one that waits, needs no protection here: its own seat keeps its room. Seats that
// nobody took are cleared.
func (l *Loop) landing(snap *cluster.Snapshot, now time.Time) map[string]bool {
	out := map[string]bool{}
	for _, p := range l.pending {
		for _, name := range placesOf(p.step) {
			out[name] = true
		}
	}
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

// placesOf lists the running nodes that take pods of a step.
func placesOf(step *disrupt.Step) []string {
	var out []string
	for _, p := range step.Place {
		out = append(out, p.Node)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
