// Package evict says which pods of a leaving node go next, and how: by eviction, which PodDisruptionBudgets may refuse, or by
// deletion, when the node's deadline leaves no more time.
//
// Pods leave in waves: ordinary ones before critical ones, and in each of the two the pods of DaemonSets last, because
// others may need them to the end. A wave starts when the one before is gone, not when it has been told to go.
package evict

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A Deletion is a pod that must end by force.
type Deletion struct {
	Pod   *cluster.Pod
	Grace time.Duration // whole seconds, at least one
}

// A Plan is what to do with the pods of a node now.
type Plan struct {
	Evict  []*cluster.Pod
	Delete []Deletion
	// Waiting are all pods that keep the node from being drained, with those above.
	Waiting []*cluster.Pod
	// Until is when the plan changes by itself, because a pod reaches the time by which it must be told to end, a
	// protection ends, or a pod has been terminating for too long. Zero for never.
	Until time.Time
}

// Next says what to do with the pods of a node. deadline is the time by which the node must be gone, zero if there is none.
func Next(pods []*cluster.Pod, deadline, now time.Time) Plan {
	var plan Plan
	var waves [4][]*cluster.Pod
	for _, p := range pods {
		if !movable.WaitingEviction(p, now) {
			continue
		}
		plan.Waiting = append(plan.Waiting, p)
		plan.wake(p, deadline, now)
		if overdue(p, deadline, now) {
			plan.Delete = append(plan.Delete, Deletion{p, grace(deadline, now)})
			continue
		}
		w := wave(p)
		waves[w] = append(waves[w], p)
	}
	for _, wave := range waves {
		if len(wave) == 0 {
			continue
		}
		for _, p := range wave {
			if movable.Evictable(p, now) {
				plan.Evict = append(plan.Evict, p)
			}
		}
		break
	}
	return plan
}

// overdue pods would outlive the deadline if they were given the time they ask for.
func overdue(p *cluster.Pod, deadline, now time.Time) bool {
	if deadline.IsZero() {
		return false
	}
	if movable.Terminating(p) {
		last := deadline
		if soonest := now.Add(time.Second); soonest.After(last) { // it has been told to end at once already
			last = soonest
		}
		return p.Deleted.After(last)
	}
	return now.After(deadline.Add(-p.Grace))
}

func grace(deadline, now time.Time) time.Duration {
	return max(time.Second, deadline.Sub(now).Truncate(time.Second))
}

func (plan *Plan) wake(p *cluster.Pod, deadline, now time.Time) {
	at := []time.Time{movable.Protected(p, now).Until}
	if movable.Terminating(p) {
		at = append(at, p.Deleted.Add(time.Minute+time.Second))
	} else if !deadline.IsZero() {
		at = append(at, deadline.Add(-p.Grace+time.Second))
	}
	for _, t := range at {
		if t.After(now) {
			plan.Until = ztime.Sooner(plan.Until, t)
		}
	}
}

func wave(p *cluster.Pod) int {
	w := 0
	if critical(p) {
		w = 2
	}
	if p.DaemonSet {
		w++
	}
	return w
}

func critical(p *cluster.Pod) bool {
	switch p.Class.Spec.PriorityClassName {
	case "system-cluster-critical", "system-node-critical":
		return true
	}
	return false
}

// Attached returns the volumes that are still attached to a drained node and must leave it before its machine does.
// Volumes of pods that are not waited for stay as long as those pods do.
func Attached(snap *cluster.Snapshot, row *cluster.Node, now time.Time) []string {
	staying := map[types.NamespacedName]bool{}
	for _, p := range row.Pods {
		if !movable.Drainable(p, now) {
			addVolumes(staying, p)
		}
	}
	var out []string
	for a := range cluster.Attachments.In(snap, row.Name) {
		name := a.Spec.Source.PersistentVolumeName
		if name == nil || staying[claimOf(cluster.PVs.Get(snap, *name))] {
			continue
		}
		out = append(out, *name)
	}
	return out
}

func addVolumes(to map[types.NamespacedName]bool, p *cluster.Pod) {
	for _, name := range p.VolumeClaims() {
		to[types.NamespacedName{Namespace: p.Namespace, Name: name}] = true
	}
}

// claimOf names the PersistentVolumeClaim that holds a volume; the empty name if none does.
func claimOf(pv *corev1.PersistentVolume) types.NamespacedName {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
}

// HeldUntil returns the time until which pods may stay because their new places are not ready yet, zero if they must go now. It
// is for machines that the cloud takes back at a time known beforehand: their claim says how long pods may stay, and they
// go as soon as every machine that they are planned for is initialised.
func HeldUntil(snap *cluster.Snapshot, row *cluster.Node, now time.Time) time.Time {
	if row.Claim == nil {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, row.Claim.Annotations[v1.EvictAfterAnnotationKey])
	if err != nil || !now.Before(until) {
		return time.Time{}
	}
	for _, p := range row.Pods {
		if movable.Reschedulable(p) && !placed(snap, p) {
			return until
		}
	}
	return time.Time{}
}

// Taken reports whether the cloud is about to take the machine of a claim back, and pods have stayed for as long as they may: it goes
// whatever we do.
func Taken(claim *v1.NodeClaim, now time.Time) bool {
	if claim == nil {
		return false
	}
	until, err := time.Parse(time.RFC3339, claim.Annotations[v1.EvictAfterAnnotationKey])
	return err == nil && !now.Before(until)
}

// placed pods are planned for a machine that can take them now.
func placed(snap *cluster.Snapshot, p *cluster.Pod) bool {
	plan, ok := snap.Planned(p.PodKey)
	if !ok {
		return false
	}
	target := snap.Target(plan.Target)
	return target != nil && target.Initialized()
}
