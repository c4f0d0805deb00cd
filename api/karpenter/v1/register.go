package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of NodePool, NodeClaim and NodeOverlay, and the domain of all core labels.
const Group = "karpenter.sh"

// GroupVersion is karpenter.sh/v1.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// AddToScheme makes a scheme know the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodePool{}, &NodePoolList{}, &NodeClaim{}, &NodeClaimList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
