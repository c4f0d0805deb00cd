package aws

import (
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/catalogue"
)

// see records the memory of a node that booted an image which its class still has for its type.
func (k *market) see(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, node *corev1.Node) {
	if reason, err := k.imageDrift(nc, claim); err != nil || reason != "" {
		return
	}
	memory := node.Status.Capacity[corev1.ResourceMemory]
	k.memory.See(catalogue.Images(nc), claim.Labels[corev1.LabelInstanceTypeStable], memory.Value())
}
