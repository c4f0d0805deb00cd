package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// podEventQuiet is the time within which pod events of one claim count as one, which saves writes.
const podEventQuiet = 10 * time.Second

// Consolidatable sets or clears the condition by which consolidation knows that a claim has been quiet for long enough.
// It returns when to look again, zero for never.
func Consolidatable(claim *v1.NodeClaim, pool *v1.NodePool, now time.Time) (again time.Time) {
	quiet := pool.Spec.Disruption.ConsolidateAfter.Duration
	initialized := condition.Get(claim, v1.ConditionTypeInitialized)
	if pool.IsStatic() || quiet == nil || initialized == nil || initialized.Status != "True" {
		condition.Clear(claim, v1.ConditionTypeConsolidatable, now)
		return time.Time{}
	}
	since := initialized.LastTransitionTime.Time
	if !claim.Status.LastPodEventTime.IsZero() {
		since = claim.Status.LastPodEventTime.Time
	}
	if at := since.Add(*quiet); now.Before(at) {
		condition.Clear(claim, v1.ConditionTypeConsolidatable, now)
		return at
	}
	condition.SetTrue(claim, v1.ConditionTypeConsolidatable, now)
	return time.Time{}
}

// PodEvent returns when a pod was last bound to the machine, ended on it or began to leave it. It returns zero if that is not at least
// podEventQuiet later than the time on the claim. was is the row at the last look, nil at the first: then only the times that are written
// on pods count, so that a restart is not an event. Pods of DaemonSets do not count.
func PodEvent(was, is *cluster.Node, now time.Time) time.Time {
	var at time.Time
	for _, p := range is.Pods {
		if p.DaemonSet {
			continue
		}
		at = ztime.Later(at, p.Scheduled)
		if !p.Deleted.IsZero() {
			at = ztime.Later(at, p.Deleted.Add(-p.Grace))
		}
	}
	if was != nil && anyEnded(was.Pods, is.Pods) {
		at = ztime.Later(at, now)
	}
	if at.After(now) {
		at = now
	}
	if last := is.Claim.Status.LastPodEventTime.Time; !at.After(last.Add(podEventQuiet)) {
		return time.Time{}
	}
	return at
}

// anyEnded reports whether a pod of the list before is missing in now. Both are sorted. Pods that were being deleted do not count, because
// the beginning of that was an event already; nor do pods of DaemonSets.
func anyEnded(before, now []*cluster.Pod) bool {
	for _, p := range before {
		for len(now) > 0 && now[0].PodKey.Compare(p.PodKey) < 0 {
			now = now[1:]
		}
		if there := len(now) > 0 && now[0].PodKey == p.PodKey; !there && !p.DaemonSet && p.Deleted.IsZero() {
			return true
		}
	}
	return false
}

// An Inconsistency is a resource of which a node has less than what was launched for its claim.
type Inconsistency struct {
	Resource       corev1.ResourceName
	Have, Expected resource.Quantity
}

// Inconsistencies returns the requested resources of which a node has less than nine tenths of what was expected, then cpu and memory if it
// reports more of them than its machine can have. Nodes that are not initialized, or whose claim is being deleted, have none.
func Inconsistencies(claim *v1.NodeClaim, node *corev1.Node) []Inconsistency {
	if claim.DeletionTimestamp != nil || !condition.IsTrue(claim, v1.ConditionTypeInitialized) {
		return nil
	}
	var out []Inconsistency
	for _, name := range sortedNames(claim.Spec.Resources.Requests) {
		requested, expected, have := claim.Spec.Resources.Requests[name], claim.Status.Capacity[name], node.Status.Capacity[name]
		if requested.IsZero() || expected.IsZero() {
			continue
		}
		if have.AsApproximateFloat64() < 0.9*expected.AsApproximateFloat64() {
			out = append(out, Inconsistency{name, have, expected})
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		most, limited := cluster.Believable(claim, name)
		have, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		if have.Cmp(allocatable) < 0 {
			have = allocatable
		}
		if limited && have.Cmp(most) > 0 {
			out = append(out, Inconsistency{name, have, claim.Status.Capacity[name]})
		}
	}
	return out
}
