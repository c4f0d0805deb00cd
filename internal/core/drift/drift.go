package drift

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/need"
)

// Reason returns why the claim does not match its pool: v1.ReasonNodePoolDrifted, v1.ReasonRequirementsDrifted, or "" if it does. If it
// does, callers then ask InstanceTypeGone and the provider.
func Reason(pool *v1.NodePool, claim *v1.NodeClaim, known *label.Vocabulary) string {
	switch {
	case Static(Stored(pool.Annotations), Stored(claim.Annotations)):
		return v1.ReasonNodePoolDrifted
	case !Satisfied(pool.Spec.Template.Spec.Requirements, claim.Labels, known):
		return v1.ReasonRequirementsDrifted
	default:
		return ""
	}
}

// Stored reads the stamp of a pool from the annotations of the pool or of a claim. A missing part is "".
func Stored(annotations map[string]string) Stamp {
	return Stamp{
		Hash:    annotations[v1.NodePoolHashAnnotationKey],
		Version: annotations[v1.NodePoolHashVersionAnnotationKey],
	}
}

// Static reports whether the stamps of a pool and of its claim show that the claim has drifted. Stamps that are incomplete or of different
// versions cannot be compared and show no drift.
func Static(owner, claim Stamp) bool {
	if owner.Hash == "" || owner.Version == "" || claim.Hash == "" || owner.Version != claim.Version {
		return false
	}
	return owner.Hash != claim.Hash
}

// Satisfied reports whether labels satisfy every requirement. It ignores minValues, which are about launches.
func Satisfied(requirements []v1.NodeSelectorRequirementWithMinValues, labels map[string]string, known *label.Vocabulary) bool {
	for i := range requirements {
		r := &requirements[i]
		value, ok := labels[known.Normalize(r.Key)]
		if !ok {
			value, ok = labels[r.Key]
		}
		if s := need.Set(r); ok && !s.Has(value) || !ok && !s.HasAbsent() {
			return false
		}
	}
	return true
}

// InstanceTypeGone reports whether a machine like the claim's is no longer sold: its label names no type that the catalogue has, or no
// offering of the type agrees with the claim's labels. Offerings without capacity at the moment count as well. A machine may outlive its
// reservation as an on-demand one, so a reserved claim agrees with on-demand offerings, and with any reservation.
func InstanceTypeGone(claim *v1.NodeClaim, catalog *cloud.Catalog, known *label.Vocabulary) bool {
	name := claim.Labels[corev1.LabelInstanceTypeStable]
	i := slices.IndexFunc(catalog.Types, func(t *cloud.InstanceType) bool { return t.Name == name })
	if name == "" || i < 0 {
		return true
	}
	return !slices.ContainsFunc(catalog.Types[i].Offerings, func(o cloud.Offering) bool { return agrees(claim.Labels, &o, known) })
}

// agrees reports whether an offering could have produced the claim's labels.
func agrees(labels map[string]string, o *cloud.Offering, known *label.Vocabulary) bool {
	reserved := labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved
	for key, offered := range o.Labels {
		if reserved && known.Reservation(key) {
			continue
		}
		have, ok := labels[key]
		if !ok || have == offered {
			continue
		}
		if reserved && key == v1.CapacityTypeLabelKey && offered == v1.CapacityTypeOnDemand {
			continue
		}
		return false
	}
	return true
}
