package provision

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/kit/identity"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// retryInterval is how often a pod that waits is looked at without news.
	retryInterval = 10 * time.Second
	// bindTime is how long kube-scheduler may take to bind a planned pod to a node that is ready, before the pod is due again. While
	// kube-scheduler binds other planned pods it gets more time, up to bindTimeMost, because the free room is known only after that.
	bindTime     = 2 * time.Second
	bindTimeMost = 20 * time.Second
)

// memory is what the loop remembers of the pods that it has looked at.
type memory struct {
	pods  map[types.UID]look
	pools string    // poolsKey at the last turn
	bound time.Time // when the number of planned pods that wait was last seen to fall: some of them were bound
	left  int       // planned pods that waited at the last look
}

// look is the last look at one pod.
type look struct {
	at      time.Time
	planned bool   // there was a place for it
	refusal string // the text of its refusal, so that the same text is not reported again
	causes  string // the causes of its refusal that the journal has
	leftOut int    // how many plans in a row left it out
}

// waiting returns the pods that need a plan: unbound pods that kube-scheduler could not place, or will not, and leaving pods, which run
// on nodes that are marked for removal and may be evicted now.
func waiting(snap *cluster.Snapshot, now time.Time) (unbound, leaving []*cluster.Pod) {
	unbound = snap.ProvisionableSoon()
	var pdbs *movable.PDBs
	for n := range snap.Nodes() {
		if !n.MarkedForRemoval {
			continue
		}
		for _, p := range n.Pods {
			if pdbs == nil {
				pdbs = budgets(snap)
			}
			if pdbs.CurrentlyReschedulable(p, now) {
				leaving = append(leaving, p)
			}
		}
	}
	return unbound, leaving
}

// budgets reads the PodDisruptionBudgets of a snapshot.
func budgets(snap *cluster.Snapshot) *movable.PDBs {
	var all []movable.PDB
	for b := range cluster.PDBs.All(snap) {
		all = append(all, movable.Compile(b))
	}
	return movable.NewPDBs(all)
}

// due returns the pods that are due now, and when the next of the others is.
func (m *memory) due(snap *cluster.Snapshot, pods []*cluster.Pod, now time.Time) (due []*cluster.Pod, next time.Time) {
	news := m.pools != poolsKey(snap)
	m.follow(pods, now)
	places := places{snap: snap, targets: map[string]*cluster.Node{}}
	for _, p := range pods {
		at := m.dueAt(p, places.of(p), news, now)
		switch {
		case !at.IsZero() && !at.After(now):
			due = append(due, p)
		default:
			next = ztime.Sooner(next, at)
		}
	}
	return due, next
}

// follow notes how many planned pods wait, and when that number falls.
func (m *memory) follow(pods []*cluster.Pod, now time.Time) {
	left := 0
	for _, p := range pods {
		if m.pods[p.UID].planned {
			left++
		}
	}
	if left < m.left {
		m.bound = now
	}
	m.left = left
}

// place is the machine on which a pod has a seat, and since when.
type place struct {
	target *cluster.Node // nil if there is none
	since  time.Time
}

// places looks up the seats of pods. It caches the machines, because many pods have seats on the same one.
type places struct {
	snap    *cluster.Snapshot
	targets map[string]*cluster.Node
}

// of returns the place of a pod; its target is nil if it has no seat or the machine of the seat is unknown.
func (l *places) of(p *cluster.Pod) place {
	seat, ok := l.snap.Planned(p.PodKey)
	if !ok {
		return place{}
	}
	target, known := l.targets[seat.Target]
	if !known {
		target = l.snap.Target(seat.Target)
		l.targets[seat.Target] = target
	}
	return place{target, seat.At}
}

// dueAt returns when a pod is due, zero if only a change in the cluster can make it due. news says that pools have changed since the last
// turn.
//
// Without a seat it is due at once if it is new, lost its seat or pools have changed, else after retryInterval. With a seat on a node
// that is ready it is due if kube-scheduler has not bound it in time (bindTime).
func (m *memory) dueAt(p *cluster.Pod, planned place, news bool, now time.Time) time.Time {
	last, known := m.pods[p.UID]
	switch {
	case planned.target == nil || planned.target.MarkedForRemoval:
		if !known || last.planned || news {
			return now
		}
		return last.at.Add(retryInterval)
	case p.NodeName != "":
		return time.Time{} // it runs on a node that goes, and has a seat already
	case !known:
		return now // it got the seat of a pod that was deleted
	}
	since, ok := planned.target.InitializedSince()
	if !ok {
		return time.Time{} // its node is booting
	}
	ready := ztime.Later(planned.since, since)
	overdue := ztime.Later(ready.Add(bindTime), ztime.Sooner(m.bound.Add(bindTime), ready.Add(bindTimeMost)))
	if last.at.Before(overdue) {
		return overdue
	}
	return last.at.Add(retryInterval)
}

// poolsKey returns a text that changes when a NodePool comes or goes, its spec changes, or it becomes ready or stops being so. Pods that
// were refused are planned again then.
func poolsKey(snap *cluster.Snapshot) string {
	var b []byte
	for p := range cluster.Pools.All(snap) {
		b = identity.Number(identity.Text(b, string(p.UID)), p.Generation)
		b = identity.Flag(b, meta.IsStatusConditionTrue(p.Status.Conditions, v1.ConditionTypeReady))
	}
	return string(b)
}

// looked remembers the outcome of a turn for its pods, and forgets all other pods. Pods that were left out are due again after
// leftOutDelay.
func (m *memory) looked(snap *cluster.Snapshot, pods []*cluster.Pod, outcome outcome, now time.Time) {
	m.pools = poolsKey(snap)
	fresh := make(map[types.UID]look, len(pods))
	for _, p := range pods {
		fresh[p.UID] = look{at: now, planned: outcome.planned[p.UID], refusal: outcome.refused[p.UID], causes: outcome.causes[p.UID]}
		if outcome.leftOut[p.UID] {
			fresh[p.UID] = look{at: now.Add(leftOutDelay - retryInterval), leftOut: m.pods[p.UID].leftOut + 1}
		}
	}
	m.pods, m.left = fresh, 0
}

// leftOut returns, by pod, how many plans in a row have left it out.
func (m *memory) leftOut(pods []*cluster.Pod) map[cluster.PodKey]int {
	out := map[cluster.PodKey]int{}
	for _, p := range pods {
		if n := m.pods[p.UID].leftOut; n > 0 {
			out[p.PodKey] = n
		}
	}
	return out
}

// outcome is the result of a turn for its pods.
type outcome struct {
	planned map[types.UID]bool
	words   map[types.UID]string // why the plan refuses a pod
	refused map[types.UID]string // the same, for pods whose owner or an operator has to act
	causes  map[types.UID]string // the causes without numbers, see causes
	leftOut map[types.UID]bool
}

// newOutcome returns an empty outcome. words is set later.
func newOutcome() outcome {
	return outcome{planned: map[types.UID]bool{}, refused: map[types.UID]string{}, causes: map[types.UID]string{},
		leftOut: map[types.UID]bool{}}
}

// hurry makes pods due again after wait, although they have just been looked at.
func (m *memory) hurry(pods []*cluster.Pod, now time.Time, wait time.Duration) {
	for _, p := range pods {
		m.pods[p.UID] = look{at: now.Add(wait - retryInterval)}
	}
}
