package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/dedup"
)

// slimNode returns a copy of a Node without the fields that no decision reads. Its texts and lists are shared with equal ones of other
// Nodes and of its last version (old, nil if there is none).
func slimNode(share *dedup.Table, old, n *corev1.Node) *corev1.Node {
	if old == nil {
		old = &corev1.Node{}
	}
	out := &corev1.Node{ObjectMeta: slimMeta(share, &old.ObjectMeta, &n.ObjectMeta)}
	out.Spec = corev1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: slimTaints(share, n.Spec.Taints)}
	out.Status = corev1.NodeStatus{
		Capacity: share.Amounts(n.Status.Capacity), Allocatable: share.Amounts(n.Status.Allocatable),
		Phase: n.Status.Phase, Conditions: slices.Clone(n.Status.Conditions),
		NodeInfo:         corev1.NodeSystemInfo{BootID: share.String(n.Status.NodeInfo.BootID)},
		DeclaredFeatures: share.Strings(n.Status.DeclaredFeatures),
	}
	for i := range out.Status.Conditions {
		c := &out.Status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(share.String(string(c.Type))),
			corev1.ConditionStatus(share.String(string(c.Status)))
		c.Reason, c.Message = share.String(c.Reason), share.String(c.Message)
	}
	return out
}

// slimClaim returns a claim without managed fields, whose texts and lists are shared with equal ones of other objects. It keeps all
// other fields, since all are read. Maps that are equal to those in old are taken from there.
func slimClaim(share *dedup.Table, old, c *v1.NodeClaim) *v1.NodeClaim {
	if old == nil {
		old = &v1.NodeClaim{}
	}
	out := *c
	out.ObjectMeta = slimMeta(share, &old.ObjectMeta, &c.ObjectMeta)
	out.Spec.Taints, out.Spec.StartupTaints = slimTaints(share, c.Spec.Taints), slimTaints(share, c.Spec.StartupTaints)
	out.Spec.Requirements = slices.Clone(c.Spec.Requirements)
	for i := range out.Spec.Requirements {
		r := &out.Spec.Requirements[i]
		r.Key, r.Operator, r.Values = share.String(r.Key),
			corev1.NodeSelectorOperator(share.String(string(r.Operator))), share.Strings(r.Values)
	}
	if ref := c.Spec.NodeClassRef; ref != nil {
		out.Spec.NodeClassRef = &v1.NodeClassReference{Group: share.String(ref.Group),
			Kind: share.String(ref.Kind), Name: share.String(ref.Name)}
	}
	out.Spec.Resources.Requests = share.Amounts(c.Spec.Resources.Requests)
	out.Status.Capacity, out.Status.Allocatable = share.Amounts(c.Status.Capacity), share.Amounts(c.Status.Allocatable)
	out.Status.ImageID = share.String(c.Status.ImageID)
	out.Status.Conditions = share.Conditions(c.Status.Conditions)
	return &out
}

// slimMeta returns metadata without managed fields, whose texts and lists are shared like those of slimNode.
func slimMeta(share *dedup.Table, old, m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := *m
	out.ManagedFields = nil
	out.Labels, out.Annotations = share.Map(old.Labels, m.Labels), share.Map(old.Annotations, m.Annotations)
	out.Finalizers = share.Strings(m.Finalizers)
	out.OwnerReferences = slices.Clone(m.OwnerReferences)
	for i := range out.OwnerReferences {
		o := &out.OwnerReferences[i]
		o.APIVersion, o.Kind, o.Name = share.String(o.APIVersion), share.String(o.Kind), share.String(o.Name)
	}
	return out
}

func slimTaints(share *dedup.Table, list []corev1.Taint) []corev1.Taint {
	out := slices.Clone(list)
	for i := range out {
		t := &out[i]
		t.Key, t.Value, t.Effect = share.String(t.Key), share.String(t.Value), corev1.TaintEffect(share.String(string(t.Effect)))
	}
	return out
}
