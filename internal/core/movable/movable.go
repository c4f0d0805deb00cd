// Package movable answers questions of draining and disruption about one pod: does it need another node when its node goes
// ([Reschedulable]), may it be evicted now ([Evictable]), does a drain wait for it ([WaitingEviction]), and which PodDisruptionBudgets keep
// it ([PDBs]).
//
// The rules are those of the do-not-disrupt annotation, the disrupted taint and PodDisruptionBudgets. Nodes, prices and budgets of pools
// play no part here.
package movable

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/taint"
)

// StuckAfter is the time after its deletion time for which a drain waits for a terminating pod.
const StuckAfter = time.Minute

// Terminating reports whether a pod is being deleted.
func Terminating(p *cluster.Pod) bool { return !p.Deleted.IsZero() }

// active reports whether a pod is neither terminal nor terminating.
func active(p *cluster.Pod) bool { return !p.Terminal() && !Terminating(p) }

// stuck reports whether a pod should have ended more than StuckAfter ago; its kubelet is most likely gone.
func stuck(p *cluster.Pod, now time.Time) bool {
	return Terminating(p) && now.After(p.Deleted.Add(StuckAfter))
}

// Reschedulable reports whether a pod needs another node when its node goes. A terminating pod of a StatefulSet does, because a pod of the
// same name comes back; a terminating pod of a Deployment has already been replaced.
func Reschedulable(p *cluster.Pod) bool {
	return (active(p) || Terminating(p) && p.StatefulSet) && !p.DaemonSet && !p.Mirror
}

// Count returns how many of the pods need another node when their node goes.
func Count(pods []*cluster.Pod) (n int) {
	for _, p := range pods {
		if Reschedulable(p) {
			n++
		}
	}
	return n
}

// A Protection is what the do-not-disrupt annotation of a pod means now.
type Protection struct {
	Held    bool      // the pod must not be evicted, so its node stays
	Until   time.Time // when the protection ends; zero if it does not end by itself
	Elapsed bool      // the annotation is a duration that has passed
	Invalid bool      // the annotation has an unknown value and is ignored
}

// Protected reads the do-not-disrupt annotation: "true" protects for ever, a positive duration protects for that time after the pod
// started, other values are ignored. Terminal and terminating pods are never protected.
func Protected(p *cluster.Pod, now time.Time) Protection {
	if p.DoNotDisrupt == "" || !active(p) {
		return Protection{}
	}
	if p.DoNotDisrupt == "true" {
		return Protection{Held: true}
	}
	d, err := time.ParseDuration(p.DoNotDisrupt)
	switch {
	case err != nil || d <= 0:
		return Protection{Invalid: true}
	case p.Started.IsZero(): // the duration has not begun
		return Protection{Held: true}
	}
	until := p.Started.Add(d)
	if now.Before(until) {
		return Protection{Held: true, Until: until}
	}
	return Protection{Elapsed: true}
}

// disrupted is the taint that nodes get before they are drained.
var disrupted = corev1.Taint{Key: v1.DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule}

// ToleratesDisrupted reports whether a pod tolerates the taint of a draining node. Such a pod stays until the machine stops: if it were
// evicted, it would come back at once.
func ToleratesDisrupted(p *cluster.Pod) bool {
	return taint.Tolerated(p.Class.Spec.Tolerations, &disrupted)
}

// Evictable reports whether a pod may be evicted now, apart from PodDisruptionBudgets.
func Evictable(p *cluster.Pod, now time.Time) bool {
	return active(p) && !p.Mirror && !ToleratesDisrupted(p) && !Protected(p, now).Held
}

// Drainable reports whether a drain waits for a pod's volumes to be detached, and for its end if it has not ended.
func Drainable(p *cluster.Pod, now time.Time) bool {
	return !p.Mirror && !ToleratesDisrupted(p) && !stuck(p, now)
}

// WaitingEviction reports whether a pod keeps its node from being drained.
func WaitingEviction(p *cluster.Pod, now time.Time) bool { return !p.Terminal() && Drainable(p, now) }

// EvictionCost returns the cost of moving a pod: 1 for an ordinary one, more for a high priority or disruption cost, from -10 to 10.
func EvictionCost(p *cluster.Pod) float64 {
	return min(10, max(-10, 1+p.DisruptionCost/math.Pow(2, 27)+float64(p.Priority)/math.Pow(2, 25)))
}
