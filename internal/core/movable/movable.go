// Package movable answers, for one pod, the questions that draining and disruption ask: must it find another home, may
// it be evicted now, does a node have to wait for it, which PodDisruptionBudgets hold it.
//
// The answers are the rules that users know from do-not-disrupt, the disrupted taint and PodDisruptionBudgets; nothing here
// knows about nodes, prices or budgets of pools.
package movable

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/taint"
)

// stuckAfter is how long past its deletion time a terminating pod is still waited for.
const stuckAfter = time.Minute

// Terminating pods have been told to stop.
func Terminating(p *cluster.Pod) bool { return !p.Deleted.IsZero() }

// active pods are neither terminal nor terminating.
func active(p *cluster.Pod) bool { return !p.Terminal() && !Terminating(p) }

// stuck pods should have ended more than a minute ago; their kubelet is most likely gone.
func stuck(p *cluster.Pod, now time.Time) bool {
	return Terminating(p) && now.After(p.Deleted.Add(stuckAfter))
}

// Reschedulable pods need another home when their node goes. A terminating StatefulSet pod does, because a pod of the
// same name comes back; a terminating pod of a Deployment has already been replaced.
func Reschedulable(p *cluster.Pod) bool {
	return (active(p) || Terminating(p) && p.StatefulSet) && !p.DaemonSet && !p.Mirror
}

// Count returns how many of the pods need another home when their node goes.
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
	Held    bool      // the pod holds its node
	Until   time.Time // when the protection ends; zero if it does not end by itself
	Elapsed bool      // the annotation names a duration that has passed
	Invalid bool      // the annotation means nothing and is ignored
}

// Protected reads the do-not-disrupt annotation: "true" holds for ever, a positive duration holds until that
// long after the pod started, anything else is ignored. Pods that are ending are never protected.
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
	case p.Started.IsZero(): // its clock has not begun to run
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

// ToleratesDisrupted pods stay until the machine stops: evicting them is futile, they would come straight back.
func ToleratesDisrupted(p *cluster.Pod) bool {
	return taint.Tolerated(p.Class.Spec.Tolerations, &disrupted)
}

// Evictable pods may be handed to the eviction API now.
func Evictable(p *cluster.Pod, now time.Time) bool {
	return active(p) && !p.Mirror && !ToleratesDisrupted(p) && !Protected(p, now).Held
}

// Drainable pods are those whose volumes and end a draining node waits for.
func Drainable(p *cluster.Pod, now time.Time) bool {
	return !p.Mirror && !ToleratesDisrupted(p) && !stuck(p, now)
}

// WaitingEviction pods keep a node from being drained.
func WaitingEviction(p *cluster.Pod, now time.Time) bool { return !p.Terminal() && Drainable(p, now) }

// EvictionCost says how much it hurts to move a pod: 1 for an ordinary one, more for a high priority or disruption cost,
// between -10 and 10.
func EvictionCost(p *cluster.Pod) float64 {
	return min(10, max(-10, 1+p.DisruptionCost/math.Pow(2, 27)+float64(p.Priority)/math.Pow(2, 25)))
}
