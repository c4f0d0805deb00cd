// Package apiserver tests the CRDs on a real kube-apiserver: every validation rule accepted and refused, on create and on
// update, defaults, columns, round trips of manifests, and the cost of the rules on the largest objects.
//
// The tests need a kube-apiserver and an etcd, in the folder that KUBEBUILDER_ASSETS names, so they stand behind the build tag
// "apiserver". Run them with "make test", which builds both.
package apiserver
