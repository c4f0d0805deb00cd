package scenario

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// readNodes reads nodes: a name with pool, cpu, mem, gpu, pods (those of its type where it says none of them),
// zone, ct, type, labels, taint, volumes=driver:limit, starting, going (it is about to be removed), cordoned,
// protected[=value] (do-not-disrupt), unready, declares=feature, unlabelled=key; what stateOf reads of its claim follows.
func (w *World) readNodes(text string) error {
	return eachLine(text, func(l *line) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.name, UID: types.UID("node-" + l.name),
			Labels: map[string]string{corev1.LabelHostname: l.name}}}
		n.Spec.ProviderID = "test://" + l.name
		maps.Copy(n.Labels, pairs(l.get("labels", "")))
		for _, key := range []string{"zone", "ct", "type", "arch", "os"} {
			if l.has(key) {
				n.Labels[longKey(key)] = l.get(key, "")
			}
		}
		var err error
		if n.Status.Allocatable, err = w.sizeOf(l); err != nil {
			return err
		}
		n.Status.Capacity, n.Status.DeclaredFeatures = n.Status.Allocatable, l.all("declares")
		for _, x := range l.all("taint") {
			n.Spec.Taints = append(n.Spec.Taints, taintOf(x))
		}
		n.Spec.Unschedulable = l.has("cordoned")
		n.Annotations = protectionOf(l)
		for _, x := range l.all("do-not-consolidate") {
			n.Annotations = map[string]string{v1.DoNotConsolidateAnnotationKey: x}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: readiness(!l.has("unready"))}}
		if err := w.readAttachLimits(n.Name, l); err != nil {
			return err
		}
		c := w.claimOf(n, l.get("pool", ""), !l.has("starting"))
		if err := w.stateOf(c, l); err != nil {
			return err
		}
		for _, key := range l.all("unlabelled") {
			delete(n.Labels, longKey(key))
		}
		w.putNode(n, c, l.has("going"))
		return nil
	})
}

// sizeOf returns what a node has for pods: as its line says, or as its type has it if the line says nothing.
func (w *World) sizeOf(l *line) (corev1.ResourceList, error) {
	if it := w.typeOf(l.get("type", "")); it != nil && !l.has("cpu") && !l.has("mem") && !l.has("pods") && !l.has("gpu") {
		return it.Capacity, nil
	}
	out := corev1.ResourceList{}
	for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "cpu", corev1.ResourceMemory: "mem",
		corev1.ResourcePods: "pods", "gpu.example/gpu": "gpu"} {
		q, err := bounded.ParseQuantity(l.get(key, map[string]string{"cpu": "4", "mem": "4Gi", "pods": "110", "gpu": "0"}[key]))
		if err != nil {
			return nil, err
		}
		out[name] = q
	}
	return out, nil
}

// protectionOf returns the annotation do-not-disrupt that a line asks for by protected or protected=value, else nil.
func protectionOf(l *line) map[string]string {
	if !l.has("protected") {
		return nil
	}
	return map[string]string{v1.DoNotDisruptAnnotationKey: cmp.Or(l.get("protected", ""), "true")}
}

// readiness returns True or False as a condition's status.
func readiness(ready bool) corev1.ConditionStatus {
	if ready {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// claimOf returns the claim of a node, opened an hour ago, and adds to the node the labels that go with it. It
// returns nil if the node is of no pool.
func (w *World) claimOf(n *corev1.Node, pool string, ready bool) *v1.NodeClaim {
	if pool == "" {
		return nil
	}
	n.Labels[v1.NodePoolLabelKey] = pool
	n.Labels[v1.NodeRegisteredLabelKey] = "true"
	reached := []string{v1.ConditionTypeRegistered}
	if ready {
		n.Labels[v1.NodeInitializedLabelKey] = "true"
		reached = append(reached, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable)
	}
	opened := w.Now.Add(-time.Hour)
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name, UID: types.UID("claim-" + n.Name),
		Labels: maps.Clone(n.Labels), CreationTimestamp: metav1.NewTime(opened)}}
	c.Spec.NodeClassRef = &classRef
	c.Status.ProviderID, c.Status.NodeName = n.Spec.ProviderID, n.Name
	c.Status.Allocatable, c.Status.Capacity = n.Status.Allocatable, n.Status.Capacity
	condition.SetTrue(c, v1.ConditionTypeLaunched, opened.Add(-24*time.Hour)) // before any drift in a story
	for _, kind := range reached {
		condition.SetTrue(c, kind, opened)
	}
	return c
}

// stateOf reads the state of a claim: ready= for how long it has been initialised, quiet (a pod came or went a moment
// ago), drifted= for how long, grace= its terminationGracePeriod, vacant= for how long no pod has been there (else
// always), deleting, stopping (the machine).
func (w *World) stateOf(c *v1.NodeClaim, l *line) error {
	ago := map[string]time.Duration{}
	for _, key := range []string{"drifted", "grace", "ready", "vacant"} {
		for _, x := range l.all(key) {
			d, err := time.ParseDuration(x)
			if err != nil {
				return err
			}
			ago[key] = d
		}
	}
	if c == nil {
		return nil
	}
	if d, ok := ago["drifted"]; ok {
		condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift"}, w.Now.Add(-d))
	}
	if d, ok := ago["ready"]; ok {
		condition.Clear(c, v1.ConditionTypeInitialized, w.Now)
		condition.SetTrue(c, v1.ConditionTypeInitialized, w.Now.Add(-d))
	}
	if d, ok := ago["grace"]; ok {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: d}
	}
	if d, ok := ago["vacant"]; ok {
		w.vacant[c.UID] = w.Now.Add(-d)
	}
	if l.has("quiet") {
		condition.Clear(c, v1.ConditionTypeConsolidatable, w.Now)
	}
	if l.has("deleting") {
		c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(w.Now)), []string{v1.TerminationFinalizer}
	}
	if l.has("stopping") {
		condition.SetTrue(c, v1.ConditionTypeInstanceTerminating, w.Now)
	}
	return nil
}

// readAttachLimits adds the CSINode that volumes=driver:limit describes.
func (w *World) readAttachLimits(node string, l *line) error {
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, x := range l.all("volumes") {
		driver, n, _ := strings.Cut(x, ":")
		limit, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return err
		}
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node,
			Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(limit))}})
	}
	if len(csi.Spec.Drivers) > 0 {
		w.Objects = append(w.Objects, csi)
		w.Store.Update(func(d *cluster.Draft) { d.PutCSINode(csi) })
	}
	return nil
}

// putNode adds a node to the store, with its claim if it has one; going marks it for removal.
func (w *World) putNode(n *corev1.Node, c *v1.NodeClaim, going bool) {
	w.Store.Update(func(d *cluster.Draft) {
		if c != nil {
			w.Objects = append(w.Objects, c)
			d.PutClaim(c)
		}
		w.Objects = append(w.Objects, n)
		d.PutNode(n)
		if going {
			d.MarkForRemoval(n.Name)
		}
	})
}

// least is a number of bytes that no node with its objects is shorter than.
const least = 512

// nodes writes the nodes of first, then the others, and returns how many had no room.
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

// node writes a machine with the pods on it. If there is not room for all of it, it writes nothing and returns false.
func (w *writer) node(n *cluster.Node) bool {
	length := w.out.Len()
	name := w.name("node", n.Name)
	provider := "test://" + name
	ok := true
	if n.Claim != nil {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: n.Claim.Labels,
			DeletionTimestamp: n.Claim.DeletionTimestamp, CreationTimestamp: n.Claim.CreationTimestamp}}
		c.Spec.Requirements, c.Spec.Taints, c.Spec.StartupTaints, c.Spec.Resources = n.Claim.Spec.Requirements,
			n.Claim.Spec.Taints, n.Claim.Spec.StartupTaints, n.Claim.Spec.Resources
		c.Status.Allocatable, c.Status.Capacity = n.Claim.Status.Allocatable, n.Claim.Status.Capacity
		young := w.in.Now.Add(-2 * seat.Longest) // drivers of volumes may be missing there
		since, ready := n.InitializedSince()
		if ready && (w.width > 0 || since.After(young)) { // for how long room is kept there
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue}, since)
		}
		if condition.IsTrue(n.Claim, v1.ConditionTypeDrifted) { // its pool makes nodes otherwise by now
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue}, w.in.Now)
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
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Node.Labels,
			DeletionTimestamp: n.Node.DeletionTimestamp, CreationTimestamp: n.Node.CreationTimestamp}}
		o.Spec.Taints, o.Spec.Unschedulable = n.Node.Spec.Taints, n.Node.Spec.Unschedulable
		o.Status.Allocatable, o.Status.Capacity = n.Node.Status.Allocatable, n.Node.Status.Capacity
		o.Status.DeclaredFeatures = n.Node.Status.DeclaredFeatures
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

// putMachine writes a Node or claim, redacted. edit then adds what must not be redacted.
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

// csiNode writes the CSINode of a node with its limits.
func (w *writer) csiNode(name string, limits map[string]int) bool {
	drivers := []any{}
	for _, driver := range slices.Sorted(maps.Keys(limits)) {
		d := map[string]any{"name": driver, "nodeID": name}
		if limits[driver] >= 0 {
			d["allocatable"] = map[string]any{"count": limits[driver]}
		}
		drivers = append(drivers, d)
	}
	return w.line(map[string]any{"kind": "CSINode", "metadata": map[string]any{"name": name}, "spec": map[string]any{"drivers": drivers}})
}

// target returns the name by which a pod's seat refers to a machine: that of its claim, or of the node without one.
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
