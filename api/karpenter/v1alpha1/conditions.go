package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Conditions of a NodeOverlay.
const (
	ConditionTypeReady               = condition.Ready                     // The overlay is in force.
	ConditionTypeValidationSucceeded = v1.ConditionTypeValidationSucceeded // The overlay makes sense and contradicts no other.
)

// Reasons of NodeOverlay conditions.
const (
	ReasonRuntimeValidation   = "RuntimeValidation"          // ValidationSucceeded is False: a requirement or a capacity is wrong.
	ReasonFeatureGateDisabled = v1.ReasonFeatureGateDisabled // ValidationSucceeded is False: the feature gate NodeOverlay is off, the overlay changes nothing.
	ReasonConflict            = "Conflict"                   // ValidationSucceeded is False: another overlay of equal weight speaks of the same thing.
)

// GetConditions returns the overlay's conditions.
func (o *NodeOverlay) GetConditions() []metav1.Condition { return o.Status.Conditions }

// SetConditions replaces the overlay's conditions.
func (o *NodeOverlay) SetConditions(c []metav1.Condition) { o.Status.Conditions = c }

// ConditionRules says what makes an overlay Ready.
func (o *NodeOverlay) ConditionRules() condition.Rules {
	return condition.Rules{Root: ConditionTypeReady, Dependents: []string{ConditionTypeValidationSucceeded}}
}
