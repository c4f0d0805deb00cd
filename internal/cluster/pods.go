package cluster

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// HintManager is the field manager under which Karpenter writes status.nominatedNodeName. It tells our hints from
// kube-scheduler's preemptions.
const HintManager = "karpenter-hint"

// PutPod adds or replaces a pod, and updates everything that is derived from pods: rows of nodes, counts, seats. Only the row is kept,
// not the object.
func (d *Draft) PutPod(pod *corev1.Pod) {
	row := d.newPod(pod)
	old, replaced := d.pods.put(row)
	switch {
	case replaced && sameSeat(old, row):
		d.swap(row)
	case replaced:
		d.leave(old)
		d.enter(row)
	default:
		d.enter(row)
	}
	d.seatPod(old, row)
	if replaced {
		d.release(old)
	}
	if row.Terminal() || replaced && row.NodeName != "" && row.NodeName != old.NodeName {
		d.Unhold(row.PodKey)
	}
}

// DeletePod removes a pod.
func (d *Draft) DeletePod(key PodKey) {
	old, ok := d.pods.delete(key)
	if !ok {
		return
	}
	d.leave(old)
	d.unseat(old)
	d.release(old)
	d.Unhold(key)
}

// newPod returns the row of a pod, with its quantities bounded (package bounded). The row holds references to interned values, which
// release gives up.
func (d *Draft) newPod(pod *corev1.Pod) *Pod {
	pod = bounded.Pod(pod)
	class := d.intern.Class(pod)
	row := &Pod{
		PodKey:       PodKey{class.Namespace, pod.Name},
		UID:          pod.UID,
		Class:        class,
		Labels:       d.intern.Labels(pod.Labels),
		NodeName:     d.nodeName(pod.Spec.NodeName),
		PodTimes:     PodTimes{Created: pod.CreationTimestamp.Time},
		Phase:        pod.Status.Phase,
		Owner:        d.owner(pod),
		DoNotDisrupt: pod.Annotations[v1.DoNotDisruptAnnotationKey],
		PodFlags: PodFlags{
			DaemonSet:   podclass.OwnedBy(pod, "DaemonSet"),
			StatefulSet: podclass.OwnedBy(pod, "StatefulSet"),
			Mirror:      isMirror(pod),
			Unjudged:    len(pod.Spec.SchedulingGates) == 0,
		},
		Version: VersionOf(pod),
	}
	if row.DoNotDisrupt == "" && pod.Annotations[v1.DoNotEvictAnnotationKey] == "true" {
		row.DoNotDisrupt, row.DoNotEvict = "true", true
	}
	if pod.Spec.Priority != nil {
		row.Priority = *pod.Spec.Priority
	}
	for i := range pod.Status.ContainerStatuses {
		row.Restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	row.DisruptionCost, row.DeletionCost = costs(pod.Annotations)
	if pod.Status.StartTime != nil {
		row.Started = pod.Status.StartTime.Time
	}
	row.setDeletion(pod)
	row.setConditions(pod.Status.Conditions)
	row.setJudged(pod)
	row.setNomination(pod)
	return row
}

// costs reads the annotations about the cost of a pod's removal. disruption is the value of Karpenter's annotation if that is a number,
// otherwise the pod deletion cost of Kubernetes. A pod deletion cost that Karpenter wrote does not count, because it depends on the node.
func costs(annotations map[string]string) (disruption float64, deletion DeletionCost) {
	text, set := annotations[corev1.PodDeletionCost]
	value, err := strconv.ParseInt(text, 10, 32)
	deletion = DeletionCost{Set: set, Ours: set && text == annotations[v1.PodDeletionCostAnnotationKey]}
	if err == nil {
		deletion.Value = int32(value)
	}
	if own, err := strconv.ParseInt(annotations[v1.DisruptionCostAnnotationKey], 10, 32); err == nil {
		return float64(own), deletion
	}
	if deletion.Ours {
		return 0, deletion
	}
	return float64(deletion.Value), deletion
}

// VersionOf returns the resource version of an object as the number that it is, later ones being greater, or 0.
func VersionOf(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// setDeletion sets when the pod was deleted and its grace period: that of the deletion if there is one, else that of the spec.
func (row *Pod) setDeletion(pod *corev1.Pod) {
	grace := pod.Spec.TerminationGracePeriodSeconds
	if pod.DeletionTimestamp != nil {
		row.Deleted = pod.DeletionTimestamp.Time
		if pod.DeletionGracePeriodSeconds != nil {
			grace = pod.DeletionGracePeriodSeconds
		}
	}
	if grace != nil {
		row.Grace = time.Duration(*grace) * time.Second
	}
}

// setConditions reads the conditions PodScheduled and Ready. Any PodScheduled condition means that the pod is judged.
func (row *Pod) setConditions(conditions []corev1.PodCondition) {
	for i := range conditions {
		switch c := &conditions[i]; c.Type {
		case corev1.PodScheduled:
			row.Unjudged = false
			row.Unschedulable = c.Reason == corev1.PodReasonUnschedulable
			if c.Status == corev1.ConditionTrue {
				row.Scheduled = c.LastTransitionTime.Time
			}
		case corev1.PodReady:
			row.Ready, row.NotReady = c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionFalse
			if row.Ready {
				row.ReadySince = c.LastTransitionTime.Time
			}
		}
	}
}

// setJudged sets when the pod's scheduler last wrote that it finds no place. The condition has the time of the first refusal. Of later
// refusals with another message only the managed fields have the time.
func (row *Pod) setJudged(pod *corev1.Pod) {
	if !row.Unschedulable || row.NodeName != "" {
		return
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			row.Judged = c.LastTransitionTime.Time
		}
	}
	for i := range pod.ManagedFields {
		f := &pod.ManagedFields[i]
		if f.Time != nil && f.Time.After(row.Judged) && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(),
			[]byte(`\"PodScheduled\"`)) {
			row.Judged = f.Time.Time
		}
	}
}

func (row *Pod) setNomination(pod *corev1.Pod) {
	switch name := pod.Status.NominatedNodeName; {
	case name == "":
	case isOurHint(pod.ManagedFields):
		row.OurHint = name
	default:
		row.NominatedNode = name
	}
}

// isOurHint reports whether Karpenter last wrote status.nominatedNodeName, by the managed fields, which are not kept.
func isOurHint(fields []metav1.ManagedFieldsEntry) bool {
	for i := range fields {
		f := &fields[i]
		if f.Manager == HintManager && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:nominatedNodeName"`)) {
			return true
		}
	}
	return false
}

func isMirror(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.APIVersion == "v1" && r.Kind == "Node"
	})
}

// nodeName returns the one copy of a node's name that its pods share.
func (d *Draft) nodeName(name string) string {
	if n := d.machines.nodes[name]; n != nil {
		return n.Name
	}
	return name
}

// ownerRef is an interned owner with the number of pods that refer to it.
type ownerRef struct {
	Owner
	pods int
}

// owner returns the interned controller of a pod, nil if it has none, and counts the reference; release gives it up.
func (d *Draft) owner(pod *corev1.Pod) *Owner {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return nil
	}
	o := d.owners[ref.UID]
	if o == nil {
		o = &ownerRef{Owner: Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}}
		d.owners[ref.UID] = o
	}
	o.pods++
	return &o.Owner
}

// release gives up the references of a removed row to its interned class, labels and owner, which newPod counted.
func (d *Draft) release(row *Pod) {
	d.intern.Release(row.Class, row.Labels)
	if row.Owner == nil {
		return
	}
	if o := d.owners[row.Owner.UID]; o != nil {
		if o.pods--; o.pods == 0 {
			delete(d.owners, row.Owner.UID)
		}
	}
}

// sameSeat reports whether a bound pod stays on its node and everything that is derived from pods stays the same. Then swap is enough,
// which is cheaper than leave and enter. Most events are like this.
func sameSeat(old, row *Pod) bool {
	return row.NodeName != "" && row.NodeName == old.NodeName && !row.Terminal() && !old.Terminal() &&
		row.Labels == old.Labels && row.Owner == old.Owner && row.DaemonSet == old.DaemonSet &&
		row.Deleted.IsZero() == old.Deleted.IsZero() && repels(row) == repels(old)
}

// swap replaces a row for which sameSeat is true.
func (d *Draft) swap(row *Pod) {
	pods := slices.Clone(d.machines.bound[row.NodeName])
	if at, found := slices.BinarySearchFunc(pods, row.PodKey, comparePodKey); found {
		pods[at] = row
	}
	d.machines.setBound(row.NodeName, pods)
	if repels(row) {
		d.repelling.put(row)
	}
	if row.DaemonSet && row.Owner != nil && row.Deleted.IsZero() {
		d.daemons[row.Owner.UID][row.PodKey] = row
		if best, _ := d.daemonPods.get(row.Owner.UID); best.pod.PodKey == row.PodKey {
			d.daemonPods.put(daemonPod{row.Owner.UID, row})
		}
	}
}

// enter adds a row to everything that is derived from pods: the unbound pods, or the pods of its node, counts by labels, pods with
// anti-affinity and pods of DaemonSets.
func (d *Draft) enter(row *Pod) {
	if row.NodeName == "" {
		d.unbound.put(row)
		return
	}
	if row.Terminal() {
		return
	}
	if !row.DaemonSet {
		d.machines.visits[row.NodeName]++
	}
	pods := d.machines.bound[row.NodeName]
	at, _ := slices.BinarySearchFunc(pods, row.PodKey, comparePodKey)
	grown := make([]*Pod, 0, len(pods)+1)
	d.machines.setBound(row.NodeName, append(append(append(grown, pods[:at]...), row), pods[at:]...))
	d.count(row, 1)
	if repels(row) {
		d.repelling.put(row)
	}
	d.enterDaemon(row)
}

// leave undoes enter.
func (d *Draft) leave(row *Pod) {
	if row.NodeName == "" {
		if now, ok := d.unbound.get(row.PodKey); ok && now == row {
			d.unbound.delete(row.PodKey)
		}
		return
	}
	if row.Terminal() {
		return
	}
	pods := d.machines.bound[row.NodeName]
	if at, found := slices.BinarySearchFunc(pods, row.PodKey, comparePodKey); found {
		shrunk := make([]*Pod, 0, len(pods)-1)
		d.machines.setBound(row.NodeName, append(append(shrunk, pods[:at]...), pods[at+1:]...))
	}
	d.count(row, -1)
	if repels(row) {
		d.repelling.delete(row.PodKey)
	}
	d.leaveDaemon(row)
}

func comparePodKey(p *Pod, key PodKey) int { return p.PodKey.Compare(key) }

// count keeps the number of pods by label set and node.
func (d *Draft) count(row *Pod, by int) {
	key := countKey{row.Namespace, row.Labels.ID, row.NodeName}
	c, ok := d.labels.get(key)
	if !ok {
		c = LabelCount{Namespace: row.Namespace, Labels: row.Labels, Node: row.NodeName}
	}
	if row.Deleted.IsZero() {
		c.Count += by
	} else {
		c.Terminating += by
	}
	if c.Count == 0 && c.Terminating == 0 {
		d.labels.delete(key)
		return
	}
	d.labels.put(c)
}

// repels reports whether a pod has required anti-affinity, which also keeps other pods away from its domain.
func repels(p *Pod) bool {
	a := p.Class.Spec.Affinity
	return a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

// enterDaemon keeps the newest live pod of each DaemonSet.
func (d *Draft) enterDaemon(row *Pod) {
	if !row.DaemonSet || row.Owner == nil || !row.Deleted.IsZero() {
		return
	}
	owner := row.Owner.UID
	if d.daemons[owner] == nil {
		d.daemons[owner] = map[PodKey]*Pod{}
	}
	d.daemons[owner][row.PodKey] = row
	if best, ok := d.daemonPods.get(owner); !ok || newer(row, best.pod) {
		d.daemonPods.put(daemonPod{owner, row})
	}
}

// leaveDaemon undoes enterDaemon: if the row was the newest of its DaemonSet, the newest of the others takes its place.
func (d *Draft) leaveDaemon(row *Pod) {
	if !row.DaemonSet || row.Owner == nil || !row.Deleted.IsZero() {
		return
	}
	owner := row.Owner.UID
	delete(d.daemons[owner], row.PodKey)
	if len(d.daemons[owner]) == 0 {
		delete(d.daemons, owner)
		d.daemonPods.delete(owner)
		return
	}
	if best, _ := d.daemonPods.get(owner); best.pod != row {
		return
	}
	var best *Pod
	for _, p := range d.daemons[owner] {
		if best == nil || newer(p, best) {
			best = p
		}
	}
	d.daemonPods.put(daemonPod{owner, best})
}

// newer reports whether a is newer than b. Of pods of the same age the pod whose name sorts later counts as newer.
func newer(a, b *Pod) bool {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c > 0
	}
	return a.PodKey.Compare(b.PodKey) > 0
}
