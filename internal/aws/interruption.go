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
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// evictAfter is how long the pods of an interrupted spot machine wait for replacements: of the two minutes' notice,
// enough is left to drain.
const evictAfter = 45 * time.Second

// evictEnding is how long they wait on a machine of a capacity block, which has ten minutes.
const evictEnding = 5 * time.Minute

// interrupted carries a message out for every claim that it concerns. Machines that are not ours are ignored.
func (p *Provider) interrupted(ctx context.Context, m interrupt.Message) error {
	if !p.claims.WaitForSync(ctx) || !p.nodes.WaitForSync(ctx) {
		return ctx.Err()
	}
	wanted := make(map[string]bool, len(m.Instances))
	for _, id := range m.Instances {
		wanted[id] = true
	}
	var errs []error // of one claim, for which the others must not wait: there may be two minutes left
	for claim := range p.claims.Each() {
		if id := instanceID(claim.Status.ProviderID); id == "" || !wanted[id] {
			continue
		}
		if err := p.interruptClaim(ctx, claim, m); err != nil {
			errs = append(errs, fmt.Errorf("NodeClaim %s: %w", claim.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) interruptClaim(ctx context.Context, claim *v1.NodeClaim, m interrupt.Message) (err error) {
	defer bug.Catch(&err, "carrying out "+string(m.Kind))
	p.tell(claim, m.Kind)
	switch m.Kind {
	case interrupt.Rebalance, interrupt.NoOp:
		return nil
	case interrupt.SpotInterrupted:
		p.stock.Mark(shortage.Pool{
			CapacityType: v1.CapacityTypeSpot, InstanceType: claim.Labels[corev1.LabelInstanceTypeStable],
			Zone: claim.Labels[corev1.LabelTopologyZone],
			Place: shortage.Place{
				Group: claim.Labels[awsv1.LabelPlacementGroupID], Partition: claim.Labels[awsv1.LabelPlacementGroupPartition],
			},
		})
	case interrupt.ReservationReclaimed:
		p.reservations.UsedUp(claim.Labels[awsv1.LabelCapacityReservationID])
	}
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if err := p.annotate(ctx, claim, deadline(claim, m)); err != nil {
		return client.IgnoreNotFound(err)
	}
	uid := claim.UID
	err = p.in.Kube.Delete(ctx, claim, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		p.tell(claim, "")
		p.in.Metrics.Disrupted(claim, string(m.Kind), "", 0)
		telemetry.Log(ctx).InfoContext(ctx, "deleting a NodeClaim because its machine is going away", "NodeClaim",
			claim.Name, "reason", string(m.Kind))
	}
	return nil
}

// deadline is the annotation that says how fast a claim must go: a machine that EC2 takes back waits a little for
// replacements, a broken one cannot be drained at all.
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
func (p *Provider) annotate(ctx context.Context, claim *v1.NodeClaim, add map[string]string) error {
	if len(add) == 0 {
		return nil
	}
	next := claim.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, add)
	return p.in.Kube.Patch(ctx, next, client.MergeFrom(claim))
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

// tell writes events for a claim and its node.
func (p *Provider) tell(claim *v1.NodeClaim, kind interrupt.Kind) {
	t, ok := tellings[kind]
	if !ok {
		return
	}
	objects := []corev1.ObjectReference{telemetry.ClaimRef(claim)}
	if node, ok := p.nodes.Get(claim.Status.NodeName); ok && claim.Status.NodeName != "" {
		objects = append(objects, telemetry.NodeRef(node))
	}
	for _, o := range objects {
		p.in.Events.Publish(telemetry.Event{Object: o, Reason: t.reason, Message: t.message, Key: []string{string(o.UID), o.Name}})
	}
}
