package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// NodeClaim is one machine that Karpenter asks the cloud for, and its life until it is gone.
//
// +kubebuilder:resource:path=nodeclaims,singular=nodeclaim,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="karpenter.sh/v1beta1 NodeClaim is kept as karpenter.sh/v1"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".metadata.labels.node\\.kubernetes\\.io/instance-type",description="Instance type"
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels.topology\\.kubernetes\\.io/zone",description="Zone of the machine"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName",description="Node that the machine became"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the node is launched, registered and initialized"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Capacity",type="string",JSONPath=".metadata.labels.karpenter\\.sh/capacity-type",priority=1,description="Capacity type: spot, on-demand or reserved"
// +kubebuilder:printcolumn:name="NodePool",type="string",JSONPath=".metadata.labels.karpenter\\.sh/nodepool",priority=1,description="Pool that the claim belongs to"
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.nodeClassRef.name",priority=1,description="Node class that the machine is built from"
type NodeClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
	// +required
	Spec NodeClaimSpec `json:"spec"`
	// Status is what became of it.
	// +optional
	Status v1.NodeClaimStatus `json:"status,omitempty"`
}

// NodeClaimSpec is what is asked of the cloud.
type NodeClaimSpec struct {
	// Taints of the node.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the node when it joins and are expected to be taken off by something else.
	// +karpenter:taints
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements that the machine must satisfy: those of the pool and of the pods that it is for.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +required
	Requirements []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
	// Resources that the machine must have at least.
	// +optional
	Resources v1.ResourceRequirements `json:"resources,omitempty,omitzero"`
	// Kubelet is the kubelet's configuration.
	// +optional
	Kubelet *KubeletConfiguration `json:"kubelet,omitempty"`
	// NodeClassRef names the cloud provider's object that the machine is built from.
	// +required
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
}
