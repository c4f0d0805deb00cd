package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeClaim is one machine that Karpenter asks the cloud for, and its life until it is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeclaims,singular=nodeclaim,scope=Cluster,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".metadata.labels.node\\.kubernetes\\.io/instance-type",description="Instance type"
// +kubebuilder:printcolumn:name="Capacity",type="string",JSONPath=".metadata.labels.karpenter\\.sh/capacity-type",description="Capacity type: spot, on-demand or reserved"
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels.topology\\.kubernetes\\.io/zone",description="Zone of the machine"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName",description="Node that the machine became"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the node is launched, registered and initialized"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="ImageID",type="string",JSONPath=".status.imageID",priority=1,description="Machine image"
// +kubebuilder:printcolumn:name="ID",type="string",JSONPath=".status.providerID",priority=1,description="The cloud's name of the machine"
// +kubebuilder:printcolumn:name="NodePool",type="string",JSONPath=".metadata.labels.karpenter\\.sh/nodepool",priority=1,description="Pool that the claim belongs to"
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.nodeClassRef.name",priority=1,description="Node class that the machine is built from"
// +kubebuilder:printcolumn:name="Drifted",type="string",JSONPath=".status.conditions[?(@.type==\"Drifted\")].status",priority=1,description="Whether the machine no longer is what pool and node class ask for"
type NodeClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
	// +required
	Spec NodeClaimSpec `json:"spec"`
	// Status is what became of it.
	// +optional
	Status NodeClaimStatus `json:"status,omitempty"`
}

// NodeClaimList is a list of NodeClaims.
//
// +kubebuilder:object:root=true
type NodeClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeClaim `json:"items"`
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
	Requirements []NodeSelectorRequirementWithMinValues `json:"requirements"`
	// Resources that the machine must have at least.
	// +optional
	Resources ResourceRequirements `json:"resources,omitempty,omitzero"`
	// NodeClassRef names the cloud provider's object that the machine is built from.
	// +required
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod is how long the node may drain before the pods that are left are deleted and the machine is
	// stopped. Without it, draining takes as long as it takes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +optional
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which the node is removed. "Never" keeps it at any age.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:default="720h"
	// +optional
	ExpireAfter NillableDuration `json:"expireAfter,omitempty"`
}

// ResourceRequirements is what a machine must have at least.
type ResourceRequirements struct {
	// Requests of the pods that the machine is for, plus those of the DaemonSets that will run on it.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// NodeClaimStatus is what became of a claim.
type NodeClaimStatus struct {
	// NodeName is the Node that the machine became.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// ProviderID is the cloud's name of the machine, as in the Node's spec.providerID.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// ImageID is the machine image that was launched.
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// Capacity is what the machine is expected to have; once the node is initialized, the Node says it better.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is what the machine is expected to have for pods.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Conditions say how far the claim is, and what stands in its way.
	// +karpenter:sparseConditions
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastPodEventTime is when a pod was last bound to the node, ended on it, or began to leave it. Pods of DaemonSets
	// do not count, and events within ten seconds count as one.
	// +optional
	LastPodEventTime metav1.Time `json:"lastPodEventTime,omitempty,omitzero"`
}
