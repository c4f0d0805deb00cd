package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/kit/sleep"
)

// drifted compares a claim and its machine with the claim's class, and returns the first difference. A claim whose
// class is gone has not drifted.
func (ms *machines) drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	if claim.Spec.NodeClassRef == nil || !ms.classes.objects.WaitForSync(ctx) {
		return "", ctx.Err()
	}
	nc, ok, err := ms.classes.checkedClass(ctx, claim.Spec.NodeClassRef.Name)
	if !ok || err != nil {
		return "", err
	}
	if claim.Annotations[awsv1.AnnotationRebalanceRecommended] != "" && ms.env.settings.ReplaceOnRebalance {
		return awsv1.DriftReasonRebalance, nil
	}
	if drift.Static(class.Stored(nc.Annotations), class.Stored(claim.Annotations)) {
		return awsv1.DriftReasonNodeClass, nil
	}
	if reason, err := ms.market.imageDrift(nc, claim); reason != "" || err != nil {
		return reason, err
	}
	if ms.market.shifted(claim.Status.ProviderID) {
		return "", fmt.Errorf("claim %s: %w", claim.Name, errShifted)
	}
	id := instanceID(claim.Status.ProviderID)
	if id == "" {
		return "", fmt.Errorf("claim %s has no machine", claim.Name)
	}
	i, err := ms.fleet.Describe(ctx, id)
	switch {
	case errors.Is(err, fleet.ErrGone):
		return "", cloud.ErrNotFound
	case errors.Is(err, fleet.ErrUnknown):
		if _, young := ms.launches.machines.Get(id); young {
			return "", nil // EC2 does not show it yet; it is as new as can be
		}
		return "", cloud.ErrNotFound
	case err != nil:
		return "", err
	}
	if reason, err := instanceDrift(nc, i, ms.capacityType(i) == v1.CapacityTypeReserved); reason != "" || err != nil {
		return reason, err
	}
	return groupDrift(nc, claim)
}

// groupDrift compares the placement group that a claim was launched into with that of its class.
func groupDrift(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	want := ""
	if g := nc.Status.PlacementGroup; g != nil {
		want = g.ID
	} else if nc.Spec.PlacementGroupSelector != nil {
		return "", fmt.Errorf("EC2NodeClass %s has not found its placement group", nc.Name) // replacements could not be launched
	}
	if claim.Labels[awsv1.LabelPlacementGroupID] != want {
		return awsv1.DriftReasonPlacementGroup, nil
	}
	return "", nil
}

// checkedClass returns a class once its status is about its present generation: only then is it known what a change
// of the class means. It waits some seconds for that. ok is false if there is no such class.
func (c *classes) checkedClass(ctx context.Context, name string) (nc *awsv1.EC2NodeClass, ok bool, err error) {
	for wait := firstWait; ; wait *= 2 {
		if nc, ok = c.objects.Get(name); !ok || classChecked(nc) {
			return nc, ok, nil
		}
		if wait > lastWait || !sleep.For(ctx, wait) {
			return nil, true, fmt.Errorf("EC2NodeClass %s was changed and is not checked yet", name)
		}
	}
}

// classChecked reports whether a class's Ready condition is about its present generation.
func classChecked(nc *awsv1.EC2NodeClass) bool {
	ready := condition.Get(nc, awsv1.ConditionTypeReady)
	return ready != nil && ready.ObservedGeneration == nc.Generation
}

// imageDrift compares the image that the claim's machine booted with the image that its type would boot now.
func (k *market) imageDrift(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	name := claim.Labels[corev1.LabelInstanceTypeStable]
	switch {
	case len(nc.Status.AMIs) == 0:
		return "", fmt.Errorf("EC2NodeClass %s has no images", nc.Name)
	case claim.Status.ImageID == "" || name == "":
		return "", fmt.Errorf("claim %s does not say its image and instance type", claim.Name)
	}
	catalog, err := k.catalogues.Catalog(nc)
	if err != nil {
		return "", err
	}
	it := typeNamed(catalog, name)
	if it == nil {
		return "", fmt.Errorf("claim %s: EC2 has no instance type %s", claim.Name, name)
	}
	if image, ok := ami.For(nc.Status.AMIs, it.Labels); !ok || image.ID != claim.Status.ImageID {
		return awsv1.DriftReasonAMI, nil
	}
	return "", nil
}

// instanceDrift compares a running instance with its class. The reservation counts only for machines that were
// launched into it (reserved), not for those that EC2 put into an open one by chance.
func instanceDrift(nc *awsv1.EC2NodeClass, i ec2types.Instance, reserved bool) (cloud.DriftReason, error) {
	if len(nc.Status.SecurityGroups) == 0 || len(nc.Status.Subnets) == 0 {
		return "", fmt.Errorf("EC2NodeClass %s has no security groups or no subnets", nc.Name)
	}
	switch {
	case !slices.Equal(groupsOf(i), classGroups(nc)):
		return awsv1.DriftReasonSecurityGroup, nil
	case !slices.ContainsFunc(nc.Status.Subnets, func(s awsv1.Subnet) bool { return s.ID == aws.ToString(i.SubnetId) }):
		return awsv1.DriftReasonSubnet, nil
	}
	id := aws.ToString(i.CapacityReservationId)
	if reserved && !slices.ContainsFunc(nc.Status.CapacityReservations, func(r awsv1.CapacityReservation) bool { return r.ID == id }) {
		return awsv1.DriftReasonCapacityReservation, nil
	}
	return "", nil
}

// groupsOf returns the security groups of an instance, sorted.
func groupsOf(i ec2types.Instance) []string {
	var out []string
	for _, g := range i.SecurityGroups {
		out = append(out, aws.ToString(g.GroupId))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// classGroups returns the security groups of a class, sorted.
func classGroups(nc *awsv1.EC2NodeClass) []string {
	var out []string
	for _, g := range nc.Status.SecurityGroups {
		out = append(out, g.ID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
