package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// Operators of requirements beyond those of Kubernetes node selectors.
const (
	NodeSelectorOpGte corev1.NodeSelectorOperator = "Gte"
	NodeSelectorOpLte corev1.NodeSelectorOperator = "Lte"
)

// NodeSelectorRequirementWithMinValues restricts the values that a node label may have, and may ask that so many
// different values stay possible.
//
// +kubebuilder:validation:XValidation:rule="self.operator != 'In' || (has(self.values) && self.values.size() > 0)",message="requirements with operator In must have at least one value"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && self.values.size() == 1 && int(self.values[0]) >= 0)",message="requirements with operator Gt, Lt, Gte or Lte must have exactly one value, an integer that is not negative"
// +kubebuilder:validation:XValidation:rule="self.operator != 'In' || !has(self.minValues) || (has(self.values) && self.values.size() >= self.minValues)",message="requirements with operator In must have at least as many values as minValues"
type NodeSelectorRequirementWithMinValues struct {
	// Key is the node label that is restricted.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +karpenter:labelKey:tables=core;aws
	// +required
	Key string `json:"key"`
	// Operator relates the label to the values: In, NotIn, Exists, DoesNotExist, and for labels that hold whole numbers
	// Gt, Lt, Gte and Lte.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt;Gte;Lte
	// +required
	Operator corev1.NodeSelectorOperator `json:"operator"`
	// Values that the operator works on: at least one for In; exactly one whole number, zero or more, for Gt, Lt, Gte and
	// Lte; ignored by Exists and DoesNotExist. NotIn without values means Exists.
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
	// MinValues asks that at least this many different values of the label stay possible for a node when it is launched.
	// This field is alpha.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	// +optional
	MinValues *int `json:"minValues,omitempty"`
}

// NodeSelectorRequirement returns the requirement without MinValues.
func (r *NodeSelectorRequirementWithMinValues) NodeSelectorRequirement() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: r.Key, Operator: r.Operator, Values: r.Values}
}
