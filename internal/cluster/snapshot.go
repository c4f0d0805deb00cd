package cluster

import (
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A Snapshot is the cluster at one moment. It never changes, and nothing in it may be changed.
type Snapshot struct {
	tables
	revision uint64
	news     uint64
	stale    chan struct{}
	synced   bool
	failed   []FailedFeed
}

// Revision grows with every change of the store.
func (s *Snapshot) Revision() uint64 { return s.revision }

// News grows with every change that a loop may have to look at: not with heartbeats and bookmarks.
func (s *Snapshot) News() uint64 { return s.news }

// Stale is closed when a newer snapshot can be had. It wakes at most every 20 ms.
func (s *Snapshot) Stale() <-chan struct{} { return s.stale }

// Synced reports whether the first list of every kind is in the store. Before that, no loop may act.
func (s *Snapshot) Synced() bool { return s.synced }

// Node returns the row of this name, or nil. A row with a Node comes before that of a claim of the same name whose Node has not
// registered.
func (s *Snapshot) Node(name string) *Node {
	if n, ok := s.nodes.get(rowKey{name: name}); ok {
		return n
	}
	n, _ := s.nodes.get(rowKey{name: name, claim: true})
	return n
}

// NodeByProviderID returns the row of a machine, or nil.
func (s *Snapshot) NodeByProviderID(id string) *Node {
	r, _ := s.byProvider.get(id)
	return s.row(r.row)
}

// NodesWithProviderID returns every Node that carries a provider ID, by name: more than one is a mistake that an operator
// has to report.
func (s *Snapshot) NodesWithProviderID(id string) []*corev1.Node {
	r, _ := s.byProvider.get(id)
	var out []*corev1.Node
	for _, name := range r.nodes {
		out = append(out, s.row(rowKey{name: name}).Node)
	}
	return out
}

// ClaimNode returns the row that a NodeClaim is part of, or nil if there is no such claim.
func (s *Snapshot) ClaimNode(claim string) *Node {
	r, _ := s.byClaim.get(claim)
	return s.row(r.row)
}

func (s *Snapshot) row(key rowKey) *Node {
	n, _ := s.nodes.get(key)
	return n
}

// Target returns the row of a seat's target: the claim of this name, or else the node.
func (s *Snapshot) Target(name string) *Node {
	if n := s.ClaimNode(name); n != nil {
		return n
	}
	return s.Node(name)
}

// Nodes yields all rows by name.
func (s *Snapshot) Nodes() iter.Seq[*Node] { return s.nodes.all() }

// NodeCount returns the number of rows.
func (s *Snapshot) NodeCount() int { return s.nodes.len }

// Pod returns a pod, or nil.
func (s *Snapshot) Pod(key PodKey) *Pod {
	p, _ := s.pods.get(key)
	return p
}

// Pods yields all pods by namespace and name.
func (s *Snapshot) Pods() iter.Seq[*Pod] { return s.pods.all() }

// PodCount returns the number of pods.
func (s *Snapshot) PodCount() int { return s.pods.len }

// Unbound yields the pods that are on no node, by namespace and name.
func (s *Snapshot) Unbound() iter.Seq[*Pod] { return s.unbound.all() }

// Provisionable returns the pods that wait for a node and could be given one, by namespace and name.
func (s *Snapshot) Provisionable() []*Pod {
	var out []*Pod
	for p := range s.unbound.all() {
		if s.IsProvisionable(p) {
			out = append(out, p)
		}
	}
	return out
}

// IsProvisionable reports whether kube-scheduler found no place for a pod and Karpenter may look for one. A pod that another writer
// nominated for a node is left alone while that node exists and stays. A hint of our own does not matter.
func (s *Snapshot) IsProvisionable(p *Pod) bool {
	if !p.Unschedulable || !p.couldBePlaced() {
		return false
	}
	if p.NominatedNode == "" {
		return true
	}
	n, ok := s.nodes.get(rowKey{name: p.NominatedNode})
	return !ok || !n.Node.DeletionTimestamp.IsZero() || n.MarkedForRemoval
}

func (p *Pod) couldBePlaced() bool {
	return p.NodeName == "" && !p.DaemonSet && !p.Mirror && p.Deleted.IsZero() && !p.Terminal()
}

// ProvisionableSoon returns the provisionable pods, and unjudged pods of the same kinds: kube-scheduler will find no place for these
// either. Under load kube-scheduler is seconds behind, and one plan for all of them is cheaper than several plans.
func (s *Snapshot) ProvisionableSoon() []*Pod {
	refused := map[kind]bool{}
	unjudged := false
	var last kind // neighbours by name are mostly alike
	for p := range s.unbound.all() {
		if k := p.kind(); k != last && s.IsProvisionable(p) {
			refused[k], last = true, k
		}
		unjudged = unjudged || p.Unjudged
	}
	if !unjudged || len(refused) == 0 {
		return s.Provisionable()
	}
	var out []*Pod
	for p := range s.unbound.all() {
		if s.IsProvisionable(p) || p.Unjudged && p.couldBePlaced() && p.NominatedNode == "" && refused[p.kind()] {
			out = append(out, p)
		}
	}
	return out
}

// Repelling yields the bound pods that have a required anti-affinity, by namespace and name. Terminal pods repel no pods.
func (s *Snapshot) Repelling() iter.Seq[*Pod] { return s.repelling.all() }

// LabelCounts yields how many pods of each label set run on each node, sorted by namespace, label set and node. So a selector need be
// evaluated only once for each label set.
func (s *Snapshot) LabelCounts() iter.Seq[LabelCount] { return s.labels.all() }

// Held reports whether a waiting pod gets no place for now (Draft.Hold).
func (s *Snapshot) Held(key PodKey) bool {
	_, ok := s.held.get(key)
	return ok
}

// DisruptionPlans yields the DisruptionPlans by name.
func (s *Snapshot) DisruptionPlans() iter.Seq[*v1alpha1.DisruptionPlan] {
	return s.disruptionPlans.all()
}

// DisruptionPlan returns a DisruptionPlan, or nil.
func (s *Snapshot) DisruptionPlan(name string) *v1alpha1.DisruptionPlan {
	p, _ := s.disruptionPlans.get(name)
	return p
}

// NodeClass returns the node class that a reference names, or nil.
func (s *Snapshot) NodeClass(ref *v1.NodeClassReference) *NodeClass {
	if ref == nil {
		return nil
	}
	c, _ := s.classes.get(*ref)
	return c
}

// NodeClasses yields the node classes by group, kind and name.
func (s *Snapshot) NodeClasses() iter.Seq[*NodeClass] { return s.classes.all() }

// DaemonPod returns the newest live pod of a DaemonSet, or nil if it has none.
func (s *Snapshot) DaemonPod(ds *appsv1.DaemonSet) *Pod {
	d, _ := s.daemonPods.get(ds.UID)
	return d.pod
}

// OwnerSelector returns the pod selector of a ReplicaSet, StatefulSet or ReplicationController. These are known only
// when the settings name default spread constraints, which need them.
func (s *Snapshot) OwnerSelector(owner types.UID) *metav1.LabelSelector {
	o, _ := s.selectors.get(owner)
	return o.selector
}

// Broken yields the objects that could not be read, by kind, namespace and name.
func (s *Snapshot) Broken() iter.Seq[Broken] { return s.broken.all() }
