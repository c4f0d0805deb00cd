package class

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/drift"
)

// An Edit is a change of a node class before it is applied. It predicts which machines drift without asking the
// cloud: from what the present class has found, and from selectors that name ids. What other selectors will find only
// the cloud knows.
type Edit struct {
	from, to *awsv1.EC2NodeClass
	static   bool // something changed that goes into a machine at launch, so all machines drift
}

// NewEdit compares a class in the cluster with its new version.
func NewEdit(from, to *awsv1.EC2NodeClass) *Edit {
	// The bundle of the cluster is the same before and after.
	before, err := stampOf(from, "")
	after, bad := stampOf(to, "")
	return &Edit{from: from, to: to, static: err == nil && bad == nil && before != after}
}

// Drifts returns why a machine drifts by the edit, "" if it does not. If it is not sure, it depends on what the cloud
// has. A machine that has drifted already returns "", because it goes without the edit.
func (e *Edit) Drifts(claim *v1.NodeClaim) (reason cloud.DriftReason, sure bool) {
	if drift.Static(Stored(e.from.Annotations), Stored(claim.Annotations)) {
		return "", true
	}
	if e.static {
		return awsv1.DriftReasonNodeClass, true
	}
	for _, part := range []struct {
		reason cloud.DriftReason
		effect func(*v1.NodeClaim) effect
	}{
		{awsv1.DriftReasonAMI, e.image}, {awsv1.DriftReasonSecurityGroup, e.groups}, {awsv1.DriftReasonSubnet, e.subnet},
		{awsv1.DriftReasonCapacityReservation, e.reservation},
	} {
		switch part.effect(claim) {
		case goes:
			return part.reason, true
		case perhaps:
			reason = cmp.Or(reason, part.reason)
		}
	}
	return reason, reason == ""
}

// An effect is what one kind of selector does to a machine: it stays, may go, or goes.
type effect int

const (
	stays effect = iota
	perhaps
	goes
)

// among judges a machine whose subnet, image or the like is own ("" if unknown), by the ids that selectors name; all
// says that they select nothing else. If own is not named and other things are selected too, the machine may stay.
func among(own string, named []string, all bool) effect {
	switch {
	case own != "" && slices.Contains(named, own):
		return stays
	case own != "" && all:
		return goes
	}
	return perhaps
}

// image judges by the image that the machine booted.
func (e *Edit) image(claim *v1.NodeClaim) effect {
	terms := e.to.Spec.AMISelectorTerms
	if equality.Semantic.DeepEqual(e.from.Spec.AMISelectorTerms, terms) {
		return stays
	}
	own := claim.Status.ImageID
	if alias := e.to.Alias(); alias != nil {
		return e.release(own, alias)
	}
	named, all := ids(terms, func(t awsv1.AMISelectorTerm) string { return t.ID })
	out := among(own, named, all)
	if out == stays && len(terms) > 1 {
		return perhaps // of several images the newest counts
	}
	return out
}

// release judges an image where the new alias names a release: by the version in the image's name.
func (e *Edit) release(image string, alias *awsv1.Alias) effect {
	at := slices.IndexFunc(e.from.Status.AMIs, func(a awsv1.AMI) bool { return a.ID == image })
	if at < 0 || alias.Version == awsv1.AliasVersionLatest || e.from.Status.AMIs[at].Name == "" {
		return perhaps
	}
	if slices.Contains(strings.Split(e.from.Status.AMIs[at].Name, "-"), "v"+strings.TrimPrefix(alias.Version, "v")) {
		return stays
	}
	return goes
}

// groups judges by the security groups of all machines of the class.
func (e *Edit) groups(*v1.NodeClaim) effect {
	if equality.Semantic.DeepEqual(e.from.Spec.SecurityGroupSelectorTerms, e.to.Spec.SecurityGroupSelectorTerms) {
		return stays
	}
	named, all := ids(e.to.Spec.SecurityGroupSelectorTerms, func(t awsv1.SecurityGroupSelectorTerm) string { return t.ID })
	var own []string
	for _, g := range e.from.Status.SecurityGroups {
		own = append(own, g.ID)
	}
	slices.Sort(own)
	switch {
	case len(own) == 0 || !all:
		return perhaps
	case slices.Equal(own, named):
		return stays
	}
	return goes
}

// subnet judges by the subnets of the machine's zone, one of which is its own.
func (e *Edit) subnet(claim *v1.NodeClaim) effect {
	if equality.Semantic.DeepEqual(e.from.Spec.SubnetSelectorTerms, e.to.Spec.SubnetSelectorTerms) {
		return stays
	}
	named, all := ids(e.to.Spec.SubnetSelectorTerms, func(t awsv1.SubnetSelectorTerm) string { return t.ID })
	effects := map[effect]bool{}
	for _, s := range e.from.Status.Subnets {
		if s.Zone == claim.Labels[corev1.LabelTopologyZone] {
			effects[among(s.ID, named, all)] = true
		}
	}
	if len(effects) != 1 {
		return perhaps
	}
	switch {
	case effects[stays]:
		return stays
	case effects[goes]:
		return goes
	}
	return perhaps
}

// reservation judges machines that were launched into a capacity reservation.
func (e *Edit) reservation(claim *v1.NodeClaim) effect {
	own := claim.Labels[awsv1.LabelCapacityReservationID]
	if own == "" || equality.Semantic.DeepEqual(e.from.Spec.CapacityReservationSelectorTerms, e.to.Spec.CapacityReservationSelectorTerms) {
		return stays
	}
	named, all := ids(e.to.Spec.CapacityReservationSelectorTerms, func(t awsv1.CapacityReservationSelectorTerm) string { return t.ID })
	return among(own, named, all)
}

// ids returns the ids that terms name, sorted, and whether they select nothing else.
func ids[T any](terms []T, of func(T) string) (named []string, all bool) {
	all = true
	for _, t := range terms {
		if id := of(t); id != "" {
			named = append(named, id)
		} else {
			all = false
		}
	}
	slices.Sort(named)
	return slices.Compact(named), all
}
