package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// GroupVersion is karpenter.sh/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: v1.Group, Version: "v1alpha1"}

// AddToScheme makes a scheme know the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeOverlay{}, &NodeOverlayList{}, &DisruptionPlan{}, &DisruptionPlanList{},
		&CommitmentDiscount{}, &CommitmentDiscountList{}, &RolloutPolicy{}, &RolloutPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// NodeOverlay corrects the price or capacity of the instance types that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeoverlays,singular=nodeoverlay,scope=Cluster,shortName=overlays,categories=karpenter
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the overlay is in force"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1,description="Overlays of higher weight win"
type NodeOverlay struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +required
	Spec NodeOverlaySpec `json:"spec"`
	// Status is what Karpenter observed.
	// +optional
	Status NodeOverlayStatus `json:"status,omitempty"`
}

// NodeOverlayList is a list of NodeOverlays.
//
// +kubebuilder:object:root=true
type NodeOverlayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeOverlay `json:"items"`
}

// NodeOverlaySpec says which instance types are meant and what is different about them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.price) || !has(self.priceAdjustment)",message="price and priceAdjustment may not both be set"
type NodeOverlaySpec struct {
	// Requirements select instance types and offerings by pool, labels of the pool's template, and labels of the type. They
	// are ANDed; an empty list selects everything.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +required
	Requirements []NodeSelectorRequirement `json:"requirements"`
	// PriceAdjustment changes the price: an amount per hour with its sign ("+0.05", "-1.5"), or a percentage with its
	// sign ("+10%", "-12.5%", at most "-100%"). A price never falls below zero.
	// +kubebuilder:validation:Pattern=`^([+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-([0-9]{1,2}(\.[0-9]+)?|100)%)$`
	// +optional
	PriceAdjustment *string `json:"priceAdjustment,omitempty"`
	// Price replaces the price per hour.
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	// +optional
	Price *string `json:"price,omitempty"`
	// Capacity adds extended resources to the selected instance types. Resources that every node has, cpu,
	// memory, ephemeral-storage and pods, cannot be given.
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",message="capacity may not name cpu, memory, ephemeral-storage or pods"
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Weight decides between overlays that say different things about the same instance type: the higher one wins.
	// A missing weight is 0. Overlays of equal weight must not say anything about the same thing.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Weight *int32 `json:"weight,omitempty"`
}

// NodeSelectorRequirement restricts the values of a label.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",message="requirements with operator In or NotIn must have at least one value"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && self.values.size() == 1 && int(self.values[0]) >= 0)",message="requirements with operator Gt, Lt, Gte or Lte must have exactly one value, an integer that is not negative"
type NodeSelectorRequirement struct {
	// Key is the label that is restricted.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +karpenter:labelKey:tables=core
	// +required
	Key string `json:"key"`
	// Operator relates the label to the values: In, NotIn, Exists, DoesNotExist, and for labels that hold whole numbers
	// Gt, Lt, Gte and Lte.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt;Gte;Lte
	// +required
	Operator corev1.NodeSelectorOperator `json:"operator"`
	// Values that the operator works on: at least one for In and NotIn; exactly one whole number, zero or more, for Gt,
	// Lt, Gte and Lte; ignored by Exists and DoesNotExist.
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
}

// NodeOverlayStatus is what Karpenter observed of an overlay.
type NodeOverlayStatus struct {
	// Conditions say whether the overlay is in force, and if not, why.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Weight returns the overlay's weight, 0 if none is set.
func (o *NodeOverlay) Weight() int32 {
	if o.Spec.Weight == nil {
		return 0
	}
	return *o.Spec.Weight
}
