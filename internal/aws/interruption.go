package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// evictAfter is how long the pods of an interrupted spot machine wait for replacements: of the two minutes' notice,
// enough is left to drain.
const evictAfter = 45 * time.Second

// evictEnding is how long they wait on a machine of a capacity block, which has ten minutes.
const evictEnding = 5 * time.Minute

// interrupted carries a message out for every claim that it concerns. Machines without a claim are ignored. An error
// with one claim does not delay the others: there may be only two minutes left.
func (ms *machines) interrupted(ctx context.Context, m interrupt.Message) error {
	if !ms.env.claims.WaitForSync(ctx) || !ms.env.nodes.WaitForSync(ctx) {
		return ctx.Err()
	}
	wanted := make(map[string]bool, len(m.Instances))
	for _, id := range m.Instances {
		wanted[id] = true
	}
	var errs []error // of one claim, for which the others must not wait: there may be two minutes left
	for claim := range ms.env.claims.Each() {
		if id := instanceID(claim.Status.ProviderID); id == "" || !wanted[id] {
			continue
		}
		if err := ms.interruptClaim(ctx, claim, m); err != nil {
			errs = append(errs, fmt.Errorf("NodeClaim %s: %w", claim.Name, err))
		}
	}
	return errors.Join(errs...)
}

// interruptClaim reports the message as events, marks what it says about stock, and deletes the claim so that its
// node is drained. A rebalance recommendation only makes the machine drift, and only where the settings ask for it.
func (ms *machines) interruptClaim(ctx context.Context, claim *v1.NodeClaim, m interrupt.Message) (err error) {
	defer bug.Catch(&err, "carrying out "+string(m.Kind))
	ms.env.tell(claim, m.Kind)
	switch m.Kind {
	case interrupt.NoOp:
		return nil
	case interrupt.Rebalance:
		if !ms.env.settings.ReplaceOnRebalance {
			return nil
		}
		// The machine drifts: its replacement starts first, in another pool of machines, and budgets hold.
		ms.market.stock.Mark(poolOf(claim))
		at := map[string]string{awsv1.AnnotationRebalanceRecommended: m.Time.UTC().Format(time.RFC3339)}
		return client.IgnoreNotFound(ms.env.annotate(ctx, claim, at))
	case interrupt.SpotInterrupted:
		ms.market.stock.Mark(poolOf(claim))
	case interrupt.ReservationReclaimed:
		// The other machines of the reservation stay, and its count stays right. But nothing new is launched into it.
		ms.market.stock.MarkReservation(claim.Labels[awsv1.LabelCapacityReservationID])
	}
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if err := ms.env.annotate(ctx, claim, deadline(claim, m)); err != nil {
		return client.IgnoreNotFound(err)
	}
	uid := claim.UID
	err = ms.env.in.Kube.Delete(ctx, claim, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		if m.Kind == interrupt.SpotInterrupted {
			ms.market.risks.Interrupted(offeringOf(claim))
		}
		ms.env.tell(claim, "")
		ms.env.in.Metrics.Disrupted(claim, string(m.Kind), "", 0)
		telemetry.Log(ctx).InfoContext(ctx, "deleting a NodeClaim because its machine is going away", "NodeClaim",
			claim.Name, "reason", string(m.Kind))
	}
	return nil
}

// poolOf returns how a spot machine was bought, as the list of shortages names it.
func poolOf(claim *v1.NodeClaim) shortage.Pool {
	return shortage.Pool{
		CapacityType: v1.CapacityTypeSpot, InstanceType: claim.Labels[corev1.LabelInstanceTypeStable],
		Zone: claim.Labels[corev1.LabelTopologyZone],
		Place: shortage.Place{
			Group: claim.Labels[awsv1.LabelPlacementGroupID], Partition: claim.Labels[awsv1.LabelPlacementGroupPartition],
		},
	}
}

// offeringOf returns the type and zone of a machine.
func offeringOf(claim *v1.NodeClaim) price.Pool {
	return price.Pool{Type: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone]}
}

// deadline returns the annotation that says how fast a claim must go. On a machine that EC2 takes back, pods wait a
// little for replacements; a machine that fails its checks cannot be drained at all.
func deadline(claim *v1.NodeClaim, m interrupt.Message) map[string]string {
	switch m.Kind {
	case interrupt.SpotInterrupted, interrupt.ReservationReclaimed, interrupt.ReservationEnding:
		from, wait := m.Time, evictAfter
		if from.IsZero() || from.After(time.Now()) {
			from = time.Now()
		}
		if m.Kind == interrupt.ReservationEnding {
			wait = evictEnding
		}
		return map[string]string{v1.EvictAfterAnnotationKey: from.Add(wait).UTC().Format(time.RFC3339)}
	case interrupt.InstanceStatus, interrupt.SystemStatus:
		if claim.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] == "" {
			return map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: time.Now().UTC().Format(time.RFC3339)}
		}
	}
	return nil
}

// annotate adds annotations to a claim.
func (e *environment) annotate(ctx context.Context, claim *v1.NodeClaim, add map[string]string) error {
	if len(add) == 0 {
		return nil
	}
	next := claim.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, add)
	return e.in.Kube.Patch(ctx, next, client.MergeFrom(claim))
}

var tellings = map[interrupt.Kind]struct {
	reason  telemetry.Reason
	message string
}{
	"":                             {telemetry.TerminatingOnInterruption, "the node is removed because its machine is going away"},
	interrupt.SpotInterrupted:      {telemetry.SpotInterrupted, "EC2 takes the spot machine back in two minutes"},
	interrupt.Rebalance:            {telemetry.SpotRebalanceRecommendation, "EC2 expects to take the spot machine back"},
	interrupt.Stopped:              {telemetry.InstanceStopping, "the machine was told to stop"},
	interrupt.Terminated:           {telemetry.InstanceTerminating, "the machine was told to terminate"},
	interrupt.ReservationReclaimed: {telemetry.CapacityReservationInterrupted, "the machine's capacity reservation is taken back"},
	interrupt.ReservationEnding: {telemetry.CapacityReservationInterrupted,
		"the machine's capacity block ends soon, and EC2 stops its machines half an hour before"},
	interrupt.ScheduledChange: {telemetry.InstanceUnhealthy, "AWS announced maintenance of the machine"},
	interrupt.InstanceStatus:  {telemetry.InstanceUnhealthy, "the machine fails EC2's instance status check"},
	interrupt.SystemStatus:    {telemetry.InstanceUnhealthy, "the machine's host fails EC2's system status check"},
	interrupt.EventStatus:     {telemetry.InstanceUnhealthy, "EC2 has scheduled an event for the machine"},
}

// tell publishes the events of a message for a claim and its node; "" is the deletion of the claim.
func (e *environment) tell(claim *v1.NodeClaim, kind interrupt.Kind) {
	t, ok := tellings[kind]
	if !ok {
		return
	}
	objects := []corev1.ObjectReference{telemetry.ClaimRef(claim)}
	if node, ok := e.nodes.Get(claim.Status.NodeName); ok && claim.Status.NodeName != "" {
		objects = append(objects, telemetry.NodeRef(node))
	}
	for _, o := range objects {
		e.in.Events.Publish(telemetry.Event{Object: o, Reason: t.reason, Message: t.message, Key: []string{string(o.UID), o.Name}})
	}
}
