// Package v1alpha1 is the API version karpenter.sh/v1alpha1: NodeOverlay, which corrects prices and capacities that the
// cloud reports. Nothing reads it unless the feature gate NodeOverlay is on.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1alpha1
