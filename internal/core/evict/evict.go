// Package evict decides which pods of a draining node are removed next, and how: by eviction, which PodDisruptionBudgets may refuse, or by
// deletion, when the node's deadline leaves no more time.
//
// Pods leave in waves: ordinary pods, then critical ones, and in each of the two groups the pods of DaemonSets last, because other pods may
// need them to the end. A wave starts when all pods of the one before are gone.
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

// A Deletion is a pod that has to be deleted without an eviction.
type Deletion struct {
	Pod   *cluster.Pod
	Grace time.Duration // whole seconds, at least one
}

// A Plan is what to do with the pods of a node now.
type Plan struct {
	Evict  []*cluster.Pod
	Delete []Deletion
	// Waiting has all pods that keep the node from being drained, also those in Evict and Delete.
	Waiting []*cluster.Pod
	// Until is when the plan changes by itself: a pod has to be deleted to end by the deadline, a protection ends, or a pod has been
	// terminating for too long. Zero means never.
	Until time.Time
}

// Next returns what to do with the pods of a node. deadline is the time by which the node must be gone, zero if there is none.
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

// overdue reports whether a pod has to be deleted now, because it would outlive the deadline with its own grace period.
func overdue(p *cluster.Pod, deadline, now time.Time) bool {
	if deadline.IsZero() {
		return false
	}
	if movable.Terminating(p) {
		last := deadline
		if soonest := now.Add(time.Second); soonest.After(last) { // a deletion could not end it sooner
			last = soonest
		}
		return p.Deleted.After(last)
	}
	return now.After(deadline.Add(-p.Grace))
}

// grace returns the grace period with which a pod ends by the deadline: whole seconds, at least one.
func grace(deadline, now time.Time) time.Duration {
	return max(time.Second, deadline.Sub(now).Truncate(time.Second))
}

// justAfter is added to a time at which a pod's treatment does not change yet, but changes right after it.
const justAfter = time.Second

// wake sets plan.Until to the next time at which the answer about a pod may change, if that is sooner.
func (plan *Plan) wake(p *cluster.Pod, deadline, now time.Time) {
	at := []time.Time{movable.Protected(p, now).Until}
	if movable.Terminating(p) {
		at = append(at, p.Deleted.Add(movable.StuckAfter+justAfter))
	} else if !deadline.IsZero() {
		at = append(at, deadline.Add(-p.Grace+justAfter))
	}
	for _, t := range at {
		if t.After(now) {
			plan.Until = ztime.Sooner(plan.Until, t)
		}
	}
}

// wave returns the number of the wave in which a pod leaves: 0 and 1 for ordinary pods, 2 and 3 for critical ones; DaemonSets are 1 and 3.
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

// critical reports whether a pod has one of Kubernetes' two critical priority classes.
func critical(p *cluster.Pod) bool {
	switch p.Class.Spec.PriorityClassName {
	case "system-cluster-critical", "system-node-critical":
		return true
	}
	return false
}

// Attached returns the names of the volumes that are still attached to a drained node and must be detached before its machine is deleted.
// It leaves out the volumes of pods for which a drain does not wait, because these stay attached until the machine stops.
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

// addVolumes adds the volume claims of a pod.
func addVolumes(to map[types.NamespacedName]bool, p *cluster.Pod) {
	for _, name := range p.VolumeClaims() {
		to[types.NamespacedName{Namespace: p.Namespace, Name: name}] = true
	}
}

// claimOf returns the name of the PersistentVolumeClaim that is bound to a volume; the empty name if there is none.
func claimOf(pv *corev1.PersistentVolume) types.NamespacedName {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
}

// HeldUntil returns the time until which pods may stay because their new places are not ready yet, zero if they have to go now. It
// is for machines that the cloud takes back at a known time: an annotation of the claim says how long pods may stay. They go sooner once
// every machine for which they are planned is initialised.
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

// Taken reports whether the cloud is about to take the machine of a claim back and the time for which pods may stay is over. Nothing can
// stop that machine's end.
func Taken(claim *v1.NodeClaim, now time.Time) bool {
	if claim == nil {
		return false
	}
	until, err := time.Parse(time.RFC3339, claim.Annotations[v1.EvictAfterAnnotationKey])
	return err == nil && !now.Before(until)
}

// placed reports whether a pod is planned for a machine that is initialised.
func placed(snap *cluster.Snapshot, p *cluster.Pod) bool {
	plan, ok := snap.Planned(p.PodKey)
	if !ok {
		return false
	}
	target := snap.Target(plan.Target)
	return target != nil && target.Initialized()
}
