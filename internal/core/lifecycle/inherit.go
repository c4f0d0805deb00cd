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

// joinBy is how long an inherited machine may be without a Node before it gets a claim nevertheless. Machines that Karpenter launches
// have as long to register.
const joinBy = 15 * time.Minute

// Heirs returns the pools that take over the machines of Provisioners (the API before NodePools), by the Provisioner's name. If several
// pools name the same Provisioner, the entry is nil: it is not known which of them should have the machines. Pools that are being
// deleted, and static ones, take none over.
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

// Inherited reports whether the machine gets a claim of its heir now. If not, why is what keeps it from that, for an operator to solve; it
// is "" if there is nothing to solve: the machine has a claim, is being deleted, or needs more time.
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

// fits reports whether a Node has the label of the machine's Provisioner and does not have that of a pool other than the heir.
func (b *Bequest) fits(n *corev1.Node) bool {
	pool := n.Labels[v1.NodePoolLabelKey]
	return n.Labels[v1.ProvisionerLabelKey] == b.Machine.Provisioner && (pool == "" || pool == b.Heir.Name)
}

// A Hindrance is why a machine that a Karpenter without NodeClaims launched gets no claim.
type Hindrance string

// Hindrances.
const (
	NoHeir          Hindrance = "NoHeir"
	SeveralNodes    Hindrance = "SeveralNodes"
	OtherNode       Hindrance = "OtherNode"
	ManyWithoutNode Hindrance = "ManyWithoutNode"
)

// ManyAlone reports whether so many inherited machines have no Node that the picture of the Nodes is more likely wrong than the machines.
// See Mass for how many that are.
func ManyAlone(machines, alone []cloud.Machine, now time.Time) bool {
	return len(Mass(machines, alone, now)) > 0
}

// Claim returns the claim that takes the machine over. The claim must change nothing on the Node when it joins it. So it has no startup
// taints, only those taints of the pool that the Node has too, and the values of the Node for labels that both have.
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

// describes reports whether a label describes the machine: type, zone, architecture and so on. The claim gets these labels from the Node.
func describes(key string) bool {
	switch key {
	case corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyZone,
		corev1.LabelTopologyRegion, v1.CapacityTypeLabelKey:
		return true
	}
	return false
}

// claimName returns the name of the claim that takes over a machine: the name in the machine's tags, else that of its Node, else a name
// made from its provider id. The same machine always gets the same name, so that no second claim is created for it.
func claimName(pool *v1.NodePool, node *corev1.Node, m cloud.Machine) string {
	switch {
	case m.ClaimName != "":
		return m.ClaimName
	case node != nil:
		return node.Name
	}
	return pool.Name + "-" + drift.Digest(m.ProviderID)
}

// stamped returns those annotations of a pool that its claims have too, to compare them for drift.
func stamped(pool *v1.NodePool) map[string]string {
	out := map[string]string{}
	for _, key := range []string{v1.NodePoolHashAnnotationKey, v1.NodePoolHashVersionAnnotationKey, v1.KubeletCompatibilityAnnotationKey} {
		if value, ok := pool.Annotations[key]; ok {
			out[key] = value
		}
	}
	return out
}

// older reports whether an owner is a Provisioner or a Machine of an older API version. These objects may be deleted together with their
// definitions, and the garbage collector must not delete the Node with them.
func older(r metav1.OwnerReference) bool {
	group, version, _ := strings.Cut(r.APIVersion, "/")
	return group == v1.Group && version != v1.GroupVersion.Version && (r.Kind == "Provisioner" || r.Kind == "Machine")
}

// disowned returns the owners without those of older kinds.
func disowned(owners []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(owners), older)
}

// adopted returns the labels of a claim that takes over a machine for a pool: those of the template, the pool's name and the node class.
func adopted(pool *v1.NodePool) map[string]string {
	labels := maps.Clone(pool.NodeLabels())
	ref := pool.Spec.Template.Spec.NodeClassRef
	return merge(labels, map[string]string{v1.NodePoolLabelKey: pool.Name, v1.NodeClassLabelKey(ref.GroupKind()): ref.Name})
}
