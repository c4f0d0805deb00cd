package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of EC2NodeClass and the domain of the provider's labels.
const Group = "karpenter.k8s.aws"

// Kind is the kind of EC2NodeClass.
const Kind = "EC2NodeClass"

// GroupVersion is karpenter.k8s.aws/v1.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// AddToScheme makes a scheme know the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EC2NodeClass{}, &EC2NodeClassList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
