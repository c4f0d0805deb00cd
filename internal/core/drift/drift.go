package drift

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/need"
)

// Reason says why the claim no longer is what its pool asks for: v1.ReasonNodePoolDrifted, v1.ReasonRequirementsDrifted, or ""
// if it still is. The shell asks InstanceTypeGone and the provider afterwards; the first answer wins.
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

// Stored reads the stamp of a pool from annotations, the pool's own or a claim's. What is missing is "".
func Stored(annotations map[string]string) Stamp {
	return Stamp{
		Hash:    annotations[v1.NodePoolHashAnnotationKey],
		Version: annotations[v1.NodePoolHashVersionAnnotationKey],
	}
}

// Static reports whether two stamps are known to differ. Stamps that are incomplete or of different versions cannot be compared,
// and what cannot be compared has not drifted.
func Static(owner, claim Stamp) bool {
	if owner.Hash == "" || owner.Version == "" || claim.Hash == "" || owner.Version != claim.Version {
		return false
	}
	return owner.Hash != claim.Hash
}

// Satisfied reports whether labels satisfy every requirement. MinValues are about launching and do not count here.
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

// InstanceTypeGone reports whether nothing like the claim's machine can be had any more: its label names no type, or a type that
// the catalogue does not know, or no offering of the type agrees with the claim's labels. Whether an offering is available
// just now does not matter. The machine of a reserved claim may run on after its reservation as an on-demand one, so both
// kinds of offering count for it, whatever the reservation.
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
