// Package v1beta1 is the API version autoscaling.x-k8s.io/v1beta1: CapacityBuffer, spare room that is kept ready for pods to
// come.
//
// The kind is shared with other autoscalers, so a cluster may have its CRD already; Karpenter then uses the one
// it finds. Nothing reads it unless the feature gate CapacityBuffer is on.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.x-k8s.io
package v1beta1
