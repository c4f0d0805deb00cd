// Package cluster holds the picture of the cluster: one writer, immutable numbered snapshots.
//
// Rows (Pod, Node, Pool, …) are immutable: an event replaces a row, it never edits one. So a row's pointer is its
// version, a snapshot is a table of pointers, and a reader that derives something costly from a row may remember it by pointer.
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
	Judged     time.Time     // when its scheduler last said that it finds no place for it; zero again once it has found one
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
	Unjudged      bool // kube-scheduler has said nothing about it yet, and nothing keeps it from looking
	Ready         bool
	NotReady      bool // Ready condition is present and False
	DaemonSet     bool // some owner is an apps/v1 DaemonSet
	Mirror        bool // some owner is a Node
	StatefulSet   bool // some owner is an apps/v1 StatefulSet
	DoNotEvict    bool // it is protected by the older name of the annotation only
}

// Key returns the pod's name.
func (p *Pod) Key() PodKey { return p.PodKey }

// Terminal pods have run to their end.
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
	// Visits counts the pods that were bound to it while we watched, but for those of DaemonSets: of two looks that show the same number,
	// none came and went in between.
	Visits int
	// Incomplete Nodes carry the label of a pool but cannot be told apart from a claim that is still to come, because they lack
	// a provider ID or every sign of registration. They are no capacity: their claim already is.
	Incomplete bool
	// MarkedForRemoval is set while we are removing it (a disruption in progress), or when claim or node is being deleted.
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
