package aws

import (
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/catalogue"
)

// recordMemory records the memory of a node that still boots the image its class has for its type; other images may leave more
// or less memory.
func (k *market) recordMemory(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, node *corev1.Node) {
	if reason, err := k.imageDrift(nc, claim); err != nil || reason != "" {
		return
	}
	memory := node.Status.Capacity[corev1.ResourceMemory]
	k.memory.See(catalogue.Images(nc), claim.Labels[corev1.LabelInstanceTypeStable], memory.Value())
}
