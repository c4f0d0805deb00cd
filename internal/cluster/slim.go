package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// slimNode returns a Node without what no decision reads, that shares with other Nodes, and with its last version, what it says like
// them. The object that came is not changed.
func (d *Draft) slimNode(old, n *corev1.Node) *corev1.Node {
	if old == nil {
		old = &corev1.Node{}
	}
	out := &corev1.Node{ObjectMeta: d.slimMeta(&old.ObjectMeta, &n.ObjectMeta)}
	out.Spec = corev1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: d.slimTaints(n.Spec.Taints)}
	out.Status = corev1.NodeStatus{
		Capacity: d.share.Amounts(n.Status.Capacity), Allocatable: d.share.Amounts(n.Status.Allocatable),
		Phase: n.Status.Phase, Conditions: slices.Clone(n.Status.Conditions),
	}
	for i := range out.Status.Conditions {
		c := &out.Status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(d.share.String(string(c.Type))),
			corev1.ConditionStatus(d.share.String(string(c.Status)))
		c.Reason, c.Message = d.share.String(c.Reason), d.share.String(c.Message)
	}
	return out
}

// slimClaim is slimNode for a claim, of which everything is read.
func (d *Draft) slimClaim(old, c *v1.NodeClaim) *v1.NodeClaim {
	if old == nil {
		old = &v1.NodeClaim{}
	}
	out := *c
	out.ObjectMeta = d.slimMeta(&old.ObjectMeta, &c.ObjectMeta)
	out.Spec.Taints, out.Spec.StartupTaints = d.slimTaints(c.Spec.Taints), d.slimTaints(c.Spec.StartupTaints)
	out.Spec.Requirements = slices.Clone(c.Spec.Requirements)
	for i := range out.Spec.Requirements {
		r := &out.Spec.Requirements[i]
		r.Key, r.Operator, r.Values = d.share.String(r.Key),
			corev1.NodeSelectorOperator(d.share.String(string(r.Operator))), d.share.Strings(r.Values)
	}
	if ref := c.Spec.NodeClassRef; ref != nil {
		out.Spec.NodeClassRef = &v1.NodeClassReference{Group: d.share.String(ref.Group),
			Kind: d.share.String(ref.Kind), Name: d.share.String(ref.Name)}
	}
	out.Spec.Resources.Requests = d.share.Amounts(c.Spec.Resources.Requests)
	out.Status.Capacity, out.Status.Allocatable = d.share.Amounts(c.Status.Capacity), d.share.Amounts(c.Status.Allocatable)
	out.Status.ImageID = d.share.String(c.Status.ImageID)
	out.Status.Conditions = d.share.Conditions(c.Status.Conditions)
	return &out
}

func (d *Draft) slimMeta(old, m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := *m
	out.ManagedFields = nil
	out.Labels, out.Annotations = d.share.Map(old.Labels, m.Labels), d.share.Map(old.Annotations, m.Annotations)
	out.Finalizers = d.share.Strings(m.Finalizers)
	out.OwnerReferences = slices.Clone(m.OwnerReferences)
	for i := range out.OwnerReferences {
		o := &out.OwnerReferences[i]
		o.APIVersion, o.Kind, o.Name = d.share.String(o.APIVersion), d.share.String(o.Kind), d.share.String(o.Name)
	}
	return out
}

func (d *Draft) slimTaints(list []corev1.Taint) []corev1.Taint {
	out := slices.Clone(list)
	for i := range out {
		t := &out[i]
		t.Key, t.Value, t.Effect = d.share.String(t.Key), d.share.String(t.Value), corev1.TaintEffect(d.share.String(string(t.Effect)))
	}
	return out
}
