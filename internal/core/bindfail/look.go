package bindfail

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/kit/identity"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// follow brings m.waits up to date: which pods have a place on a ready node, and since when that has all that they need. A change of the
// node, or a driver that is missing there, starts this time again.
func (m *Memory) follow(snap *cluster.Snapshot, now time.Time) {
	waits := make(map[types.UID]wait, len(m.waits))
	prints := map[*cluster.Node]uint64{}
	for key, plan := range snap.Plans() {
		p, n := snap.Pod(key), snap.Target(plan.Target)
		if p == nil || p.NodeName != "" || n == nil || n.Node == nil || n.MarkedForRemoval {
			continue
		}
		ready, ok := n.InitializedSince()
		if !ok {
			continue
		}
		print, known := prints[n]
		if !known {
			print = fingerprint(n)
			prints[n] = print
		}
		w, known := m.waits[p.UID]
		switch {
		case !known || w.class != p.Class || w.target != plan.Target:
			w = w.at(plan.Target, ready, plan.At)
		case w.node != print:
			w.since, w.heard = now, now
		}
		if !compile.HasDrivers(snap, p, n) {
			w.since, w.heard = now, now
		}
		w.class, w.node = p.Class, print
		waits[p.UID] = w
	}
	m.waits = waits
}

// at returns the wait for another node, which begins when the node is ready or the plan was made, whichever is later.
func (w wait) at(target string, ready, planned time.Time) wait {
	first := w.first
	w = wait{target: target, since: planned, heard: planned.Truncate(time.Second).Add(time.Second)}
	if ready.After(planned) {
		w.since, w.heard = ready, ready.Add(-slack)
	}
	w.first = w.since
	if ready.Before(first) { // the new node was ready all the time, so the pod has waited since first
		w.first = first
	}
	return w
}

// fingerprint returns a number that changes when anything of a node changes that a scheduler may look at, except its pods, or when another
// node gets its name.
func fingerprint(n *cluster.Node) uint64 {
	b := identity.Map(make([]byte, 0, 4096), n.Node.Labels)
	taints := n.Taints()
	b = identity.Count(b, len(taints))
	for _, t := range taints {
		b = identity.Texts(b, []string{t.Key, t.Value, string(t.Effect)})
	}
	b = identity.Count(b, len(n.Node.Status.Allocatable))
	for _, k := range slices.Sorted(maps.Keys(n.Node.Status.Allocatable)) {
		q := n.Node.Status.Allocatable[k]
		b = identity.Text(identity.Text(b, string(k)), q.String())
	}
	b = identity.Count(b, len(n.CSINode))
	for _, k := range slices.Sorted(maps.Keys(n.CSINode)) {
		b = identity.Number(identity.Text(b, k), int64(n.CSINode[k]))
	}
	b = identity.Texts(b, n.Node.Status.DeclaredFeatures)
	ready := corev1.ConditionStatus("")
	for i := range n.Node.Status.Conditions {
		if c := &n.Node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			ready = c.Status
		}
	}
	b = identity.Text(identity.Text(b, string(ready)), string(n.Node.UID))
	b = identity.Flag(b, n.Node.Spec.Unschedulable)
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// describe returns a fingerprint of pools and node classes. If it changes, the next node may be different.
func describe(snap *cluster.Snapshot) string {
	var b []byte
	for p := range cluster.Pools.All(snap) {
		b = identity.Number(identity.Text(identity.Flag(b, true), string(p.UID)), p.Generation)
	}
	b = identity.Flag(b, false) // the list of pools ends here
	for c := range snap.NodeClasses() {
		b = identity.Number(identity.Text(b, string(c.UID)), c.Generation)
	}
	return string(b)
}

// A news is what all pods show about schedulers and kinds.
type news struct {
	bound   map[Kind]time.Time   // the last binding of a pod of the kind
	wrong   map[Kind]bool        // a pod was bound after all to a node where the kind lost its place
	probing map[*trial]bool      // the probe has a place
	alive   map[string]time.Time // the last binding by each scheduler
	// handled has, by scheduler and priority, the creation time of the youngest pod that was bound or judged: pods that waited before it
	// have been looked at.
	handled map[string]map[int32]time.Time
}

// read returns the news of a snapshot. It goes through all pods only if there is a reason: a place is old enough to be lost, or there is a
// trial.
func (m *Memory) read(snap *cluster.Snapshot, now time.Time) news {
	out := news{bound: map[Kind]time.Time{}, wrong: map[Kind]bool{}, probing: map[*trial]bool{},
		alive: map[string]time.Time{}, handled: map[string]map[int32]time.Time{}}
	watched := map[Kind]*trial{}
	maps.Copy(watched, m.trials)
	for key := range snap.Plans() {
		if p := snap.Pod(key); p != nil && p.NodeName == "" && !now.Before(m.waits[p.UID].since.Add(Patience)) {
			watched[kindOf(p)] = m.trials[kindOf(p)]
		}
	}
	if len(watched) == 0 {
		return out
	}
	for p := range snap.Pods() {
		if p.DaemonSet || p.Mirror {
			continue
		}
		out.hear(p)
		kind := kindOf(p)
		t, ok := watched[kind]
		switch {
		case !ok:
		case p.NodeName == "":
			if t != nil && t.probe == p.UID && hasPlace(snap, p) {
				out.probing[t] = true
			}
		default:
			out.bound[kind] = ztime.Later(out.bound[kind], p.Scheduled)
			if t != nil && !p.Scheduled.Before(t.last.At) {
				_, lost := t.lost[p.NodeName]
				out.wrong[kind] = out.wrong[kind] || lost
			}
		}
	}
	return out
}

// hear adds what a pod shows about its scheduler to alive and handled.
func (n *news) hear(p *cluster.Pod) {
	if p.Scheduled.IsZero() && p.Judged.IsZero() {
		return
	}
	name := p.Class.Spec.SchedulerName
	n.alive[name] = ztime.Later(n.alive[name], p.Scheduled)
	if n.handled[name] == nil {
		n.handled[name] = map[int32]time.Time{}
	}
	n.handled[name][p.Priority] = ztime.Later(n.handled[name][p.Priority], p.Created)
}

// heard reports whether the scheduler of a pod has passed it over since a time: it judged the pod, or it bound or judged a pod that was
// created after that time and has no higher priority. Bindings of other pods say little, because thousands of pods may be before this one
// in the queue.
func (n *news) heard(p *cluster.Pod, since time.Time) bool {
	if !p.Judged.IsZero() && !p.Judged.Before(since) {
		return true
	}
	for priority, came := range n.handled[p.Class.Spec.SchedulerName] {
		if priority <= p.Priority && came.After(since) {
			return true
		}
	}
	return false
}
