package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	ReasonRuntimeValidation = "RuntimeValidation" // ValidationSucceeded is False: a requirement or a capacity is wrong.
	// ValidationSucceeded is False: the feature gate NodeOverlay is off, the overlay changes nothing.
	ReasonFeatureGateDisabled = v1.ReasonFeatureGateDisabled
	// ValidationSucceeded is False: another overlay of equal weight speaks of the same thing.
	ReasonConflict = "Conflict"
)

// A Conflict is the first thing of which two overlays of equal weight speak. It is the message of a condition with ReasonConflict.
//
// +kubebuilder:object:generate=false
type Conflict struct {
	With       string              // the overlay that is applied
	Pool, Type string              // where they meet
	Resource   corev1.ResourceName // of which they speak; "" for the price
}

// Message says with whom an overlay disagrees, where, and what to do about it.
func (c *Conflict) Message() string {
	what := "the price"
	if c.Resource != "" {
		what = "the resource " + string(c.Resource)
	}
	return fmt.Sprintf("conflict with another overlay of equal weight: NodeOverlay %s gives %s of instance type %s in "+
		"NodePool %s as well; "+
		"give one of them another weight, or requirements that exclude each other", c.With, what, c.Type, c.Pool)
}

// GetConditions returns the overlay's conditions.
func (o *NodeOverlay) GetConditions() []metav1.Condition { return o.Status.Conditions }

// SetConditions replaces the overlay's conditions.
func (o *NodeOverlay) SetConditions(c []metav1.Condition) { o.Status.Conditions = c }

// ConditionRules says what makes an overlay Ready.
func (o *NodeOverlay) ConditionRules() condition.Rules {
	return condition.Rules{Root: ConditionTypeReady, Dependents: []string{ConditionTypeValidationSucceeded}}
}
