package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// What happens to claims is reported in log lines that operators search for, in events and in counters.

// reportLaunched logs a launch and adds it to the journal, with the price if that is known.
func (l *Loop) reportLaunched(ctx context.Context, claim *v1.NodeClaim, m cloud.Machine) {
	telemetry.Log(ctx).Info("launched nodeclaim", "NodeClaim", claim.Name, "provider-id", m.ProviderID, "instance-type", m.InstanceType,
		"zone", m.Zone, "capacity-type", m.CapacityType, "allocatable", m.Allocatable)
	price := l.price(ctx, claim, m)
	text := fmt.Sprintf("bought %s in %s as %s", m.InstanceType, m.Zone, m.CapacityType)
	if price > 0 {
		text += fmt.Sprintf(" at $%.4f an hour", price)
	}
	l.Journal.Add(journal.Record{
		Act: journal.Launched, Loop: lifeName, About: about(claim), PricePerHour: price, Text: text + ": " + m.ProviderID,
		Chosen: []journal.Option{{Pool: claim.Labels[v1.NodePoolLabelKey], Type: m.InstanceType, Zone: m.Zone,
			CapacityType: m.CapacityType, PricePerHour: price}},
	})
}

// price returns what a machine costs now in dollars an hour, with the NodeOverlays of its pool, 0 if that is not known.
func (l *Loop) price(ctx context.Context, claim *v1.NodeClaim, m cloud.Machine) float64 {
	pool := cluster.Pools.Get(l.Store.Snapshot(), claim.Labels[v1.NodePoolLabelKey])
	if pool == nil {
		return 0
	}
	c, err := l.Cloud.Catalog(ctx, pool)
	if err != nil {
		return 0
	}
	if l.Corrected != nil {
		c = l.Corrected(ctx, pool.Name, c)
	}
	price, _ := c.Price(map[string]string{corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone,
		v1.CapacityTypeLabelKey: m.CapacityType})
	return price.Dollars()
}

// reportLaunchFailed logs a failed launch and adds it to the journal. The kind of error decides about the event: of missing capacity the
// waiting pods hear too.
func (l *Loop) reportLaunchFailed(ctx context.Context, claim *v1.NodeClaim, err error) {
	telemetry.Log(ctx).Error("failed launching nodeclaim", "NodeClaim", claim.Name, "error", err)
	cause, message := causeOf(err)
	l.Journal.Add(journal.Record{Act: journal.FellBack, Loop: lifeName, About: about(claim), Reason: cause, Text: message})
	if dry, ok := errors.AsType[*cloud.NoCapacityError](err); ok {
		l.Events.Tell(append(telemetry.Refs(nil, claim), l.podsOf(claim)...), telemetry.InsufficientCapacity,
			fmt.Sprintf("The cloud has no machine for NodeClaim %s now: %v", claim.Name, dry.Err))
		return
	}
	if unready, ok := errors.AsType[*cloud.ClassNotReadyError](err); ok {
		l.Events.Tell(telemetry.Refs(nil, claim), telemetry.NodeClassNotReady, unready.Error())
		return
	}
	l.Events.Tell(telemetry.Refs(nil, claim), telemetry.LaunchFailed, strings.TrimPrefix(cause+": "+message, ": "), cause)
}

// podsOf names the pods that wait for the machine of a claim.
func (l *Loop) podsOf(claim *v1.NodeClaim) (out []corev1.ObjectReference) {
	snap := l.Store.Snapshot()
	for p := range snap.Unbound() {
		if seat, ok := snap.Planned(p.PodKey); ok && seat.Target == claim.Name {
			out = append(out, telemetry.PodRef(p.Namespace, p.Name, p.UID))
		}
	}
	return out
}

// causeOf returns a short reason why the cloud gave no machine, "" if it gave none, and the message of the error.
func causeOf(err error) (cause, message string) {
	if dry, ok := errors.AsType[*cloud.NoCapacityError](err); ok {
		return string(telemetry.InsufficientCapacity), fmt.Sprint(dry.Err)
	}
	if unready, ok := errors.AsType[*cloud.ClassNotReadyError](err); ok {
		return string(telemetry.NodeClassNotReady), unready.Error()
	}
	if refused, ok := errors.AsType[*cloud.LaunchError](err); ok {
		return refused.Reason, refused.Message
	}
	return "", err.Error()
}

// about lists the objects that a journal record about a claim is found by.
func about(claim *v1.NodeClaim) []journal.Object {
	return []journal.Object{{Kind: "NodeClaim", Name: claim.Name}, {Kind: "NodePool", Name: claim.Labels[v1.NodePoolLabelKey]}}
}

func (l *Loop) reportRegistered(ctx context.Context, claim *v1.NodeClaim, node *corev1.Node) {
	telemetry.Log(ctx).Info("registered nodeclaim", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID, "Node", node.Name)
	l.Metrics.NodesCreated.WithLabelValues(claim.Labels[v1.NodePoolLabelKey], node.Labels[corev1.LabelTopologyZone]).Inc()
}

func (l *Loop) reportTaintMissing(ctx context.Context, claim *v1.NodeClaim, node *corev1.Node) {
	telemetry.Log(ctx).Error("node joined without the unregistered taint", "NodeClaim", claim.Name, "Node", node.Name)
	l.Events.Tell(telemetry.Refs(nil, claim), telemetry.UnregisteredTaintMissing, fmt.Sprintf(
		"Node %s joined without the taint %s. Pods may have started before it was labelled; make its kubelet register with the taint.",
		node.Name, v1.UnregisteredTaintKey))
}

func (l *Loop) reportInitialized(ctx context.Context, claim *v1.NodeClaim, node *corev1.Node) {
	telemetry.Log(ctx).Info("initialized nodeclaim", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID, "Node", node.Name,
		"allocatable", node.Status.Allocatable)
}

// reportDeleted logs and counts a claim that the controller deleted. pods is the number of pods that have to find another node.
func (l *Loop) reportDeleted(ctx context.Context, claim *v1.NodeClaim, reason lifecycle.Reason, pods int) {
	telemetry.Log(ctx).Info("deleting nodeclaim", "NodeClaim", claim.Name, "reason", string(reason), "pods", pods)
	l.Metrics.Disrupted(claim, string(reason), "", pods)
}

// reportExpired publishes an event on the claim and on its Node.
func (l *Loop) reportExpired(row *cluster.Node) {
	message := fmt.Sprintf("disrupting the node: Expired, it is older than expireAfter (%s)", row.Claim.Spec.ExpireAfter.Duration)
	l.Events.Tell(telemetry.Refs(row.Node, row.Claim), telemetry.DisruptionTerminating, message)
}

func (l *Loop) reportDeadline(ctx context.Context, claim *v1.NodeClaim, deadline time.Time) {
	telemetry.Log(ctx).Info("annotated nodeclaim", "NodeClaim", claim.Name,
		v1.NodeClaimTerminationTimestampAnnotationKey, deadline.Format(time.RFC3339))
	l.Events.Tell(telemetry.Refs(nil, claim), telemetry.TerminationGracePeriodEnding,
		fmt.Sprintf("All pods will be deleted by %s", deadline.Format(time.RFC3339)))
}

// reportEnded logs and counts a claim that is gone, and measures how long its end and the end of its machine took.
func (l *Loop) reportEnded(ctx context.Context, claim *v1.NodeClaim) {
	pool := claim.Labels[v1.NodePoolLabelKey]
	telemetry.Log(ctx).Info("deleted nodeclaim", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID,
		"Node", claim.Status.NodeName)
	l.Metrics.NodeClaimsTerminated.WithLabelValues(pool, claim.Labels[v1.CapacityTypeLabelKey],
		claim.Labels[corev1.LabelTopologyZone]).Inc()
	l.Metrics.NodeClaimTermination.WithLabelValues(pool).Observe(time.Since(claim.DeletionTimestamp.Time).Seconds())
	if stopping := condition.Get(claim, v1.ConditionTypeInstanceTerminating); stopping != nil {
		l.Metrics.NodeClaimInstanceTermination.WithLabelValues(pool).Observe(time.Since(stopping.LastTransitionTime.Time).Seconds())
	}
}

func (l *Loop) reportInconsistent(ctx context.Context, claim *v1.NodeClaim, issue string) {
	telemetry.Log(ctx).Error("nodeclaim and node are inconsistent", "NodeClaim", claim.Name, "issue", issue)
	l.Events.Tell(telemetry.Refs(nil, claim), telemetry.FailedConsistencyCheck, issue, issue)
}
