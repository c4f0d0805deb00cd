package aws

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/share"
)

// A trimmer cuts objects down to what the provider reads of them, of which it keeps one copy where many say the same. Patches are
// made between two states of what is left, so they touch nothing else.
type trimmer struct{ share *share.Table }

// The labels of claims and nodes that the provider reads.
var (
	reservationLabels = []string{
		v1.CapacityTypeLabelKey, awsv1.LabelCapacityReservationID, awsv1.LabelCapacityReservationType, awsv1.LabelCapacityReservationInterruptible,
	}
	claimLabels = append([]string{v1.NodePoolLabelKey, corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone}, reservationLabels...)
	nodeLabels  = append([]string{v1.NodeRegisteredLabelKey}, reservationLabels...)
)

func (t trimmer) claim(c *v1.NodeClaim) *v1.NodeClaim {
	out := &v1.NodeClaim{ObjectMeta: t.meta(&c.ObjectMeta, claimLabels)}
	out.Annotations = t.share.Map(nil, c.Annotations)
	out.Spec.NodeClassRef, out.Spec.TerminationGracePeriod = c.Spec.NodeClassRef, c.Spec.TerminationGracePeriod
	out.Status.NodeName, out.Status.ProviderID, out.Status.ImageID = c.Status.NodeName, c.Status.ProviderID, t.share.String(c.Status.ImageID)
	out.Status.Conditions = t.share.Conditions(slices.DeleteFunc(slices.Clone(c.Status.Conditions), func(c metav1.Condition) bool {
		return c.Type != v1.ConditionTypeLaunched && c.Type != v1.ConditionTypeDrifted
	}))
	return out
}

func (t trimmer) node(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: t.meta(&n.ObjectMeta, nodeLabels)}
	out.Spec.ProviderID = n.Spec.ProviderID
	out.Status.Capacity = t.share.Amounts(corev1.ResourceList{corev1.ResourceMemory: n.Status.Capacity[corev1.ResourceMemory]})
	return out
}

func (t trimmer) meta(m *metav1.ObjectMeta, labels []string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	kept := make(map[string]string, len(labels))
	for _, key := range labels {
		if value, ok := m.Labels[key]; ok {
			kept[key] = value
		}
	}
	out.Labels = t.share.Map(nil, kept)
	return out
}
