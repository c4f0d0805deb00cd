// Package v1beta1 is the API version autoscaling.x-k8s.io/v1beta1: CapacityBuffer, spare room that is kept ready for pods to
// come, and CapacityQuota, limits on what chosen nodes may have together.
//
// The kinds are shared with other autoscalers, so a cluster may have their CRDs already; Karpenter then uses those that
// it finds. Nothing reads a kind unless the feature gate of its name is on.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.x-k8s.io
package v1beta1
