package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/protection"
	"karpenter.sh/karpenter/internal/core/evict"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// forceful is the reason of evictions without a known reason, for example if a user deleted the node.
const forceful = "Forceful Termination"

// expired is the reason of evictions from a node that is older than expireAfter.
const expired = "Expired"

// maxNamed is how many volumes an event names.
const maxNamed = 5

func (l *Loop) reportDeadline(node *corev1.Node, deadline time.Time) {
	if deadline.IsZero() {
		return
	}
	l.Events.Tell(telemetry.Refs(node, nil), telemetry.TerminationGracePeriodEnding,
		fmt.Sprintf("All pods will be deleted by %s", deadline.Format(time.RFC3339)))
}

// reportDraining publishes an event with the number of pods that are left and the name of one: a protected pod if there is one, because a
// user has to act on it.
func (l *Loop) reportDraining(node *corev1.Node, plan evict.Plan, now time.Time) {
	p, why := plan.Waiting[0], ""
	if i := slices.IndexFunc(plan.Waiting, func(p *cluster.Pod) bool { return movable.Protected(p, now).Held }); i >= 0 {
		p, why = plan.Waiting[i], ", which is protected by its annotation "+v1.DoNotDisruptAnnotationKey
		if p.DoNotEvict {
			why = ", which is protected by its annotation " + v1.DoNotEvictAnnotationKey
		}
	}
	l.Events.Tell(telemetry.Refs(node, nil), telemetry.FailedDraining,
		fmt.Sprintf("%d pods are left to leave the node, such as %s/%s%s", len(plan.Waiting), p.Namespace, p.Name, why))
}

// reportProtections publishes events that explain do-not-disrupt annotations of the pods that are left.
func (l *Loop) reportProtections(waiting []*cluster.Pod, now time.Time) {
	for _, p := range waiting {
		if e, ok := protection.Event(p, now); ok {
			l.Events.Publish(e)
		}
	}
}

func (l *Loop) reportRefused(node *corev1.Node, p *cluster.Pod, why string) {
	l.Events.Tell(telemetry.Refs(node, nil), telemetry.FailedDraining, fmt.Sprintf("Pod %s/%s cannot be evicted: %s",
		p.Namespace, p.Name, why), p.Namespace, p.Name)
}

func (l *Loop) reportVolumes(node *corev1.Node, names []string) {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	l.Events.Tell(telemetry.Refs(node, nil), telemetry.AwaitingVolumeDetachment, "Waiting for volumes to be detached: "+text)
}

// reportEvicted reports an accepted eviction: metric, journal, and an event on the pod.
func (l *Loop) reportEvicted(j job, p *cluster.Pod) {
	reason := reasonOf(j.claim)
	l.Metrics.PodsDrained.WithLabelValues(reason).Inc()
	l.record(j, p, reason)
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.Evicted, Key: []string{p.Name},
		Message: "Evicted pod: " + reason,
	})
}

// reportForced reports the deletion of a pod because of the node's deadline: metric, journal, and an event on the pod.
func (l *Loop) reportForced(j job, d evict.Deletion) {
	p := d.Pod
	reason := reasonOf(j.claim)
	l.record(j, p, reason)
	l.Metrics.PodsDrained.WithLabelValues(reason).Inc()
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.Disrupted, Key: []string{p.Name},
		Message: fmt.Sprintf("Deleting the pod with %s of grace, because its node must be gone by %s", d.Grace,
			j.deadline.Format(time.RFC3339)),
	})
}

// record adds an eviction or deletion to the journal.
func (l *Loop) record(j job, p *cluster.Pod, reason string) {
	r := journal.Record{
		Act: journal.Evicted, Loop: name, Reason: reason, Evictions: 1,
		About: []journal.Object{{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, {Kind: "Node", Name: j.row.Name}},
	}
	if j.claim != nil {
		r.About = append(r.About, journal.Object{Kind: "NodeClaim", Name: j.claim.Name})
	}
	l.Journal.Add(r)
}

// reasonOf returns why the node of a claim goes, for metrics, journal and events.
func reasonOf(claim *v1.NodeClaim) string {
	if claim != nil {
		if claim.Annotations[v1.EvictAfterAnnotationKey] != "" {
			return journal.Interrupted
		}
		if c := condition.Get(claim, v1.ConditionTypeDisruptionReason); c != nil && c.Reason != "" {
			return c.Reason
		}
		if at, ok := lifecycle.Expiry(claim); ok && claim.DeletionTimestamp != nil && !claim.DeletionTimestamp.Time.Before(at) {
			return expired
		}
	}
	return forceful
}

func (l *Loop) reportDrained(node *corev1.Node) {
	l.Metrics.NodesDrained.WithLabelValues(node.Labels[v1.NodePoolLabelKey]).Inc()
}

func (l *Loop) reportReleased(ctx context.Context, node *corev1.Node) {
	pool := node.Labels[v1.NodePoolLabelKey]
	telemetry.Log(ctx).Info("deleted node", "Node", node.Name)
	l.Metrics.NodesTerminated.WithLabelValues(pool, node.Labels[corev1.LabelTopologyZone]).Inc()
	l.Metrics.NodeTermination.WithLabelValues(pool).Observe(time.Since(node.DeletionTimestamp.Time).Seconds())
	l.Metrics.NodeLifetime.WithLabelValues(pool).Observe(time.Since(node.CreationTimestamp.Time).Seconds())
}
