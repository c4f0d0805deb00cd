// Package v1alpha1 is the API version karpenter.sh/v1alpha1: NodeOverlay, which corrects prices and capacities that the
// cloud reports, and which nothing reads unless the feature gate NodeOverlay is on; and DisruptionPlan, by which people approve what
// Karpenter would do.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1alpha1
