package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/compile"
)

// sequence orders pods as the engine takes them, because pods without a creation time get one by their order. A story
// that is cut keeps the order of the question.
func (w *writer) sequence(a, b *cluster.Pod) int {
	if w.width == 0 {
		return 0
	}
	return cmp.Or(a.Created.Compare(b.Created), a.Compare(b.PodKey))
}

// pod writes a pod with the volume claims that it names, and reports whether there was room.
func (w *writer) pod(p *cluster.Pod) bool {
	name := p.Name
	if !w.keep {
		name = w.name("pod", p.Namespace+"/"+p.Name)
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Labels: p.Labels.Map,
		CreationTimestamp: metav1.NewTime(p.Created)}, Spec: *p.Class.Spec.DeepCopy()}
	o.Spec.NodeName = p.NodeName
	if p.NodeName == "" {
		o.Status.Phase = corev1.PodPending
	}
	if p.Priority != 0 {
		o.Spec.Priority = &p.Priority
	}
	if !p.Deleted.IsZero() {
		o.DeletionTimestamp = new(metav1.NewTime(p.Deleted))
	}
	for i := range o.Spec.Volumes {
		v := &o.Spec.Volumes[i]
		claim := p.Name + "-" + v.Name
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		} else { // its claim is named after the pod and the volume
			w.names[redacted{"disk", claim}] = name + "-" + w.name("name", v.Name)
		}
		w.volumeClaim(p.Namespace, claim)
	}
	text, err := json.Marshal(o)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return false
	}
	meta := w.object("", fields["metadata"].(map[string]any))
	meta["name"] = name
	if p.Owner != nil {
		owner := w.owner(p.Namespace, p.Owner)
		api := "v1"
		if p.DaemonSet || p.StatefulSet || p.Owner.APIVersion == "apps/v1" {
			api = "apps/v1"
		}
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": api, "kind": p.Owner.Kind, "name": owner,
			"uid": owner, "controller": true}}
	}
	if notes := w.notes(p); len(notes) > 0 {
		meta["annotations"] = notes
	}
	delete(fields, "metadata")
	fields = w.object("", fields)
	fields["kind"], fields["metadata"] = "Pod", meta
	if p.Spare != nil {
		delete(fields["spec"].(map[string]any), "priority") // a spare has the least by itself
		fields["kind"], meta["annotations"] = "Spare",
			map[string]any{v1.CapacityBufferNameAnnotationKey: w.name("buffer", p.Namespace+"/"+p.Spare.Buffer)}
	}
	return w.line(fields)
}

// notes returns the annotations of a pod in a story that is written as a whole: whether it is asked about, and where
// it has a seat.
func (w *writer) notes(p *cluster.Pod) map[string]any {
	out := map[string]any{}
	if w.width == 0 || p.Spare != nil {
		return out
	}
	if plan, ok := w.in.Snap.Planned(p.PodKey); ok {
		if n := w.in.Snap.Target(plan.Target); n != nil {
			out[plannedAnnotation], out[sinceAnnotation] = w.target(n), plan.At.UTC().Format(time.RFC3339Nano)
		}
	}
	if n := w.in.LeftOut[p.PodKey]; n > 0 {
		out[leftOutAnnotation] = fmt.Sprint(n)
	}
	switch {
	case p.NodeName != "" && w.asked[p]:
		out[askedAnnotation] = "true"
	case p.NodeName == "" && !w.asked[p]:
		out[asideAnnotation] = "true"
	}
	return out
}

// owner returns the new name of an owner, which is its UID too. It also writes the owner's selector if the store has
// one.
func (w *writer) owner(namespace string, o *cluster.Owner) string {
	name := w.name("owner", namespace+"/"+o.Name+"/"+o.Kind)
	if sel := w.in.Snap.OwnerSelector(o.UID); sel != nil {
		w.put("ReplicaSet", name, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"selector": sel}})
	}
	return name
}

// volumeClaim writes a volume claim with its driver, volume and StorageClass. If the class has no provisioner, it
// writes all free volumes of the class, because pods that wait may get them.
func (w *writer) volumeClaim(namespace, name string) {
	pvc := cluster.PVCs.Get(w.in.Snap, namespace, name)
	if pvc == nil {
		return
	}
	o := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Annotations: map[string]string{}, DeletionTimestamp: pvc.DeletionTimestamp}, Spec: pvc.Spec,
		Status: corev1.PersistentVolumeClaimStatus{Phase: pvc.Status.Phase}}
	for _, key := range []string{"pv.kubernetes.io/bind-completed"} {
		if v, ok := pvc.Annotations[key]; ok {
			o.Annotations[key] = v
		}
	}
	w.put("PersistentVolumeClaim", w.name("disk", name), o)
	d := cluster.CSIDrivers.Get(w.in.Snap, compile.DriverOf(w.in.Snap, pvc))
	if d != nil && !w.told[toldKey{kind: "CSIDriver", name: d.Name}] {
		w.put("CSIDriver", d.Name, &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			PreventPodSchedulingIfMissing: d.Spec.PreventPodSchedulingIfMissing}})
	}
	if pv := cluster.PVs.Get(w.in.Snap, pvc.Spec.VolumeName); pv != nil {
		w.volume(pv)
	}
	if pvc.Spec.StorageClassName == nil {
		return
	}
	sc := cluster.StorageClasses.Get(w.in.Snap, *pvc.Spec.StorageClassName)
	if sc != nil && !w.told[toldKey{kind: "StorageClass", name: w.name("class", sc.Name)}] {
		c := sc.DeepCopy()
		c.ObjectMeta, c.Parameters, c.MountOptions = metav1.ObjectMeta{}, nil, nil
		w.put("StorageClass", w.name("class", sc.Name), c)
		for pv := range cluster.PVs.All(w.in.Snap) {
			if sc.Provisioner == "kubernetes.io/no-provisioner" && pv.Spec.StorageClassName == sc.Name &&
				pv.Status.Phase == corev1.VolumeAvailable {
				w.volume(pv) // pods that wait may get it
			}
		}
	}
}

// volume writes a volume without how to access it.
func (w *writer) volume(pv *corev1.PersistentVolume) {
	c := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: pv.Labels, DeletionTimestamp: pv.DeletionTimestamp}}
	c.Spec.NodeAffinity, c.Spec.StorageClassName, c.Status.Phase = pv.Spec.NodeAffinity, pv.Spec.StorageClassName, pv.Status.Phase
	c.Spec.Capacity, c.Spec.AccessModes, c.Spec.VolumeMode = pv.Spec.Capacity, pv.Spec.AccessModes, pv.Spec.VolumeMode
	if pv.Spec.CSI != nil {
		c.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: pv.Spec.CSI.Driver}
	}
	if pv.Spec.AWSElasticBlockStore != nil {
		c.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{}
	}
	if pv.Spec.Local != nil {
		c.Spec.Local = &corev1.LocalVolumeSource{}
	}
	if pv.Spec.HostPath != nil {
		c.Spec.HostPath = &corev1.HostPathVolumeSource{}
	}
	w.put("PersistentVolume", w.name("volume", pv.Name), c)
}

// asides writes what takes room besides the pods that are asked about: pods that have a seat, and seats that are kept
// for pods that have not come yet.
func (w *writer) asides() {
	if w.width == 0 {
		return
	}
	for key := range w.in.Snap.Plans() {
		if p := w.in.Snap.Pod(key); p != nil && p.NodeName == "" && !w.asked[p] {
			w.pod(p)
		}
	}
	n := 0
	for s := range w.in.Snap.Seats() {
		if s.Vacant() && seat.Kept(w.in.Snap, s, w.in.Now) {
			n++
			w.vacant(fmt.Sprintf("vacant-seat-%d", n), &s)
		}
	}
}

// vacant writes a seat without pod as a pod that has it, without volumes, which do not exist.
func (w *writer) vacant(name string, s *cluster.Seat) {
	spec := s.Class.Spec.DeepCopy()
	spec.Volumes = nil
	text, err := json.Marshal(spec)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return
	}
	notes := map[string]any{asideAnnotation: "true", plannedAnnotation: w.target(w.in.Snap.Target(s.Target)),
		sinceAnnotation: w.in.Now.UTC().Format(time.RFC3339Nano)}
	w.line(map[string]any{"kind": "Pod", "metadata": map[string]any{"name": name, "annotations": notes}, "spec": w.object("", fields)})
}

// strays writes the pods on nodes that are gone, because others may have to keep away from them.
func (w *writer) strays() {
	for p := range w.in.Snap.Pods() {
		if p.NodeName != "" && !p.Terminal() && w.in.Snap.Node(p.NodeName) == nil {
			w.pod(p)
		}
	}
}

// daemonSets writes the DaemonSets.
func (w *writer) daemonSets() {
	for set := range cluster.DaemonSets.All(w.in.Snap) {
		name := w.name("owner", set.Namespace+"/"+set.Name+"/DaemonSet")
		spec := cutDaemon(&set.Spec.Template.Spec)
		w.put("DaemonSet", name, map[string]any{
			"metadata": map[string]any{"namespace": set.Namespace},
			"spec": map[string]any{"template": map[string]any{
				"metadata": map[string]any{"labels": set.Spec.Template.Labels}, "spec": spec}},
		})
	}
}

// cutDaemon returns the parts of a DaemonSet's pod that decide where it runs and what it takes.
func cutDaemon(in *corev1.PodSpec) *corev1.PodSpec {
	containers := func(in []corev1.Container) []corev1.Container {
		var out []corev1.Container
		for i := range in {
			out = append(out, corev1.Container{Resources: in[i].Resources, Ports: in[i].Ports, RestartPolicy: in[i].RestartPolicy,
				RestartPolicyRules: in[i].RestartPolicyRules})
		}
		return out
	}
	return &corev1.PodSpec{
		InitContainers: containers(in.InitContainers), Containers: containers(in.Containers),
		NodeSelector: in.NodeSelector, Affinity: in.Affinity,
		Tolerations: in.Tolerations, Overhead: in.Overhead, Priority: in.Priority, HostNetwork: in.HostNetwork, HostUsers: in.HostUsers,
		ResourceClaims: in.ResourceClaims,
	}
}
