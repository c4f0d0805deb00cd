// Package v1alpha1 is the API version karpenter.sh/v1alpha1: NodeOverlay, which corrects prices and capacities that the
// cloud reports, and which nothing reads unless the feature gate NodeOverlay is on; DisruptionPlan, by which people approve what
// Karpenter would do; CommitmentDiscount, a Reserved Instance or Savings Plan; and RolloutPolicy, by which drifted nodes are replaced in
// steps that stop themselves.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1alpha1
