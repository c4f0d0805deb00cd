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
	// bindTime is how long kube-scheduler may take to bind a pod to a node that is ready for it, before the plan is looked at;
	// while it binds other planned pods it has longer, up to bindTimeMost: what room is left is known once it is through.
	bindTime     = 2 * time.Second
	bindTimeMost = 20 * time.Second
)

// memory is what the loop knows of the pods it has looked at.
type memory struct {
	pods  map[types.UID]look
	pools string    // their poolsKey at the last turn
	bound time.Time // when a planned pod was last seen to have found its node
	left  int       // planned pods that still waited then
}

// look is the last look at one pod.
type look struct {
	at      time.Time
	planned bool   // there was a place for it
	refusal string // what was said about it, so that it is said once
	causes  string // for which it was refused when the journal was told of it
	leftOut int    // how many plans in a row left it out
}

// waiting returns the pods that need a plan: those that kube-scheduler gave up on or is about to, and those on nodes that are to go.
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

func budgets(snap *cluster.Snapshot) *movable.PDBs {
	var all []movable.PDB
	for b := range cluster.PDBs.All(snap) {
		all = append(all, movable.Compile(b))
	}
	return movable.NewPDBs(all)
}

// due returns those of pods that ask for a plan now, and when the next one will.
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

// follow notes when planned pods stop waiting.
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

// place is where a pod has a seat, and since when.
type place struct {
	target *cluster.Node // nil if there is none
	since  time.Time
}

// places looks up where pods have seats, and each machine once.
type places struct {
	snap    *cluster.Snapshot
	targets map[string]*cluster.Node
}

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

// dueAt returns when a pod asks for a plan: now at the soonest, and zero if only news can make it.
func (m *memory) dueAt(p *cluster.Pod, planned place, news bool, now time.Time) time.Time {
	last, known := m.pods[p.UID]
	switch {
	case planned.target == nil || planned.target.MarkedForRemoval:
		if !known || last.planned || news {
			return now
		}
		return last.at.Add(retryInterval)
	case p.NodeName != "":
		return time.Time{} // its place waits for it
	case !known:
		return now // it came into the seat of a pod that went
	}
	since, ok := planned.target.InitializedSince()
	if !ok {
		return time.Time{} // its place is being made ready
	}
	ready := ztime.Later(planned.since, since)
	usable := ztime.Later(ready.Add(bindTime), ztime.Sooner(m.bound.Add(bindTime), ready.Add(bindTimeMost)))
	if last.at.Before(usable) {
		return usable
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

// looked notes that a turn has dealt with these pods, and forgets those that no longer wait.
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

// leftOut returns, by pod, how many plans in a row left them out.
func (m *memory) leftOut(pods []*cluster.Pod) map[cluster.PodKey]int {
	out := map[cluster.PodKey]int{}
	for _, p := range pods {
		if n := m.pods[p.UID].leftOut; n > 0 {
			out[p.PodKey] = n
		}
	}
	return out
}

// outcome is what became of the pods of a turn.
type outcome struct {
	planned map[types.UID]bool
	words   map[types.UID]string // what is said of each pod that the plan refuses
	refused map[types.UID]string // the same of those who have to do something about it
	causes  map[types.UID]string // why, without numbers
	leftOut map[types.UID]bool
}

func newOutcome() outcome {
	return outcome{planned: map[types.UID]bool{}, refused: map[types.UID]string{}, causes: map[types.UID]string{},
		leftOut: map[types.UID]bool{}}
}

// hurry makes pods due soon again, although they have just been looked at.
func (m *memory) hurry(pods []*cluster.Pod, now time.Time, wait time.Duration) {
	for _, p := range pods {
		m.pods[p.UID] = look{at: now.Add(wait - retryInterval)}
	}
}
