// Package upstream runs our core over a provider that was written for the Go interface of Karpenter
// (sigs.k8s.io/karpenter/pkg/cloudprovider). Start takes the place of Karpenter's own controllers in a provider's main function.
//
// Such a provider promises less than cloud.Provider asks for. The adapter makes up for what is missing:
//
//   - Create is not idempotent. The adapter calls it once per claim, and remembers the answer. When an answer is lost, or an
//     earlier process may have called it, the adapter lists the machines first, adopts the machine that bears the claim's UID or
//     name, and creates again only after the consistency window. A machine that appears later is an orphan.
//   - Machines have no latch. The mark is an annotation on the Node, or on the NodePool for a machine without a Node.
//   - Machines have no launch time, name or price in some providers. The adapter counts from when it first saw the machine,
//     finds the claim by the provider id, and orders types without a price by size.
//   - A shortage may be forgotten. What a claim could not get is left out of catalogues for some minutes, if the provider
//     does not leave out anything by itself.
//
// The package knows no provider by name. Its exported names show no type of an internal package.
package upstream
