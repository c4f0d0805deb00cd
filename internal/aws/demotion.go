package aws

import (
	"context"
	"errors"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/interrupt"
	"karpenter.sh/karpenter/internal/aws/reservation"
)

// demote changes the labels of machines whose capacity reservation has ended: EC2 lets them run on, on demand. The
// claim and its Node get the capacity type on-demand and lose the labels of the reservation.
func (ms *machines) demote(ctx context.Context) error {
	if !ms.env.claims.WaitForSync(ctx) || !ms.env.nodes.WaitForSync(ctx) {
		return nil
	}
	var reserved []*v1.NodeClaim
	for claim := range ms.env.claims.Each() {
		if claim.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved || ms.nodeReserved(claim) {
			reserved = append(reserved, claim)
		}
	}
	if len(reserved) == 0 {
		return nil
	}
	machines, err := ms.List(ctx)
	if err != nil {
		return err
	}
	capacityTypes := make(map[string]string, len(machines))
	for _, m := range machines {
		capacityTypes[m.ProviderID] = m.CapacityType
	}
	var errs []error
	for _, claim := range reserved {
		if claim.DeletionTimestamp == nil && capacityTypes[claim.Status.ProviderID] == v1.CapacityTypeOnDemand {
			errs = append(errs, ms.demoteOne(ctx, claim))
		}
	}
	return errors.Join(errs...)
}

// leaveBlocks deletes the claims on machines of capacity blocks that are about to end, while there is time to move
// their pods.
func (ms *machines) leaveBlocks(ctx context.Context) error {
	if !ms.env.claims.WaitForSync(ctx) || !ms.classes.objects.WaitForSync(ctx) {
		return nil
	}
	ending := map[string]bool{}
	for _, nc := range ms.classes.objects.All() {
		for i := range nc.Status.CapacityReservations {
			if r := &nc.Status.CapacityReservations[i]; reservation.Ending(r, time.Now()) {
				ending[r.ID] = true
			}
		}
	}
	m := interrupt.Message{Kind: interrupt.ReservationEnding}
	for claim := range ms.env.claims.Each() {
		id := instanceID(claim.Status.ProviderID)
		if id != "" && claim.DeletionTimestamp == nil &&
			claim.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved && ending[claim.Labels[awsv1.LabelCapacityReservationID]] {
			m.Instances = append(m.Instances, id)
		}
	}
	if len(m.Instances) == 0 {
		return nil
	}
	return ms.interrupted(ctx, m)
}

// nodeReserved reports whether the Node of a claim is still labelled as reserved.
func (ms *machines) nodeReserved(claim *v1.NodeClaim) bool {
	node, ok := ms.env.nodes.Get(claim.Status.NodeName)
	return ok && claim.Status.NodeName != "" && node.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved
}

// demoteOne relabels one claim, and its Node if that is registered.
func (ms *machines) demoteOne(ctx context.Context, claim *v1.NodeClaim) error {
	if claim.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved {
		next := claim.DeepCopy()
		next.Labels = demoted(claim.Labels)
		if err := ms.env.in.Kube.Patch(ctx, next, client.MergeFrom(claim)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	node, ok := ms.env.nodes.Get(claim.Status.NodeName)
	if !ok || node.Labels[v1.NodeRegisteredLabelKey] != "true" || node.Labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeReserved {
		return nil
	}
	next := &corev1.Node{ObjectMeta: *node.ObjectMeta.DeepCopy()}
	next.Labels = demoted(node.Labels)
	base := &corev1.Node{ObjectMeta: node.ObjectMeta}
	return client.IgnoreNotFound(ms.env.in.Kube.Patch(ctx, next, client.MergeFrom(base)))
}

// demoted returns the labels of a machine without those of a reservation.
func demoted(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	out[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand
	delete(out, awsv1.LabelCapacityReservationID)
	delete(out, awsv1.LabelCapacityReservationType)
	delete(out, awsv1.LabelCapacityReservationInterruptible)
	return out
}
