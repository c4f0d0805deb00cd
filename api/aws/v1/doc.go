// Package v1 is the API group karpenter.k8s.aws/v1: EC2NodeClass, which says how machines are built on AWS, and every
// label, annotation, tag, condition and reason of the AWS provider.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.k8s.aws
package v1
