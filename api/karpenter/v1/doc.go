// Package v1 is the API group karpenter.sh/v1: NodePool and NodeClaim, and every label, annotation, taint, finalizer,
// condition type and reason that Karpenter's core puts on objects.
//
// v1 is the storage version and the hub: older versions convert to it and back.
// The CRD schemas, the reference pages and the lists of allowed label keys are generated from this package; what a
// schema cannot say is checked by Validate and reported as a condition.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1
