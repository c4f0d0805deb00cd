package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is autoscaling.x-k8s.io/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1beta1"}

// AddToScheme makes a scheme know the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &CapacityBuffer{}, &CapacityBufferList{}, &CapacityQuota{}, &CapacityQuotaList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ActiveCapacityStrategy is the provisioning strategy that Karpenter acts upon: nodes are kept running.
const ActiveCapacityStrategy = "buffer.x-k8s.io/active-capacity"

// ResourceName names a resource, "cpu" for instance.
type ResourceName string

// ResourceList is an amount of each of several resources.
type ResourceList map[ResourceName]resource.Quantity

// CapacityBuffer asks for spare room: so many pods of a certain shape could start at once.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=capacitybuffers,singular=capacitybuffer,scope=Namespaced,shortName=cb,categories=autoscaling
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.provisioningStrategy",description="How the room is kept"
// +kubebuilder:printcolumn:name="PodTemplate",type="string",JSONPath=".status.podTemplateRef.name",description="Pod template that the room is for"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas",description="Number of pods that the room is for"
// +kubebuilder:printcolumn:name="ConditionsType",type="string",JSONPath=".status.conditions[*].type",description="Conditions"
// +kubebuilder:printcolumn:name="ConditionsStatus",type="string",JSONPath=".status.conditions[*].status",description="Status of the conditions"
// +kubebuilder:printcolumn:name="ConditionsReason",type="string",JSONPath=".status.conditions[*].reason",description="Reasons of the conditions"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type CapacityBuffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +required
	Spec CapacityBufferSpec `json:"spec"`
	// Status is what became of it.
	// +optional
	Status CapacityBufferStatus `json:"status,omitempty"`
}

// Active reports whether room is to be kept in the way that Karpenter does: by nodes that run.
func (b *CapacityBuffer) Active() bool {
	s := b.Spec.ProvisioningStrategy
	return b.DeletionTimestamp == nil && (s == nil || *s == "" || *s == ActiveCapacityStrategy)
}

// CapacityBufferList is a list of CapacityBuffers.
//
// +kubebuilder:object:root=true
type CapacityBufferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityBuffer `json:"items"`
}

// CapacityBufferSpec is the shape and number of the pods that room is kept for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",message="podTemplateRef needs replicas or limits"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplateRef) || !has(self.scalableRef)",message="podTemplateRef and scalableRef may not both be set"
type CapacityBufferSpec struct {
	// ProvisioningStrategy says how the room is kept. Karpenter acts on "buffer.x-k8s.io/active-capacity" only.
	// +kubebuilder:default="buffer.x-k8s.io/active-capacity"
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// PodTemplateRef names a PodTemplate of the same namespace that gives the pods' shape.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// ScalableRef names a workload of the same namespace whose pods give the shape.
	// +optional
	ScalableRef *ScalableRef `json:"scalableRef,omitempty"`
	// Replicas is the number of pods that room is kept for.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Percentage is the number of pods as a share of the workload's replicas, rounded up, at least one. If replicas is
	// set too, the larger number counts.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
	// Limits is the most that all the pods together may request.
	// +optional
	Limits ResourceList `json:"limits,omitempty"`
}

// LocalObjectRef names an object of the same namespace.
type LocalObjectRef struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// ScalableRef names a workload of the same namespace.
type ScalableRef struct {
	// APIGroup of the workload; apps if it is empty.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the workload: Deployment, StatefulSet, ReplicaSet, Job, or any other kind that can be scaled and has
	// a pod template at spec.template.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`
	// Name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// CapacityBufferStatus is what became of a buffer.
type CapacityBufferStatus struct {
	// PodTemplateRef is the template that the pods' shape was taken from.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// Replicas is the number of pods that room is kept for.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// PodTemplateGeneration is the generation of the template that was used.
	// +optional
	PodTemplateGeneration *int64 `json:"podTemplateGeneration,omitempty"`
	// ProvisioningStrategy is the strategy that was used.
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// Conditions say whether the buffer could be resolved and whether its room exists.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
