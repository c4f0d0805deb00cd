package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
)

// Conditions of a CapacityBuffer. None of them sums up the others.
const (
	ConditionTypeReadyForProvisioning = "ReadyForProvisioning" // The shape and number of the buffer's pods are known.
	ConditionTypeProvisioning         = "Provisioning"         // The room exists.
	ConditionTypeLimitedByQuotas      = "LimitedByQuotas"      // Reserved; Karpenter never writes it.
)

// Reasons of CapacityBuffer conditions.
const (
	ReasonResolved            = "Resolved"            // ReadyForProvisioning is True.
	ReasonScalableRefNotFound = "ScalableRefNotFound" // ReadyForProvisioning is False: there is no such workload.
	ReasonPodTemplateNotFound = "PodTemplateNotFound" // ReadyForProvisioning is False: there is no such pod template.
	// ReadyForProvisioning is False: nothing is named, or the kind is not supported.
	ReasonResolutionFailed = "ResolutionFailed"
	// ReadyForProvisioning is False: the feature gate CapacityBuffer is off, no room is kept.
	ReasonFeatureGateDisabled     = "FeatureGateDisabled"
	ReasonFitsExistingCapacity    = "FitsExistingCapacity"    // Provisioning is True: all pods fit on existing nodes.
	ReasonRequiresNewCapacity     = "RequiresNewCapacity"     // Provisioning is False: some pods need new nodes.
	ReasonNotReadyForProvisioning = "NotReadyForProvisioning" // Provisioning is False: the buffer is not resolved.
	ReasonBufferEmpty             = "BufferEmpty"             // Provisioning is False: the buffer asks for nothing.
)

// Conditions of a CapacityQuota.
const (
	ConditionTypeReconciled = "Reconciled"            // The quota can be read, and status.used is what its nodes have.
	ConditionTypeEnforced   = "karpenter.sh/enforced" // Karpenter opens no node that would exceed the quota.
)

// Reasons of CapacityQuota conditions.
const (
	ReasonReconciliationSucceeded = "ReconciliationSucceeded" // Reconciled is True.
	ReasonReconciliationFailed    = "ReconciliationFailed"    // Reconciled is False: the selector or a limit cannot be read.
	ReasonEnforced                = "Enforced"                // Enforced is True.
	ReasonExceeded                = "Exceeded"                // Enforced is True, and the nodes that are there have more than it allows.
	ReasonInvalidQuota            = "InvalidQuota"            // Enforced is False: the selector or a limit cannot be read.
	// Enforced is False: no pool and no instance type sets a label that the selector asks for, so it is not known before a node is there.
	ReasonUnforeseenLabel = "UnforeseenLabel"
)

// GetConditions returns the buffer's conditions.
func (b *CapacityBuffer) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the buffer's conditions.
func (b *CapacityBuffer) SetConditions(c []metav1.Condition) { b.Status.Conditions = c }

// ConditionRules says that a buffer's conditions stand on their own.
func (b *CapacityBuffer) ConditionRules() condition.Rules { return condition.Rules{} }
