// Package v1beta1 is the API version karpenter.sh/v1beta1: NodePool and NodeClaim as their authors wrote them before v1. Nothing
// is stored in it and no loop reads it. The types are there for the schemas that are generated from them; objects are turned into v1
// and back as trees of JSON.
//
// What v1 understands as well has the types and rules of v1. What v1 says otherwise has the rules of v1beta1, except where those
// refused what everybody writes and v1 allows: a time to wait beside WhenUnderutilized.
//
// +groupName=karpenter.sh
package v1beta1
