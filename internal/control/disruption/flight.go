package disruption

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A flight is pods that a step has sent somewhere else. Between its eviction and the binding of the pod that takes its place, a pod
// is nowhere: the room that it was promised looks free, and no plan keeps it, because the new pod has another name.
type flight struct {
	places []string // names of nodes and of claims that are not nodes yet
	pods   []*cluster.Pod
	left   int       // pods that have not taken off
	last   time.Time // when one did
}

// quickLanding is how long pods are given to show up again before "no pod waits" is believed.
const quickLanding = 5 * time.Second

// depart notes where the pods of a step go.
func (l *Loop) depart(step *disrupt.Step, replacements []string, now time.Time) {
	f := &flight{places: slices.Concat(placesOf(step), replacements), last: now}
	for _, c := range step.Remove {
		f.pods = append(f.pods, c.Pods...)
	}
	f.left = len(f.pods)
	l.flights = append(l.flights, f)
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

// landing names the nodes that pods are on their way to: those of steps that wait for their second look, and those of flights that
// are in the air. A pod that has not been evicted yet needs no protection here, its plan keeps its room.
func (l *Loop) landing(snap *cluster.Snapshot, now time.Time) map[string]bool {
	out := map[string]bool{}
	for _, p := range l.pending {
		for _, name := range placesOf(p.step) {
			out[name] = true
		}
	}
	waits := false
	for range snap.Provisionable() {
		waits = true
		break
	}
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		left := f.waiting(snap)
		if left != f.left {
			f.left, f.last = left, now
		}
		if since := now.Sub(f.last); since < quickLanding || since < l.settings.Landing && waits {
			for _, name := range f.places {
				if n := snap.ClaimNode(name); n != nil {
					name = n.Name
				}
				out[name] = true
			}
			return false
		}
		return left == 0 // otherwise the next one may take off at any time
	})
	return out
}

// waiting counts the pods that have not been evicted.
func (f *flight) waiting(snap *cluster.Snapshot) int {
	n := 0
	for _, p := range f.pods {
		if now := snap.Pod(p.PodKey); now != nil && now.UID == p.UID && movable.Active(now) {
			n++
		}
	}
	return n
}
