// Package breaker counts how many new machines, and how many moved pods, did not get ready. From these counts it decides whether a
// breaker trips.
//
// A machine is new for Limits.Window after its launch. A pod has moved if it was ready when its node was removed. Its successor is a
// younger pod of the same template, that is, of the same owner and revision. Pods of another revision are no successors, so a bad release
// of the workload is not blamed on machines. A template is also left out if half or more of its pods that did not move are not ready:
// then something that the pods depend on is broken, not the machines.
//
// The package remembers what the cluster no longer shows, such as a failed machine that was deleted. It reads no clock and writes nothing.
package breaker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

const (
	// UnreadyAfter is how long a machine that was ready may be not ready before it counts as failed: kubelets restart.
	UnreadyAfter = 45 * time.Second
	// examples is how many machines, and how many pods, an Evidence names at most.
	examples = 3
	// revisionLabel is the pod label with the revision of a StatefulSet or of a similar owner. Each ReplicaSet is one revision by itself.
	revisionLabel = "controller-revision-hash"
)

// Limits say which launches and moves are judged, and how long a machine or a pod may take to get ready.
type Limits struct {
	Since  time.Time     // launches and moves before this time are ignored
	Window time.Duration // launches and moves that are longer ago are ignored; zero: none is too old
	Ready  time.Duration // how long a machine may take to get ready after its launch, and a pod after its creation
	// Judges selects the machines that are judged; nil for all.
	Judges func(*cluster.Node) bool
	// Proven is how long a pod must have been ready, before its node is removed, to count as moved.
	Proven time.Duration
}

// covers reports whether a launch or a move at the given time is judged: it is not before Since, and at most Window ago.
func (l *Limits) covers(at, now time.Time) bool {
	return !at.Before(l.Since) && (l.Window == 0 || now.Sub(at) <= l.Window)
}

// A state is how one machine is judged.
type state int

const (
	undecided state = iota // not ready yet, and not late
	good                   // it got ready
	bad                    // it did not get ready in time, or it was ready and is so no longer
)

// A machine is what Memory keeps of a new machine.
type machine struct {
	name     string
	launched time.Time
	state    state
}

// A Template identifies pods that were made alike: of the same owner and revision.
type Template struct {
	owner    types.UID
	revision string
}

// A move records one ready pod whose node is being removed.
type move struct {
	template Template
	at       time.Time // when Look first saw it
	record   Record
}

// A Record is how one or more pods of a template did.
type Record struct {
	Pods     int
	Startup  time.Duration // the shortest time that one of the pods took to get ready; 0: not known
	Restarts float64       // restarts in an hour, of the pod with the most
}

// leastAge is the least age by which restarts are divided: one restart of a pod that has just started is no rate.
const leastAge = 10 * time.Minute

// RecordOf returns the record of one pod.
func RecordOf(p *cluster.Pod, now time.Time) Record {
	r := Record{Pods: 1, Restarts: float64(p.Restarts) / max(now.Sub(p.Created), leastAge).Hours()}
	if p.Ready && !p.Scheduled.IsZero() && p.ReadySince.After(p.Scheduled) {
		r.Startup = p.ReadySince.Sub(p.Scheduled)
	}
	return r
}

// With returns the record of the pods of both records.
func (r Record) With(other Record) Record {
	r.Pods += other.Pods
	r.Restarts = max(r.Restarts, other.Restarts)
	if r.Startup == 0 || other.Startup > 0 && other.Startup < r.Startup {
		r.Startup = other.Startup
	}
	return r
}

// Memory keeps the machines and moves that Limits cover. Its zero value is empty.
type Memory struct {
	machines map[types.UID]machine
	moves    map[types.UID]move
	returned map[Template]returned
}

// returned counts the successors of the moved pods of one template. A successor that still has time to get ready is in neither count.
type returned struct {
	ready, bad int
	names      []string // of the bad pods
}

// Look updates the memory from a snapshot: it forgets machines and moves that the limits no longer cover, records new ones, and counts the
// successors of moved pods again.
func (m *Memory) Look(snap *cluster.Snapshot, l Limits, now time.Time) {
	if m.machines == nil {
		m.machines, m.moves = map[types.UID]machine{}, map[types.UID]move{}
	}
	for uid, one := range m.machines {
		if !l.covers(one.launched, now) || one.state == undecided && snap.ClaimNode(one.name) == nil {
			delete(m.machines, uid)
		}
	}
	for uid, one := range m.moves {
		if !l.covers(one.at, now) {
			delete(m.moves, uid)
		}
	}
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		if l.Judges == nil || l.Judges(n) {
			m.noteMachine(n, &l, now)
		}
		if n.MarkedForRemoval || n.Deleting() {
			m.noteMoves(n, l.Proven, now)
		}
	}
	m.returned = nil
	if len(m.moves) > 0 {
		m.countSuccessors(snap, &l, now)
	}
}

// noteMachine records the state of a new machine.
func (m *Memory) noteMachine(n *cluster.Node, l *Limits, now time.Time) {
	launched := condition.Get(n.Claim, v1.ConditionTypeLaunched)
	if launched == nil || !condition.IsTrue(n.Claim, v1.ConditionTypeLaunched) || !l.covers(launched.LastTransitionTime.Time, now) {
		return
	}
	one, known := m.machines[n.Claim.UID]
	if !known {
		one = machine{name: n.Claim.Name, launched: launched.LastTransitionTime.Time}
	}
	ready, since := readiness(n)
	switch {
	case n.Deleting(): // it keeps the state that it had
	case condition.IsTrue(n.Claim, v1.ConditionTypeInitialized) && ready:
		one.state = good
	case condition.IsTrue(n.Claim, v1.ConditionTypeInitialized):
		if now.Sub(since) >= UnreadyAfter {
			one.state = bad
		}
	case now.Sub(one.launched) >= l.Ready:
		one.state = bad
	}
	m.machines[n.Claim.UID] = one
}

// readiness returns whether the Node of a machine is ready, and since when. Without a Node it returns false and the zero time.
func readiness(n *cluster.Node) (ready bool, since time.Time) {
	if n.Node == nil {
		return false, time.Time{}
	}
	for i := range n.Node.Status.Conditions {
		if c := &n.Node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// noteMoves records the pods of a node that is being removed if they have been ready for the given time. A pod that is terminating may be
// unready for that reason, so it is taken to have been ready since it started.
func (m *Memory) noteMoves(n *cluster.Node, proven time.Duration, now time.Time) {
	for _, p := range n.Pods {
		if p.Owner == nil || p.DaemonSet || p.Mirror || p.Terminal() || !p.Ready && (!movable.Terminating(p) || p.Started.IsZero()) {
			continue
		}
		since := p.ReadySince
		if since.IsZero() {
			since = p.Started
		}
		if _, known := m.moves[p.UID]; !known && now.Sub(since) >= proven {
			m.moves[p.UID] = move{template: TemplateOf(p), at: now, record: RecordOf(p, now)}
		}
	}
}

// TemplateOf returns the template of a pod that has an owner.
func TemplateOf(p *cluster.Pod) Template {
	t := Template{owner: p.Owner.UID}
	if p.Labels != nil {
		t.revision = p.Labels.Map[revisionLabel]
	}
	return t
}

// countSuccessors counts, by template, the successors of moved pods that are ready, and those that are late. A pod of the template that is
// older than the first move did not move. If half or more of these are not ready, the template is left out, see the package doc.
func (m *Memory) countSuccessors(snap *cluster.Snapshot, l *Limits, now time.Time) {
	first := map[Template]time.Time{} // when the first pod of a template moved
	for _, one := range m.moves {
		if at, ok := first[one.template]; !ok || one.at.Before(at) {
			first[one.template] = one.at
		}
	}
	m.returned = map[Template]returned{}
	stayed, broken := map[Template]int{}, map[Template]int{} // pods that did not move, and how many of them are not ready
	for p := range snap.Pods() {
		if p.Owner == nil || p.Terminal() || movable.Terminating(p) {
			continue
		}
		t := TemplateOf(p)
		from, moved := first[t]
		if _, leaves := m.moves[p.UID]; !moved || leaves {
			continue
		}
		if p.Created.Add(time.Second).Before(from) { // creation times are cut to whole seconds
			if stayed[t]++; !p.Ready {
				broken[t]++
			}
			continue
		}
		r := m.returned[t]
		switch {
		case p.Ready:
			r.ready++
		case now.Sub(p.Created) >= l.Ready:
			r.bad++
			r.names = append(r.names, p.Namespace+"/"+p.Name)
		default:
			continue
		}
		m.returned[t] = r
	}
	for t, n := range stayed {
		if 2*broken[t] >= n {
			delete(m.returned, t)
		}
	}
}

// Moved returns, by template, how the moved pods did before they moved.
func (m *Memory) Moved() map[Template]Record {
	out := map[Template]Record{}
	for _, one := range m.moves {
		out[one.template] = out[one.template].With(one.record)
	}
	return out
}

// Evidence counts the new machines and the successors of moved pods that were judged, and how many of them failed.
type Evidence struct {
	Machines, BadMachines int
	Pods, BadPods         int
	Examples              []string // names of failed machines and pods
	MachineExamples       int      // how many of these are machines: they come first
}

// Evidence adds up what the memory knows. Of each template it counts at most as many successors as pods moved, so further pods, for example
// of a Deployment that was scaled up, do not count.
func (m *Memory) Evidence() (e Evidence) {
	var machines, pods []string
	for _, one := range m.machines {
		if one.state == undecided {
			continue
		}
		if e.Machines++; one.state == bad {
			e.BadMachines++
			machines = append(machines, one.name)
		}
	}
	moved := map[Template]int{}
	for _, one := range m.moves {
		moved[one.template]++
	}
	for t, n := range moved {
		r := m.returned[t]
		failed := min(n, r.bad)
		e.Pods += min(n, r.bad+r.ready)
		e.BadPods += failed
		slices.Sort(r.names)
		pods = append(pods, r.names[:failed]...)
	}
	slices.Sort(machines)
	slices.Sort(pods)
	e.MachineExamples = min(len(machines), examples)
	e.Examples = slices.Concat(machines[:min(len(machines), examples)], pods[:min(len(pods), examples)])
	return e
}

// A Cause is the kind of failure that tripped a breaker.
type Cause string

// The causes.
const (
	Machines Cause = "machines"
	Pods     Cause = "pods"
)

// least is how many machines or pods must have failed before a breaker trips. With fewer, a high percentage may be chance.
const least = 3

// Trips reports whether more than the given percentage of machines or of pods failed, and at least `least` of them. It returns which of the
// two is the cause.
func (e *Evidence) Trips(percent int) (Cause, bool) {
	switch {
	case e.BadMachines >= least && 100*e.BadMachines > percent*e.Machines:
		return Machines, true
	case e.BadPods >= least && 100*e.BadPods > percent*e.Pods:
		return Pods, true
	}
	return "", false
}
