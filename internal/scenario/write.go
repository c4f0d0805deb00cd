package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/seat"
	"karpenter.sh/karpenter/internal/core/shape"
)

// Write tells a question as a story that Parse reads, with every name in it replaced. What the story is about, the nodes of first and the
// pods, comes first; other nodes and instance types follow as long as there is room: it has at most so many bytes, and says what it left out.
func Write(story string, in engine.Question, first []string, most int) []byte {
	w := &writer{redactor: newRedactor(), in: in, left: most - 4096}
	return w.write(story, first, most)
}

// Snapshot tells all that a question rests on as a story, with every name or, if it is to be anonymous, with new ones. New names are
// numbered as they come, so that what comes by name first still does where that matters: pods of one age. What the containers of pods are
// started with, and annotations, are in no story. What dynamic resource allocation is about has names in expressions, so it is in no story
// without names: there, pods that use resource claims are refused.
func Snapshot(story string, in engine.Question, anonymous bool) []byte {
	w := &writer{redactor: newRedactor(), in: in, left: unbounded}
	w.keep, w.width = !anonymous, 6
	return w.write(story, nil, unbounded)
}

// Recollection tells a question with what an engine remembered when it was asked it: that engine's answer is the plan of the story. Names are in
// it, also of values of labels that the question does not mention any more.
func Recollection(story string, in engine.Question, m engine.Memory) ([]byte, error) {
	memory, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write what the engine remembers: %w", err)
	}
	return append(Snapshot(story, in, false), fmt.Sprintf("-- memory --\n%s\n", memory)...), nil
}

// unbounded is more than any world is long.
const unbounded = 1 << 50

func (w *writer) write(story string, first []string, most int) []byte {
	settings := w.settings()
	types := w.types(most / 4)
	w.left -= len(types) + len(settings)
	w.pools()
	w.asked = make(map[*cluster.Pod]bool, len(w.in.Pods))
	for _, p := range w.in.Pods {
		w.asked[p] = true
	}
	untold := 0
	for _, p := range slices.SortedStableFunc(slices.Values(w.in.Pods), w.sequence) {
		if p.NodeName == "" && (w.left < most/2 || !w.pod(p)) {
			untold++
		}
	}
	w.asides()
	left := w.nodes(first)
	w.strays()
	w.daemonSets()
	w.namespaces()
	w.devices()
	if left+untold > 0 {
		story += fmt.Sprintf("\n%d nodes and their pods are left out, and %d pods that wait.", left, untold)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n\n-- settings --\n%s-- types --\n%s-- pools --\n# see the objects\n-- objects --\n%s", story, settings, types, append(w.more.Bytes(), w.out.Bytes()...))
	return out.Bytes()
}

// asides writes the pods that are not asked about and have a place that they have not taken yet, in which nobody else can be.
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

// vacant writes the room that is kept for a pod that has not come yet as a pod that takes it, without the volumes that it may not have.
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
	notes := map[string]any{asideAnnotation: "true", plannedAnnotation: w.target(w.in.Snap.Target(s.Target)), sinceAnnotation: w.in.Now.UTC().Format(time.RFC3339Nano)}
	w.line(map[string]any{"kind": "Pod", "metadata": map[string]any{"name": name, "annotations": notes}, "spec": w.object("", fields)})
}

// sequence puts pods that are told as a whole into the order in which the engine takes them, since pods of no age get one by their order.
// A story that is cut begins with what it is about.
func (w *writer) sequence(a, b *cluster.Pod) int {
	if w.width == 0 {
		return 0
	}
	return cmp.Or(a.Created.Compare(b.Created), a.Compare(b.PodKey))
}

// least is what no node is shorter than.
const least = 512

// Annotations of stories say what no field of an object does.
const (
	goingAnnotation   = "going"    // a machine is about to be removed
	askedAnnotation   = "asked"    // a pod that runs is asked about
	asideAnnotation   = "aside"    // a pod that waits is not
	plannedAnnotation = "planned"  // the machine on which a pod has a place
	sinceAnnotation   = "since"    // when it got it
	leftOutAnnotation = "left-out" // how many plans in a row left a pod out
)

// A writer collects objects, one a line, until its room is used up.
type writer struct {
	*redactor
	in    engine.Question
	out   bytes.Buffer // nodes with their pods, which are written as a whole or not at all
	more  bytes.Buffer // what pods and nodes refer to
	left  int
	told  map[string]bool // what is in more
	asked map[*cluster.Pod]bool
}

// put writes an object, redacted but for its own name, unless there is no room for it.
func (w *writer) put(kind, name string, o any) bool {
	told := kind + " " + name
	if namespaced, ok := o.(metav1.Object); ok {
		told += " " + namespaced.GetNamespace()
	}
	if w.told[told] {
		return true
	}
	var fields map[string]any
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return false
	}
	meta, _ := fields["metadata"].(map[string]any)
	delete(fields, "metadata")
	fields = w.object("", fields)
	for k, v := range meta {
		if k != "name" && k != "ownerReferences" && k != "annotations" {
			meta[k] = w.walk(k, v)
		}
	}
	meta["name"] = name
	fields["kind"], fields["metadata"] = kind, meta
	text, err = json.Marshal(fields)
	if err != nil || len(text)+1 > w.left {
		return false
	}
	if w.told == nil {
		w.told = map[string]bool{}
	}
	w.told[told] = true
	w.left -= len(text) + 1
	w.more.Write(append(text, '\n'))
	return true
}

func (w *writer) settings() string {
	var b strings.Builder
	s := &w.in.Settings
	fmt.Fprintf(&b, "reserved=%v\n", s.ReservedCapacity)
	if s.IgnorePreferences {
		b.WriteString("preferences=Ignore\n")
	}
	if s.Selects != nil && w.keep {
		b.WriteString("devices=true\n")
	}
	if s.MinValuesBestEffort {
		b.WriteString("minValues=BestEffort\n")
	}
	if w.width > 0 && !w.in.Now.IsZero() {
		fmt.Fprintf(&b, "now=%s\n", w.in.Now.UTC().Format(time.RFC3339Nano))
	}
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"search", int64(s.Search)}, {"terms", int64(s.Terms)}, {"cut-at", int64(s.CutAt)}, {"node-price", int64(s.NodePrice)},
		{"large", s.Size.Large}, {"large-gain", s.Size.GainPermille},
	} {
		if x.n != 0 {
			fmt.Fprintf(&b, "%s=%d\n", x.name, x.n)
		}
	}
	if s.DefaultTerminationGracePeriod != nil {
		fmt.Fprintf(&b, "grace=%d\n", *s.DefaultTerminationGracePeriod)
	}
	if s.Band != (shape.Band{}) {
		if text, err := json.Marshal(s.Band); err == nil {
			fmt.Fprintf(&b, "band=%s\n", text)
		}
	}
	for i := range s.DefaultSpread {
		c := &s.DefaultSpread[i]
		fmt.Fprintf(&b, "default-spread=%s:%d", w.key(c.TopologyKey), c.MaxSkew)
		if c.WhenUnsatisfiable == corev1.ScheduleAnyway {
			b.WriteString(":anyway")
		}
		if c.MinDomains != nil {
			fmt.Fprintf(&b, ":min=%d", *c.MinDomains)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// types writes the instance types of each catalogue, the cheapest first.
func (w *writer) types(most int) string {
	var b strings.Builder
	if w.width == 0 && len(w.in.Pools) > 0 { // there is hardly room for one catalogue
		w.catalog(&b, w.in.Pools[0].Catalog, nil, most)
		return b.String()
	}
	var told []*cloud.Catalog
	for _, p := range w.in.Pools {
		if slices.Contains(told, p.Catalog) {
			continue
		}
		told = append(told, p.Catalog)
		var pools []string
		for _, q := range w.in.Pools {
			if q.Catalog == p.Catalog {
				pools = append(pools, w.name("pool", q.Pool.Name))
			}
		}
		if len(pools) == len(w.in.Pools) {
			pools = nil // all of them
		}
		w.catalog(&b, p.Catalog, pools, most)
	}
	return b.String()
}

// A sold instance type is one that some pools can launch, all if they are not named.
type sold struct {
	Pools []string `json:"pools,omitempty"`
	cloud.InstanceType
}

func (w *writer) catalog(b *strings.Builder, c *cloud.Catalog, pools []string, most int) {
	all := slices.Clone(c.Types)
	slices.SortStableFunc(all, func(a, b *cloud.InstanceType) int { return cmp.Compare(cheapest(a), cheapest(b)) })
	for _, it := range all {
		redacted := sold{pools, *it}
		redacted.Labels = map[string][]string{}
		for k, values := range it.Labels {
			for _, v := range values {
				redacted.Labels[w.key(k)] = append(redacted.Labels[w.key(k)], w.value(k, v))
			}
			if len(values) == 0 {
				redacted.Labels[w.key(k)] = nil
			}
		}
		redacted.Capacity = w.amounts(it.Capacity)
		redacted.Overhead = cloud.Overhead{
			KubeReserved: w.amounts(it.Overhead.KubeReserved), SystemReserved: w.amounts(it.Overhead.SystemReserved), EvictionThreshold: w.amounts(it.Overhead.EvictionThreshold),
		}
		redacted.Offerings = nil
		for _, o := range it.Offerings {
			labels := map[string]string{}
			for k, v := range o.Labels {
				labels[w.key(k)] = w.value(k, v)
			}
			o.Labels, o.Capacity = labels, w.amounts(o.Capacity)
			redacted.Offerings = append(redacted.Offerings, o)
		}
		text, err := json.Marshal(redacted)
		if err != nil || b.Len()+len(text) > most {
			break
		}
		b.Write(append(text, '\n'))
	}
}

func (w *writer) amounts(in corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range in {
		out[corev1.ResourceName(w.key(string(name)))] = q
	}
	return out
}

func cheapest(it *cloud.InstanceType) cloud.NanoUSD {
	out := cloud.NanoUSD(1 << 62)
	for i := range it.Offerings {
		out = min(out, it.Offerings[i].Price)
	}
	return out
}

func (w *writer) pools() {
	for _, in := range w.in.Pools {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: in.Pool.DeletionTimestamp}}
		t, from := &p.Spec.Template, &in.Pool.Spec.Template
		t.Labels = from.Labels
		t.Spec = v1.NodeClaimTemplateSpec{Requirements: from.Spec.Requirements, Taints: from.Spec.Taints, StartupTaints: from.Spec.StartupTaints, NodeClassRef: from.Spec.NodeClassRef}
		p.Spec.Limits, p.Spec.Weight, p.Spec.Replicas = in.Pool.Spec.Limits, in.Pool.Spec.Weight, in.Pool.Spec.Replicas
		if w.width > 0 { // what its claims say, and no decision rests on
			t.Spec.ExpireAfter, t.Spec.TerminationGracePeriod = from.Spec.ExpireAfter, from.Spec.TerminationGracePeriod
			p.UID = types.UID(w.name("pool", string(in.Pool.UID)))
		}
		w.put("NodePool", w.name("pool", in.Pool.Name), p)
	}
}

// nodes writes those that are named first, then the others, and returns how many are left out.
func (w *writer) nodes(first []string) (left int) {
	for _, named := range []bool{true, false} {
		for n := range w.in.Snap.Nodes() {
			if slices.Contains(first, n.Name) == named && (w.left < least || !w.node(n)) {
				left++
			}
		}
	}
	return left
}

// strays writes the pods on nodes that are not there any more, which others may have to keep away from.
func (w *writer) strays() {
	for p := range w.in.Snap.Pods() {
		if p.NodeName != "" && !p.Terminal() && w.in.Snap.Node(p.NodeName) == nil {
			w.pod(p)
		}
	}
}

// node writes a machine with what runs on it, or nothing.
func (w *writer) node(n *cluster.Node) bool {
	length := w.out.Len()
	name := w.name("node", n.Name)
	provider := "test://" + name
	ok := true
	if n.Claim != nil {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: n.Claim.Labels, DeletionTimestamp: n.Claim.DeletionTimestamp, CreationTimestamp: n.Claim.CreationTimestamp}}
		c.Spec.Requirements, c.Spec.Taints, c.Spec.StartupTaints, c.Spec.Resources = n.Claim.Spec.Requirements, n.Claim.Spec.Taints, n.Claim.Spec.StartupTaints, n.Claim.Spec.Resources
		c.Status.Allocatable, c.Status.Capacity = n.Claim.Status.Allocatable, n.Claim.Status.Capacity
		if since, ok := n.InitializedSince(); ok && w.width > 0 { // for how long room is kept there
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue}, since)
		}
		if condition.IsTrue(n.Claim, v1.ConditionTypeInstanceTerminating) { // the machine is being stopped
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeInstanceTerminating, Status: metav1.ConditionTrue}, w.in.Now)
		}
		ok = w.putMachine("NodeClaim", w.target(n), c, n.MarkedForRemoval, func(o map[string]any) {
			status := o["status"].(map[string]any)
			if n.Claim.Status.ProviderID != "" {
				status["providerID"] = provider
			}
		})
	}
	if n.Node != nil {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Node.Labels, DeletionTimestamp: n.Node.DeletionTimestamp, CreationTimestamp: n.Node.CreationTimestamp}}
		o.Spec.Taints, o.Spec.Unschedulable = n.Node.Spec.Taints, n.Node.Spec.Unschedulable
		o.Status.Allocatable, o.Status.Capacity = n.Node.Status.Allocatable, n.Node.Status.Capacity
		ok = ok && w.putMachine("Node", name, o, n.MarkedForRemoval, func(o map[string]any) {
			if n.ProviderID != "" {
				o["spec"].(map[string]any)["providerID"] = provider
			}
		})
	}
	if n.CSINode != nil {
		ok = ok && w.csiNode(name, n.CSINode)
	}
	for _, p := range n.Pods {
		ok = ok && w.pod(p)
	}
	if !ok {
		w.left += w.out.Len() - length
		w.out.Truncate(length)
	}
	return ok
}

// putMachine writes an object of which edit adds what must not be redacted.
func (w *writer) putMachine(kind, name string, o any, going bool, edit func(map[string]any)) bool {
	text, err := json.Marshal(o)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return false
	}
	meta := w.object("", fields["metadata"].(map[string]any))
	meta["name"], meta["uid"] = name, name
	if going {
		meta["annotations"] = map[string]any{goingAnnotation: "true"}
	}
	delete(fields, "metadata")
	fields = w.object("", fields)
	fields["kind"], fields["metadata"] = kind, meta
	for _, part := range []string{"spec", "status"} {
		if fields[part] == nil {
			fields[part] = map[string]any{}
		}
	}
	edit(fields)
	return w.line(fields)
}

func (w *writer) line(fields map[string]any) bool {
	text, err := json.Marshal(fields)
	if err != nil || len(text)+1 > w.left {
		return false
	}
	w.left -= len(text) + 1
	w.out.Write(append(text, '\n'))
	return true
}

func (w *writer) csiNode(name string, limits map[string]int) bool {
	drivers := []any{}
	for _, driver := range slices.Sorted(keys(limits)) {
		d := map[string]any{"name": driver, "nodeID": name}
		if limits[driver] >= 0 {
			d["allocatable"] = map[string]any{"count": limits[driver]}
		}
		drivers = append(drivers, d)
	}
	return w.line(map[string]any{"kind": "CSINode", "metadata": map[string]any{"name": name}, "spec": map[string]any{"drivers": drivers}})
}

func keys[V any](m map[string]V) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// pod writes a pod with the volume claims that it names.
func (w *writer) pod(p *cluster.Pod) bool {
	name := p.Name
	if !w.keep {
		name = w.name("pod", p.Namespace+"/"+p.Name)
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Labels: p.Labels.Map, CreationTimestamp: metav1.NewTime(p.Created)}, Spec: *p.Class.Spec.DeepCopy()}
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
			w.names["disk\x00"+claim] = name + "-" + w.name("name", v.Name)
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
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": api, "kind": p.Owner.Kind, "name": owner, "uid": owner, "controller": true}}
	}
	if notes := w.notes(p); len(notes) > 0 {
		meta["annotations"] = notes
	}
	delete(fields, "metadata")
	fields = w.object("", fields)
	fields["kind"], fields["metadata"] = "Pod", meta
	if p.Spare != nil {
		delete(fields["spec"].(map[string]any), "priority") // a spare has the least by itself
		fields["kind"], meta["annotations"] = "Spare", map[string]any{v1.CapacityBufferNameAnnotationKey: w.name("buffer", p.Namespace+"/"+p.Spare.Buffer)}
	}
	return w.line(fields)
}

// notes are the annotations by which a story that is told as a whole says what is asked about a pod, and where it has a place.
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

// target is what a machine is called where a pod has a place on it: by its claim.
func (w *writer) target(n *cluster.Node) string {
	node := w.name("node", n.Name)
	switch {
	case n.Claim == nil:
		return node
	case w.keep:
		return n.Claim.Name
	}
	return "claim-" + node
}

// owner returns the new name of an owner, which is its UID too, and writes what it selects, if that matters.
func (w *writer) owner(namespace string, o *cluster.Owner) string {
	name := w.name("owner", namespace+"/"+o.Name+"/"+o.Kind)
	if sel := w.in.Snap.OwnerSelector(o.UID); sel != nil {
		w.put("ReplicaSet", name, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"selector": sel}})
	}
	return name
}

func (w *writer) volumeClaim(namespace, name string) {
	pvc := w.in.Snap.PVC(namespace, name)
	if pvc == nil {
		return
	}
	o := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Annotations: map[string]string{}, DeletionTimestamp: pvc.DeletionTimestamp}, Spec: pvc.Spec, Status: corev1.PersistentVolumeClaimStatus{Phase: pvc.Status.Phase}}
	for _, key := range []string{"pv.kubernetes.io/bind-completed"} {
		if v, ok := pvc.Annotations[key]; ok {
			o.Annotations[key] = v
		}
	}
	w.put("PersistentVolumeClaim", w.name("disk", name), o)
	if pv := w.in.Snap.PV(pvc.Spec.VolumeName); pv != nil {
		w.volume(pv)
	}
	if pvc.Spec.StorageClassName == nil {
		return
	}
	if sc := w.in.Snap.StorageClass(*pvc.Spec.StorageClassName); sc != nil && !w.told["StorageClass "+w.name("class", sc.Name)] {
		c := sc.DeepCopy()
		c.ObjectMeta, c.Parameters, c.MountOptions = metav1.ObjectMeta{}, nil, nil
		w.put("StorageClass", w.name("class", sc.Name), c)
		for pv := range w.in.Snap.PVs() {
			if sc.Provisioner == "kubernetes.io/no-provisioner" && pv.Spec.StorageClassName == sc.Name && pv.Status.Phase == corev1.VolumeAvailable {
				w.volume(pv) // pods that wait may get it
			}
		}
	}
}

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

func (w *writer) daemonSets() {
	for set := range w.in.Snap.DaemonSets() {
		name := w.name("owner", set.Namespace+"/"+set.Name+"/DaemonSet")
		spec := cutDaemon(&set.Spec.Template.Spec)
		w.put("DaemonSet", name, map[string]any{
			"metadata": map[string]any{"namespace": set.Namespace},
			"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": set.Spec.Template.Labels}, "spec": spec}},
		})
	}
}

// cutDaemon keeps of a DaemonSet's pod what decides where it runs and what it takes.
func cutDaemon(in *corev1.PodSpec) *corev1.PodSpec {
	containers := func(in []corev1.Container) []corev1.Container {
		var out []corev1.Container
		for i := range in {
			out = append(out, corev1.Container{Resources: in[i].Resources, Ports: in[i].Ports, RestartPolicy: in[i].RestartPolicy})
		}
		return out
	}
	return &corev1.PodSpec{
		InitContainers: containers(in.InitContainers), Containers: containers(in.Containers), NodeSelector: in.NodeSelector, Affinity: in.Affinity,
		Tolerations: in.Tolerations, Overhead: in.Overhead, Priority: in.Priority, HostNetwork: in.HostNetwork, ResourceClaims: in.ResourceClaims,
	}
}

func (w *writer) namespaces() {
	for ns := range w.in.Snap.Namespaces() {
		w.put("Namespace", w.name("ns", ns.Name), map[string]any{"metadata": map[string]any{"labels": ns.Labels}})
	}
	if len(w.in.Settings.DefaultSpread) == 0 {
		return // Services matter for default constraints only
	}
	for _, p := range w.in.Pods {
		for s := range w.in.Snap.Services(p.Namespace) {
			w.put("Service", w.name("service", p.Namespace+"/"+s.Name), map[string]any{
				"metadata": map[string]any{"namespace": p.Namespace}, "spec": map[string]any{"selector": s.Spec.Selector},
			})
		}
	}
}
