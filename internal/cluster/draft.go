package cluster

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/dedup"
)

// A Draft is the state of the store while it is being changed. Objects that are put must not be changed afterwards.
type Draft struct {
	tables
	now    *epoch
	synced bool
	failed []FailedFeed // replaced, never changed

	share    *dedup.Table                  // equal texts and lists are kept once
	intern   *podclass.Interner            // of classes and labels of pods
	owners   map[types.UID]*ownerRef       // interned owners of pods
	daemons  map[types.UID]map[PodKey]*Pod // live pods of each DaemonSet
	seating  seating
	machines machines
	// gonePlans are DisruptionPlans that were deleted a moment ago.
	gonePlans recent
	clock     time.Time // of the edit that is being made
}

// objectKey names an object within a scope: its namespace, or the node for volume attachments.
type objectKey struct{ scope, name string }

func compareObjects(a, b objectKey) int {
	return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.name, b.name))
}

type daemonPod struct {
	owner types.UID
	pod   *Pod
}

type ownerSelector struct {
	owner    types.UID
	selector *metav1.LabelSelector
}

type brokenKey struct{ kind, namespace, name string }

type countKey struct {
	namespace string
	labels    uint32
	node      string
}

func compareCounts(a, b countKey) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), cmp.Compare(a.labels, b.labels), strings.Compare(a.node, b.node))
}

func newDraft() *Draft {
	now := &epoch{}
	d := &Draft{
		tables:  newTables(now),
		now:     now,
		share:   dedup.New(),
		intern:  podclass.NewInterner(),
		owners:  map[types.UID]*ownerRef{},
		daemons: map[types.UID]map[PodKey]*Pod{},
		seating: newSeating(),
	}
	d.machines = newMachines(&d.nodeTables)
	return d
}

// At sets the time of the edit, for callers with a clock of their own. Without it the time is now.
func (d *Draft) At(now time.Time) { d.clock = now }

func compareBroken(a, b brokenKey) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func (c *NodeClass) ref() v1.NodeClassReference {
	return v1.NodeClassReference{Group: c.Group, Kind: c.Kind, Name: c.Name}
}

func compareRefs(a, b v1.NodeClassReference) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// publish returns a snapshot of the present state. It copies only the heads of tables; later edits copy the pages that they change.
func (d *Draft) publish() *Snapshot {
	d.now.n++
	return &Snapshot{tables: d.tables, synced: d.synced, failed: d.failed}
}

// Synced notes whether the first list of every kind has arrived.
func (d *Draft) Synced(yes bool) { d.synced = yes }

// Hold notes that a waiting pod gets no place for now, because its scheduler does not bind it to the places that it was given. The note
// ends when the pod gets a seat, is bound or is gone, and with Unhold.
func (d *Draft) Hold(pod PodKey) { d.held.put(pod) }

// Unhold takes back Hold.
func (d *Draft) Unhold(pod PodKey) { d.held.delete(pod) }

// PutDisruptionPlan adds or replaces a DisruptionPlan, unless a newer version of it is known or it was deleted. So a loop may put what it
// wrote itself, whether the watch has shown it before or not.
func (d *Draft) PutDisruptionPlan(p *v1alpha1.DisruptionPlan) {
	if old, _ := d.disruptionPlans.get(p.Name); !older(p, old) && !d.gonePlans.has(p.UID) {
		d.disruptionPlans.put(p)
	}
}

// DeleteDisruptionPlan removes a DisruptionPlan.
func (d *Draft) DeleteDisruptionPlan(name string) {
	if old, ok := d.disruptionPlans.get(name); ok {
		d.gonePlans.add(old.UID)
		d.disruptionPlans.delete(name)
	}
}

// PutNodeClass adds or replaces a node class.
func (d *Draft) PutNodeClass(c *NodeClass) { d.classes.put(c) }

// DeleteNodeClass removes a node class.
func (d *Draft) DeleteNodeClass(ref v1.NodeClassReference) { d.classes.delete(ref) }

// PutOwnerSelector notes the pod selector of a ReplicaSet, StatefulSet or ReplicationController.
func (d *Draft) PutOwnerSelector(owner types.UID, selector *metav1.LabelSelector) {
	d.selectors.put(ownerSelector{owner, selector})
}

// DeleteOwnerSelector forgets the pod selector of an owner.
func (d *Draft) DeleteOwnerSelector(owner types.UID) { d.selectors.delete(owner) }

// PutBroken notes an object that could not be read.
func (d *Draft) PutBroken(b Broken) { d.broken.put(b) }

// DeleteBroken removes the note about an object that can be read again, or is gone.
func (d *Draft) DeleteBroken(kind, namespace, name string) {
	d.broken.delete(brokenKey{kind, namespace, name})
}
