package v1

import (
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/label"
)

// Labels is what the core knows about node labels. Providers add their own tables.
func Labels() label.Table {
	return label.Table{
		RestrictedDomains: []string{Group},
		Labels: []label.Label{
			{Key: NodePoolLabelKey, WellKnown: true, Owned: true,
				Doc: "The NodePool that the node belongs to."},
			{Key: CapacityTypeLabelKey, WellKnown: true, Values: []string{CapacityTypeSpot, CapacityTypeOnDemand,
				CapacityTypeReserved}, Closed: true,
				Doc: "How the machine is paid for."},
			{Key: ProvisionerLabelKey, Owned: true,
				Doc: "The Provisioner that the node's pool stands in for, where it has the annotation " + ProvisionerAnnotationKey + "."},
			{Key: NodeRegisteredLabelKey, Simulated: true,
				Doc: "On nodes whose claim's labels and taints were put on the Node."},
			{Key: NodeInitializedLabelKey, Simulated: true,
				Doc: "On nodes that are ready, with all their resources and without startup taints."},
			{Key: NodeDoNotSyncTaintsLabelKey,
				Doc: "Set by a node's own bootstrap to keep Karpenter from putting the claim's taints on it."},
			{Key: corev1.LabelTopologyZone, WellKnown: true, Aliases: []string{corev1.LabelFailureDomainBetaZone},
				Doc: "The zone of the machine."},
			{Key: corev1.LabelTopologyRegion, WellKnown: true, Aliases: []string{corev1.LabelFailureDomainBetaRegion},
				Doc: "The region of the machine."},
			{Key: corev1.LabelInstanceTypeStable, WellKnown: true, Aliases: []string{corev1.LabelInstanceType},
				Doc: "The instance type of the machine."},
			{Key: corev1.LabelArchStable, WellKnown: true, Aliases: []string{"beta.kubernetes.io/arch"},
				Doc: "The processor architecture, amd64 or arm64."},
			{Key: corev1.LabelOSStable, WellKnown: true, Aliases: []string{"beta.kubernetes.io/os"},
				Doc: "The operating system, linux or windows."},
			{Key: corev1.LabelWindowsBuild, WellKnown: true,
				Doc: "The Windows build; Linux nodes do not have it."},
			{Key: corev1.LabelHostname, Restricted: true,
				Doc: "The node's own name. Nodes that do not exist yet have none, so it cannot be asked for."},
		},
	}
}
