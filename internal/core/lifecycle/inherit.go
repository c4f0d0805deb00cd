package lifecycle

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/drift"
)

// joinBy is how long an inherited machine may be without Node before it is taken for a machine that never joins: as
// long as a machine of our own.
const joinBy = 15 * time.Minute

// Heirs are the pools that stand in for Provisioners, by the Provisioner's name. Where several want to, it is nil:
// it is not known whose the machines would be.
func Heirs(pools iter.Seq[*v1.NodePool]) map[string]*v1.NodePool {
	out := map[string]*v1.NodePool{}
	for pool := range pools {
		name := pool.Provisioner()
		if name == "" || pool.DeletionTimestamp != nil || pool.IsStatic() {
			continue
		}
		if _, another := out[name]; another {
			out[name] = nil
			continue
		}
		out[name] = pool
	}
	return out
}

// A Bequest is a machine that a Karpenter without NodeClaims launched, with what is known of it.
type Bequest struct {
	Machine cloud.Machine
	Nodes   []*corev1.Node
	// Heir is the pool that stands in for the machine's Provisioner, nil if there is none or more than one.
	Heir *v1.NodePool
	// Claimed says that a claim has the machine, or is about to.
	Claimed bool
	// Alone is for how long no Node is known to have had the machine. Nothing is done about such a machine while Many of them are alone.
	Alone time.Duration
	Many  bool
}

// Inherited reports whether the machine gets a claim of its heir, or else what keeps it from that; "" if nothing is to be done.
func (b *Bequest) Inherited() (adopt bool, why Hindrance) {
	switch {
	case b.Claimed || b.Machine.Deleting:
		return false, ""
	case b.Heir == nil:
		return false, NoHeir
	case b.Machine.PoolName != "" && (b.Machine.PoolName != b.Heir.Name || len(b.Nodes) == 0):
		return false, "" // it was adopted before, and is an orphan like others
	case len(b.Nodes) > 1:
		return false, SeveralNodes
	case len(b.Nodes) == 1 && !b.fits(b.Nodes[0]):
		return false, OtherNode
	case len(b.Nodes) == 0 && b.Many:
		return false, ManyWithoutNode
	}
	return len(b.Nodes) == 1 || b.Alone >= joinBy, ""
}

// fits reports whether a Node is of the machine's Provisioner, and of no other pool than the heir.
func (b *Bequest) fits(n *corev1.Node) bool {
	pool := n.Labels[v1.NodePoolLabelKey]
	return n.Labels[v1.ProvisionerLabelKey] == b.Machine.Provisioner && (pool == "" || pool == b.Heir.Name)
}

// A Hindrance is why a machine that was inherited gets no claim.
type Hindrance string

// Hindrances.
const (
	NoHeir          Hindrance = "NoHeir"
	SeveralNodes    Hindrance = "SeveralNodes"
	OtherNode       Hindrance = "OtherNode"
	ManyWithoutNode Hindrance = "ManyWithoutNode"
)

// ManyAlone reports whether so many inherited machines have no Node that our picture of the Nodes is to be doubted, and not the machines.
func ManyAlone(machines, alone []cloud.Machine, now time.Time) bool {
	return len(Mass(machines, alone, now)) > 0
}

// Claim returns the claim that takes the machine over. The node stays unchanged: its own fields count before what the pool gives to new
// nodes, and startup taints are of the past.
func (b *Bequest) Claim() *v1.NodeClaim {
	var node *corev1.Node
	if len(b.Nodes) == 1 {
		node = b.Nodes[0]
	}
	c := Adopting(b.Heir, node, b.Machine)
	if node == nil {
		return c
	}
	c.Spec.StartupTaints = nil
	c.Spec.Taints = slices.DeleteFunc(c.Spec.Taints, func(t corev1.Taint) bool {
		return !hasTaint(node, func(has *corev1.Taint) bool { return has.MatchTaint(&t) })
	})
	for key := range c.Labels {
		if value, has := node.Labels[key]; has {
			c.Labels[key] = value
		}
	}
	for key, value := range node.Labels {
		if describes(key) {
			c.Labels[key] = value
		}
	}
	return c
}

// describes reports whether a label of a node tells what its machine is. The claim has it from the node, so that
// nothing else is written onto it.
func describes(key string) bool {
	switch key {
	case corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyZone,
		corev1.LabelTopologyRegion, v1.CapacityTypeLabelKey:
		return true
	}
	return false
}

// claimName is the name of a claim for a machine that no tag names one for. It is the same whenever it is asked
// for, so that a claim is made once.
func claimName(pool *v1.NodePool, node *corev1.Node, m cloud.Machine) string {
	switch {
	case m.ClaimName != "":
		return m.ClaimName
	case node != nil:
		return node.Name
	}
	return pool.Name + "-" + drift.Digest(m.ProviderID)
}

// stamped are the annotations that tell which template a claim is of, as a pool has them.
func stamped(pool *v1.NodePool) map[string]string {
	out := map[string]string{}
	for _, key := range []string{v1.NodePoolHashAnnotationKey, v1.NodePoolHashVersionAnnotationKey, v1.KubeletCompatibilityAnnotationKey} {
		if value, ok := pool.Annotations[key]; ok {
			out[key] = value
		}
	}
	return out
}

// older reports whether an owner is of a kind that machines were launched for before there were claims. Such owners
// may be deleted with their definitions; the Node may not go with them.
func older(r metav1.OwnerReference) bool {
	group, version, _ := strings.Cut(r.APIVersion, "/")
	return group == v1.Group && version != v1.GroupVersion.Version && (r.Kind == "Provisioner" || r.Kind == "Machine")
}

// disowned takes owners of older kinds away.
func disowned(owners []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(owners), older)
}

// adopted are the labels and annotations by which a claim and its pool belong together.
func adopted(pool *v1.NodePool) map[string]string {
	labels := maps.Clone(pool.NodeLabels())
	ref := pool.Spec.Template.Spec.NodeClassRef
	return merge(labels, map[string]string{v1.NodePoolLabelKey: pool.Name, v1.NodeClassLabelKey(ref.GroupKind()): ref.Name})
}
