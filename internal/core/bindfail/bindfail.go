// Package bindfail knows the places that kube-scheduler does not take: there is a node with room for a pod, as far
// as anybody here can see, and the pod is not bound to it. Whatever keeps it away, another node is most likely
// spurned as well, so pods that are alike get one further node for this cause, and then one now and then. A
// scheduler that does nothing at all spurns nothing; but nothing is kept for longer than seat.Longest either.
//
// A Memory receives every plan and returns which pods lose their place, which wait, and which try a further node. It buys and keeps
// nothing itself. It forgets with the process: a restart costs at most one further node for each kind.
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
	Patience                  = time.Minute
	shortestWait, longestWait = 5 * time.Minute, time.Hour
	// forgetAfter is how long a kind is remembered of which no pod waits.
	forgetAfter = time.Hour
	// slack is how long before a node counts as initialised its last taint may have gone, which is when schedulers look at it.
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

// A Memory is what earlier looks have shown. Its zero value has seen nothing.
type Memory struct {
	waits  map[types.UID]wait
	trials map[Kind]*trial
	pools  string // what pools and node classes were like
	news   news   // what the last look has shown
}

// A wait is a pod with a place on a node that is ready.
type wait struct {
	class  *podclass.Class
	target string
	node   uint64    // what the node is like
	since  time.Time // the node has all that the pod needs
	heard  time.Time // what its scheduler says from then on is said with the node in view
	first  time.Time // it has had a place on a node that is ready, this one or another
}

// A trial is a kind of pods that was spurned.
type trial struct {
	losses int
	last   Verdict
	until  time.Time // no further node is tried before
	probe  types.UID // the pod that tries one
	// proven says that a pod of this kind was bound elsewhere: the others may follow, but not to where they were spurned.
	proven bool
	early  bool              // the wait was ended because the scheduler, which had been silent, is back; once a wait
	lost   map[string]uint64 // nodes where pods of this kind were spurned, and what those were like
	labels map[types.UID]*podclass.Labels
	seen   time.Time // a pod of this kind waited
}

// A Verdict says why a pod has no place.
type Verdict struct {
	Node   string    // that it had a place on
	Ready  time.Time // since when
	At     time.Time // it was lost
	Silent bool      // its scheduler did nothing meanwhile
	Bare   bool      // the node came without the devices that its type promises
	Next   time.Time // when a further node is tried; zero: one is tried now
}

// Held is a pod that gets no place now, or loses the one it had.
type Held struct {
	Pod *cluster.Pod
	Verdict
}

// Sorted says what is to become of pods that wait.
type Sorted struct {
	Ask  []*cluster.Pod // are planned for like any other
	Try  []*cluster.Pod // get a place on a node that is not there yet, or none
	Held []Held
}

// Sort looks at the pods that ask for a plan.
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

// hasPlace reports whether a pod is planned for a machine that stays.
func hasPlace(snap *cluster.Snapshot, p *cluster.Pod) bool {
	plan, ok := snap.Planned(p.PodKey)
	if !ok {
		return false
	}
	target := snap.Target(plan.Target)
	return target != nil && !target.MarkedForRemoval
}

// forgive forgets what no longer holds: other pools, nodes or pods may fare better, and a scheduler that is back deserves a chance.
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

// changed reports whether a node where the kind was spurned is another than it was. Nodes that are gone are forgotten.
func (t *trial) changed(snap *cluster.Snapshot) bool {
	for name, was := range t.lost {
		n := snap.Node(name)
		switch {
		case n == nil || n.Node == nil || n.MarkedForRemoval:
			delete(t.lost, name)
		case printOf(n) != was:
			return true
		}
	}
	return false
}

// Judge takes the pods for which there still is room where they are planned to go, and returns those that lose that place.
func (m *Memory) Judge(snap *cluster.Snapshot, stay []*cluster.Pod, now time.Time) []Held {
	var out []Held
	for _, p := range stay {
		w, waits := m.waits[p.UID]
		if !waits {
			continue
		}
		since := ztime.Later(w.since, m.news.bound[kindOf(p)]) // while its like are bound, its turn may come
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

// Bare takes the pods of a node that a plan would open. Where all of them had places on nodes that are ready, and
// that came without the devices which their types promise, it returns them: they lose those places, and another
// node would most likely come without devices as well.
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

// inUse reports whether a node has changed: others have devices of it, or no pod is to come.
func inUse(n *cluster.Node) bool {
	return n.Node.Spec.Unschedulable || slices.ContainsFunc(n.Pods, func(p *cluster.Pod) bool {
		return !p.DaemonSet &&
			len(p.Class.Spec.ResourceClaims) > 0
	})
}

// lose notes that a pod was spurned. Of the places that pods of a kind had before the first loss, only that one counts.
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
	t.lost[target.Name], t.labels[p.UID] = printOf(target), p.Labels
	return v
}

// Begins reports whether a verdict is the first about its kind since it was last forgiven.
func (m *Memory) Begins(h Held) bool {
	t := m.trials[kindOf(h.Pod)]
	return t != nil && t.losses == 1 && t.last.At.Equal(h.At)
}
