package cluster

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Managed reports whether the machine has a NodeClaim.
func (n *Node) Managed() bool { return n.Claim != nil }

// Registered reports whether the machine has a Node with all labels and taints that Karpenter sets. It is true for machines without a
// claim.
func (n *Node) Registered() bool {
	return n.Claim == nil || n.Node != nil && n.Node.Labels[v1.NodeRegisteredLabelKey] == "true"
}

// Initialized reports whether the machine has been ready for pods once. It is true for machines without a claim.
func (n *Node) Initialized() bool {
	return n.Claim == nil || n.Node != nil && n.Node.Labels[v1.NodeInitializedLabelKey] == "true"
}

// InitializedSince returns when a machine became ready for pods, and ok false if it has not. The time is zero for machines without a
// claim. It is read from the claim's condition, which is written a moment after the label of the Node that Initialized reads.
func (n *Node) InitializedSince() (since time.Time, ok bool) {
	if n.Claim == nil {
		return time.Time{}, true
	}
	c := meta.FindStatusCondition(n.Claim.Status.Conditions, v1.ConditionTypeInitialized)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// Deleting reports whether the machine is on its way out: its claim is being deleted, or the machine is being stopped. For a machine
// with a claim the deletion of its Node alone does not count, because the claim follows at once.
func (n *Node) Deleting() bool {
	if n.Claim == nil {
		return n.Node != nil && n.Node.DeletionTimestamp != nil
	}
	return n.Claim.DeletionTimestamp != nil ||
		meta.IsStatusConditionTrue(n.Claim.Status.Conditions, v1.ConditionTypeInstanceTerminating)
}

// Labels returns the labels of the claim until the Node is registered, then the Node's.
func (n *Node) Labels() map[string]string {
	if n.Claim != nil && !n.Registered() {
		return n.Claim.Labels
	}
	return n.Node.Labels
}

// Annotations returns the annotations of the claim until the Node is registered, then the Node's.
func (n *Node) Annotations() map[string]string {
	if n.Claim != nil && !n.Registered() {
		return n.Claim.Annotations
	}
	return n.Node.Annotations
}

// Pool returns the name of the machine's pool, "" if it has none. A claim that names a pool decides: a kubelet may
// change this label of its own Node.
func (n *Node) Pool() string {
	if n.Claim != nil {
		if pool := n.Claim.Labels[v1.NodePoolLabelKey]; pool != "" {
			return pool
		}
	}
	return n.Labels()[v1.NodePoolLabelKey]
}

// Hostname returns the node's hostname label. If it has none yet, it returns the name of the row, which the label most likely gets.
func (n *Node) Hostname() string {
	if h := n.Labels()[corev1.LabelHostname]; h != "" {
		return h
	}
	return n.Name
}

// Taints returns the taints that count for scheduling: those of the claim until the Node is registered, then the Node's. Until a
// Karpenter machine is initialized, taints that it is expected to lose do not count. Afterwards every taint counts but the underused
// taint, which only asks kube-scheduler to prefer other nodes, and must never be a reason to open a node.
func (n *Node) Taints() []corev1.Taint {
	if n.Claim == nil {
		return n.Node.Spec.Taints
	}
	taints := n.Claim.Spec.Taints
	if n.Registered() {
		taints = n.Node.Spec.Taints
	}
	if n.Initialized() {
		if slices.ContainsFunc(taints, isUnderused) {
			return slices.DeleteFunc(slices.Clone(taints), isUnderused)
		}
		return taints
	}
	var out []corev1.Taint
	for i := range taints {
		if !v1.KnownEphemeralTaint(&taints[i]) && !n.startup(&taints[i]) {
			out = append(out, taints[i])
		}
	}
	return out
}

func isUnderused(t corev1.Taint) bool { return t.Key == v1.UnderusedTaintKey }

// startup reports whether a taint is one of the claim's startup taints.
func (n *Node) startup(t *corev1.Taint) bool {
	for i := range n.Claim.Spec.StartupTaints {
		if n.Claim.Spec.StartupTaints[i].MatchTaint(t) {
			return true
		}
	}
	return false
}

// Capacity returns what the machine has: what the Node reports as far as that is believed (see Believable), completed from the claim
// until the machine is initialized. It also has 1 of the resource "nodes", which limits count. The caller owns the result.
func (n *Node) Capacity() corev1.ResourceList {
	var node, claim corev1.ResourceList
	if n.Node != nil {
		node = n.Node.Status.Capacity
	}
	if n.Claim != nil {
		claim = n.Claim.Status.Capacity
	}
	out := n.merge(node, claim)
	out[v1.ResourceNodes] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

// Allocatable returns what the machine has for pods, believed and completed like Capacity. The caller owns the result.
func (n *Node) Allocatable() corev1.ResourceList {
	var node, claim corev1.ResourceList
	if n.Node != nil {
		node = n.Node.Status.Allocatable
	}
	if n.Claim != nil {
		claim = n.Claim.Status.Allocatable
	}
	return n.merge(node, claim)
}

// Believable returns the most of a resource that a Node of this claim may report, and whether there is such a limit. A kubelet writes
// its own Node, and a node that lies about its size must not get the pods of other nodes. CPU and memory are limited to the claim's
// capacity and a quarter more, because memory is an estimate. Other resources are not limited: a device plugin may divide a GPU, for
// example.
func Believable(claim *v1.NodeClaim, name corev1.ResourceName) (most resource.Quantity, limited bool) {
	if claim == nil || name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		return most, false
	}
	expected, known := claim.Status.Capacity[name]
	if !known || expected.Sign() <= 0 {
		return most, false
	}
	quarter := resource.NewMilliQuantity(expected.MilliValue()/4, expected.Format)
	if name == corev1.ResourceMemory {
		quarter = resource.NewQuantity(expected.Value()/4, expected.Format)
	}
	most = expected.DeepCopy()
	most.Add(*quarter)
	return most, true
}

// merge returns what the Node reports; a value above Believable is replaced by the claim's capacity. Until the machine is initialized,
// the claim's value replaces a zero or missing one: a kubelet that has just started reports zero for devices that no plugin has
// announced yet.
func (n *Node) merge(node, claim corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, max(len(node), len(claim))+1)
	for name, q := range node {
		if most, limited := Believable(n.Claim, name); limited && q.Cmp(most) > 0 {
			q = n.Claim.Status.Capacity[name]
		}
		out[name] = q
	}
	if n.Initialized() {
		return out
	}
	for name, q := range claim {
		if have := out[name]; have.IsZero() {
			out[name] = q
		}
	}
	return out
}
