// Package endtoend has Karpenter and this project's controller look after the same pods, one after the other, each
// on a local cluster of its own: API server, scheduler and controllers of Kubernetes, kubelets that are played, and
// the same EC2 types, zones and prices for both.
//
// Ours is bin/karpenter as shipped, under its service account, and buys from the model of AWS. The peer's is
// bin/karpenter-peer, which is built from its published module, and buys Nodes from its KWOK provider. Machines of
// both join two seconds after they were bought.
package endtoend
