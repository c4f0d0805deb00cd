// Package bindfail handles pods that their scheduler does not bind: there is a node with room for the pod, as far as Karpenter can see, and
// the scheduler refuses it. Without a limit, Karpenter would open one node after the other for such pods.
//
// The cause is not known, but it most likely holds for another node too. So pods of one kind (equal class and owner) get one further node
// (a probe), and later another one from time to time. If the scheduler does nothing at all, it has not refused the node; but no place is
// kept for longer than seat.Longest.
//
// A [Memory] sees every plan. Sort says which waiting pods are planned for, which may try a further node, and which get none for now. Judge
// and Bare say which pods lose their place. A Memory opens no nodes itself. It is lost at a restart, which costs at most one further node
// for each kind. bindfail.go has the decisions, look.go reads the snapshot.
package bindfail

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// Patience is how long a pod's scheduler may take to bind it to a node that has all that the pod needs.
	Patience = time.Minute
	// The wait before a further node is tried begins with shortestWait, and doubles with each loss up to longestWait.
	shortestWait, longestWait = 5 * time.Minute, time.Hour
	// forgetAfter is how long a kind is remembered after its last pod waited.
	forgetAfter = time.Hour
	// slack: schedulers may look at a node up to slack before it counts as initialised, because its last taint goes before that.
	slack = 2 * time.Second
)

// A Kind is pods that a scheduler treats alike.
type Kind struct {
	Class *podclass.Class
	Owner types.UID // "" for pods without owner
}

// kindOf returns the kind of a pod.
func kindOf(p *cluster.Pod) Kind {
	if p.Owner == nil {
		return Kind{Class: p.Class}
	}
	return Kind{p.Class, p.Owner.UID}
}

// A Memory has what earlier calls of Sort and Judge saw. Its zero value has seen nothing.
type Memory struct {
	waits  map[types.UID]wait
	trials map[Kind]*trial
	pools  string // fingerprint of pools and node classes (describe)
	news   news   // what the last call of Sort read
}

// A wait is a pod with a place on a node that is ready.
type wait struct {
	class  *podclass.Class
	target string
	node   uint64    // fingerprint of the node (printOf)
	since  time.Time // since then the node has all that the pod needs
	heard  time.Time // from then on the scheduler knows the node when it judges the pod
	first  time.Time // since then the pod has had a place on a node that is ready, on this one or another
}

// A trial is a kind of pods that its scheduler did not bind to a node with room.
type trial struct {
	losses int
	last   Verdict
	until  time.Time // no further node is tried before
	probe  types.UID // the pod that tries a further node
	// proven: a pod of this kind was bound to another node. The others may follow, but not to nodes where they lost their place.
	proven bool
	early  bool                           // the wait was ended early, because a silent scheduler is back; at most once for each wait
	lost   map[string]uint64              // nodes where pods of this kind lost their place, with their fingerprints
	labels map[types.UID]*podclass.Labels // of the pods, to notice changes
	seen   time.Time                      // when a pod of this kind last waited
}

// A Verdict says why a pod has no place.
type Verdict struct {
	Node   string    // where it had a place
	Ready  time.Time // since then it could have been bound there
	At     time.Time // when it lost the place
	Silent bool      // its scheduler did nothing in this time
	Bare   bool      // the node came without the devices that its type promises
	Next   time.Time // when a further node is tried; zero means now
}

// A Held is a pod that gets no place now, or loses its place.
type Held struct {
	Pod *cluster.Pod
	Verdict
}

// A Sorted is the result of Sort.
type Sorted struct {
	Ask  []*cluster.Pod // are planned for as usual
	Try  []*cluster.Pod // may only get a place on a node that does not exist yet
	Held []Held         // get no place now
}

// Sort sorts the pods that wait for a plan. It first brings the memory up to date with the snapshot.
func (m *Memory) Sort(snap *cluster.Snapshot, pods []*cluster.Pod, now time.Time) Sorted {
	m.follow(snap, now)
	m.news = m.read(snap, now)
	m.forgive(snap, pods, now)
	var out Sorted
	picked := map[*trial]bool{}
	for _, p := range pods {
		t := m.trials[kindOf(p)]
		if t != nil && p.NodeName == "" {
			t.seen = now
			t.labels[p.UID] = p.Labels
		}
		switch {
		case t == nil || p.NodeName != "" || hasPlace(snap, p):
			out.Ask = append(out.Ask, p)
		case t.proven:
			out.Try = append(out.Try, p)
		case now.Before(t.until) || picked[t] || m.news.probing[t]:
			out.Held = append(out.Held, Held{p, t.last})
		default:
			picked[t], t.probe = true, p.UID
			out.Try = append(out.Try, p)
		}
	}
	return out
}

// hasPlace reports whether a pod is planned for a machine that is not about to be removed.
func hasPlace(snap *cluster.Snapshot, p *cluster.Pod) bool {
	plan, ok := snap.Planned(p.PodKey)
	if !ok {
		return false
	}
	target := snap.Target(plan.Target)
	return target != nil && !target.MarkedForRemoval
}

// forgive drops trials whose cause may be gone: pools, node classes, a node or a pod's labels changed, pods were bound after all, or no pod
// has waited for long. If a silent scheduler is back, it lets a further node be tried at once.
func (m *Memory) forgive(snap *cluster.Snapshot, pods []*cluster.Pod, now time.Time) {
	if pools := describe(snap); pools != m.pools {
		m.pools, m.trials = pools, nil
	}
	for _, p := range pods {
		if t := m.trials[kindOf(p)]; t != nil && t.labels[p.UID] != nil && t.labels[p.UID] != p.Labels {
			delete(m.trials, kindOf(p))
		}
	}
	for kind, t := range m.trials {
		idle := now.Sub(t.seen) > forgetAfter && now.After(t.until)
		changed := t.changed(snap)
		t.proven = t.proven || !m.news.bound[kind].Before(t.last.At)
		if idle || changed || m.news.wrong[kind] || t.proven && len(t.lost) == 0 {
			delete(m.trials, kind)
			continue
		}
		if t.last.Silent && !t.early && m.news.alive[kind.Class.Spec.SchedulerName].After(t.last.At) {
			t.early, t.until, t.last.Next = true, now, time.Time{}
		}
	}
}

// changed reports whether a node where the kind lost its place has changed since. It forgets nodes that are gone.
func (t *trial) changed(snap *cluster.Snapshot) bool {
	for name, was := range t.lost {
		n := snap.Node(name)
		switch {
		case n == nil || n.Node == nil || n.MarkedForRemoval:
			delete(t.lost, name)
		case fingerprint(n) != was:
			return true
		}
	}
	return false
}

// Judge takes the pods that stay on the node for which they are planned, and returns those that lose this place: their scheduler passed
// them over for Patience, or they have had a place for seat.Longest.
func (m *Memory) Judge(snap *cluster.Snapshot, stay []*cluster.Pod, now time.Time) []Held {
	var out []Held
	for _, p := range stay {
		w, waits := m.waits[p.UID]
		if !waits {
			continue
		}
		since := ztime.Later(w.since, m.news.bound[kindOf(p)]) // while pods of its kind are bound, it may be next
		heard := m.news.heard(p, w.heard)
		if now.Before(w.first.Add(seat.Longest)) && (!heard || now.Before(since.Add(Patience))) {
			continue
		}
		target := snap.Target(w.target)
		delete(m.waits, p.UID)
		// bindings are recorded to the second
		verdict := Verdict{Node: target.Name, Ready: w.since, At: now.Truncate(time.Second), Silent: !heard}
		out = append(out, Held{p, m.lose(p, target, verdict)})
	}
	return out
}

// Bare takes the pods of a node that a plan would open. If all of them have places on ready nodes that came without the devices which their
// types promise, it returns them, and they lose those places: another node would most likely come without devices as well. Otherwise it
// returns nil.
func (m *Memory) Bare(snap *cluster.Snapshot, pods []*cluster.Pod, now time.Time) []Held {
	for _, p := range pods {
		w, waits := m.waits[p.UID]
		if !waits || len(p.Class.Spec.ResourceClaims) == 0 || inUse(snap.Target(w.target)) {
			return nil
		}
	}
	out := make([]Held, len(pods))
	for i, p := range pods {
		w := m.waits[p.UID]
		target := snap.Target(w.target)
		delete(m.waits, p.UID)
		out[i] = Held{p, m.lose(p, target, Verdict{Node: target.Name, Ready: w.since, At: now.Truncate(time.Second), Bare: true})}
	}
	return out
}

// inUse reports whether there is another reason why devices are missing on a node: other pods use some, or the node is unschedulable.
func inUse(n *cluster.Node) bool {
	return n.Node.Spec.Unschedulable || slices.ContainsFunc(n.Pods, func(p *cluster.Pod) bool {
		return !p.DaemonSet &&
			len(p.Class.Spec.ResourceClaims) > 0
	})
}

// lose notes that a pod lost its place, and returns the verdict with the time of the next try. The first loss of a kind starts a trial
// without a wait. Later only a loss of the probe, or of a proven kind, counts and makes the wait longer: the others had their places
// before.
func (m *Memory) lose(p *cluster.Pod, target *cluster.Node, v Verdict) Verdict {
	kind := kindOf(p)
	t := m.trials[kind]
	switch {
	case t == nil:
		t = &trial{losses: 1, last: v, seen: v.At, until: v.At, lost: map[string]uint64{}, labels: map[types.UID]*podclass.Labels{}}
		if m.trials == nil {
			m.trials = map[Kind]*trial{}
		}
		m.trials[kind] = t
	case t.proven || t.probe == p.UID:
		t.losses++
		t.until = v.At.Add(min(longestWait, shortestWait<<min(10, t.losses-2)))
		v.Next = t.until
		t.last, t.probe, t.proven, t.early = v, "", false, false
	default:
		v.Next = t.last.Next
	}
	t.lost[target.Name], t.labels[p.UID] = fingerprint(target), p.Labels
	return v
}

// Begins reports whether a verdict is the first one of its kind's trial.
func (m *Memory) Begins(h Held) bool {
	t := m.trials[kindOf(h.Pod)]
	return t != nil && t.losses == 1 && t.last.At.Equal(h.At)
}
