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

// Conditions of a CommitmentDiscount. Ready is their root: plans count on the commitment.
const (
	ConditionTypeValid   = "Valid"   // The object makes sense, and no older one has its id.
	ConditionTypeActive  = "Active"  // It has begun and has not ended.
	ConditionTypeCertain = "Certain" // Plans may rely on it.
)

// GetConditions returns the commitment's conditions.
func (d *CommitmentDiscount) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the commitment's conditions.
func (d *CommitmentDiscount) SetConditions(c []metav1.Condition) { d.Status.Conditions = c }

// ConditionRules says what makes a commitment Ready.
func (d *CommitmentDiscount) ConditionRules() condition.Rules {
	return condition.Rules{Root: ConditionTypeReady, Dependents: []string{ConditionTypeValid, ConditionTypeActive, ConditionTypeCertain}}
}

// Conditions of a RolloutPolicy, beside Valid. Ready is their root: nothing stops or delays a rollout but its steps, windows and budgets.
const (
	ConditionTypeGatesAnswered = "GatesAnswered" // Each gate that was asked has answered.
	ConditionTypeGatesPassed   = "GatesPassed"   // No gate has tripped since the NodePools were resumed last.
)

// Reasons of RolloutPolicy conditions.
const (
	// Valid is False: a selector or window cannot be read. No drifted node of its NodePools is replaced.
	ReasonNotRead      = "NotRead"
	ReasonPoolsOverlap = "PoolsOverlap" // Valid is False: an older policy holds for some of its NodePools.
	ReasonNoAnswer     = "NoAnswer"     // GatesAnswered is False: the message names the gates; the rollout waits.
	ReasonGateTripped  = "GateTripped"  // GatesPassed is False: the message has the evidence.
)

// GetConditions returns the policy's conditions.
func (p *RolloutPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the policy's conditions.
func (p *RolloutPolicy) SetConditions(c []metav1.Condition) { p.Status.Conditions = c }

// ConditionRules says what makes a policy Ready.
func (p *RolloutPolicy) ConditionRules() condition.Rules {
	return condition.Rules{Root: ConditionTypeReady,
		Dependents: []string{ConditionTypeValid, ConditionTypeGatesAnswered, ConditionTypeGatesPassed}}
}

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
