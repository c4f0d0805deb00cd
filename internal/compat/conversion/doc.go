// Package conversion serves karpenter.sh/v1beta1 and karpenter.k8s.aws/v1beta1 beside v1: a webhook that the API server asks for the
// other version of an object, its certificate, the definitions that name it, and the rewriting of what was stored as v1beta1.
//
// Every replica serves, whether it leads or not, and every replica sees to certificate and definitions; they agree through the
// resource versions of the objects. Only the leader rewrites. Nothing of this is needed to read what is stored as v1, so
// once everything is rewritten a webhook that cannot be reached costs clients of v1beta1 only.
//
// A certificate signs itself, and is trusted by the definitions before it is used: the next one stands in the Secret, and in
// the definitions, for a while before it takes its turn. A certificate that is missing, broken or has expired is replaced at once.
package conversion
