// Package cluster keeps the state of the cluster in a Store with one writer and immutable, numbered snapshots.
//
// Rows (Pod, Node, Seat, …) are immutable: an event replaces a row and never edits it. So a row's pointer is its version, a snapshot is
// a set of tables of pointers, and a reader that derives something costly from a row may cache it by pointer.
//
// A Store holds a Draft, which Update edits, and publishes Snapshots of it. A table is sorted and copied on write in pages of 64 rows, so
// that a snapshot costs little.
//
// Words:
//
//	row         a Pod or Node of this package; a Node row is a machine: a Node, a NodeClaim, or both joined by provider ID
//	news        a change that loops have to look at, unlike a heartbeat
//	seat        the place that a plan promised to a pod (seats.go); a vacant seat waits for the pod that an owner makes anew
//	target      what a seat names: the claim of a machine, or its Node if it has no claim
//	kind        pods with the same class and template labels, of which one may take the seat of another
//	held        a waiting pod that gets no place for now
//	spare       a row for a pod that does not exist, for which a buffer keeps room (spares.go)
//	unjudged    a pod about which kube-scheduler has said nothing yet
//
// Read rows.go, store.go, snapshot.go and view.go first. table.go, tables.go and diff.go are the tables; draft.go, pods.go, machines.go,
// seats.go and spares.go the edits; kinds.go the kinds that are kept as API objects; slim.go what is kept of Nodes and claims.
package cluster

import (
	"cmp"
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// PodKey names a pod.
type PodKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Compare orders pods by namespace, then by name.
func (k PodKey) Compare(other PodKey) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// A Pod is what decisions need of one pod.
type Pod struct {
	PodKey
	PodTimes
	PodFlags
	UID            types.UID
	Class          *podclass.Class
	Labels         *podclass.Labels
	NodeName       string // "" until bound
	Priority       int32
	Restarts       int32 // of its containers
	Phase          corev1.PodPhase
	Owner          *Owner  // the controlling owner, interned, nil for bare pods
	DoNotDisrupt   string  // raw value of karpenter.sh/do-not-disrupt, "" if absent; "true" for a pod with the older annotation
	DisruptionCost float64 // karpenter.sh/disruption-cost, or else controller.kubernetes.io/pod-deletion-cost of the user
	DeletionCost   DeletionCost
	NominatedNode  string // status.nominatedNodeName, if it was not written by us
	OurHint        string // status.nominatedNodeName, if we wrote it
	Version        uint64 // of the object, as the API server counts; 0 where it does not count
	Spare          *Spare // set where the row stands for a pod that a buffer keeps room for
}

// PodTimes are the moments of a pod's life; zero means not yet.
type PodTimes struct {
	Created    time.Time
	Scheduled  time.Time     // transition time of PodScheduled=True
	Judged     time.Time     // when its scheduler last wrote that it finds no place; zero once it has found one
	Started    time.Time     // status.startTime
	ReadySince time.Time     // transition time of Ready=True, zero while it is not ready
	Deleted    time.Time     // deletion timestamp, zero while it is not terminating
	Grace      time.Duration // deletion grace period of a terminating pod, else that of its spec
}

// DeletionCost is the annotation controller.kubernetes.io/pod-deletion-cost of a pod.
type DeletionCost struct {
	Set   bool  // the pod has the annotation
	Ours  bool  // Karpenter wrote the value
	Value int32 // 0 where the text is no number
}

// PodFlags are the conditions of a pod, and the kinds of owner that decide how it is drained.
type PodFlags struct {
	Unschedulable bool // PodScheduled has reason Unschedulable
	Unjudged      bool // kube-scheduler has said nothing about it yet, and no scheduling gate keeps it from looking
	Ready         bool
	NotReady      bool // Ready condition is present and False
	DaemonSet     bool // some owner is an apps/v1 DaemonSet
	Mirror        bool // some owner is a Node
	StatefulSet   bool // some owner is an apps/v1 StatefulSet
	DoNotEvict    bool // it is protected by the older name of the annotation only
}

// Key returns the pod's name.
func (p *Pod) Key() PodKey { return p.PodKey }

// Terminal reports whether the pod has ended: it succeeded or failed.
func (p *Pod) Terminal() bool {
	return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed
}

// VolumeClaims yields the names of the PersistentVolumeClaims of a pod, with the places of their volumes in the class's spec.
func (p *Pod) VolumeClaims() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range p.Class.Spec.Volumes { // a class keeps only volumes with claims
			v := &p.Class.Spec.Volumes[i]
			name := p.Name + "-" + v.Name // of a generic ephemeral volume
			if v.PersistentVolumeClaim != nil {
				name = v.PersistentVolumeClaim.ClaimName
			}
			if !yield(i, name) {
				return
			}
		}
	}
}

// An Owner is an interned controller reference.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// A Node is one machine of the cluster: a Node object, a NodeClaim, or both joined by provider id.
type Node struct {
	// Name is the Node's name; for a claim whose Node has not come, the claim's name.
	Name       string
	ProviderID string
	Node       *corev1.Node   // nil until it registers; trimmed of images and managed fields
	Claim      *v1.NodeClaim  // nil for machines of others
	CSINode    map[string]int // attach limits by driver, -1 for none; nil until the CSINode exists
	Pods       []*Pod         // bound, not terminal; sorted by key
	// Visits counts the pods that were bound to it since the start of the program, without those of DaemonSets. If two looks show the
	// same number, no pod came and went in between.
	Visits int
	// Incomplete says that the Node has the label of a pool but no claim yet, and may belong to a claim that has a row of its own: it
	// has no provider ID or no sign of registration. It does not count as capacity, because its claim already does.
	Incomplete bool
	// MarkedForRemoval is set while a disruption is removing the machine, and if it is being deleted (Deleting).
	MarkedForRemoval bool
}

// A NodeClass is what the core needs of a provider's node class, whatever its kind.
type NodeClass struct {
	Group, Kind, Name string
	UID               types.UID
	Generation        int64
	Deleting          bool
	Deleted           time.Time // when it was deleted, zero if it was not
	// Ready is the condition of that type, nil while there is none. Conditions are all of them.
	Ready      *metav1.Condition
	Conditions []metav1.Condition
	Finalizers []string
}

// A LabelCount says how many pods of one label set run on one node. Pods that are terminal do not count.
type LabelCount struct {
	Namespace   string
	Labels      *podclass.Labels
	Node        string
	Count       int // that are not terminating
	Terminating int
}

// A Broken object could not be read. It is left out, and what was known of it before stays.
type Broken struct {
	Kind, Namespace, Name string
	Err                   string
}
