package scenario

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// readNodes reads nodes: a name with pool, cpu, mem, gpu, pods, zone, ct, type, labels, taint, volumes=driver:limit, starting, going,
// cordoned, protected (do-not-disrupt).
func (w *World) readNodes(text string) error {
	for _, l := range lines(text) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.name, UID: types.UID("node-" + l.name), Labels: map[string]string{corev1.LabelHostname: l.name}}}
		n.Spec.ProviderID = "test://" + l.name
		maps.Copy(n.Labels, pairs(l.get("labels", "")))
		for _, key := range []string{"zone", "ct", "type", "arch", "os"} {
			if l.has(key) {
				n.Labels[longKey(key)] = l.get(key, "")
			}
		}
		n.Status.Allocatable = corev1.ResourceList{}
		for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "cpu", corev1.ResourceMemory: "mem", corev1.ResourcePods: "pods", "gpu.example/gpu": "gpu"} {
			q, err := resource.ParseQuantity(l.get(key, map[string]string{"cpu": "4", "mem": "4Gi", "pods": "110", "gpu": "0"}[key]))
			if err != nil {
				return fmt.Errorf("node %s: %w", l.name, err)
			}
			n.Status.Allocatable[name] = q
		}
		n.Status.Capacity = n.Status.Allocatable
		for _, x := range l.all("taint") {
			n.Spec.Taints = append(n.Spec.Taints, taintOf(x))
		}
		n.Spec.Unschedulable = l.has("cordoned")
		if l.has("protected") {
			n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		}
		if err := w.readAttachLimits(n.Name, &l); err != nil {
			return err
		}
		w.putNode(n, l.get("pool", ""), !l.has("starting"), l.has("going"))
	}
	return nil
}

// readAttachLimits gives a node the CSINode that its volumes=driver:limit describe.
func (w *World) readAttachLimits(node string, l *line) error {
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, x := range l.all("volumes") {
		driver, n, _ := strings.Cut(x, ":")
		limit, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return err
		}
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(limit))}})
	}
	if len(csi.Spec.Drivers) > 0 {
		w.Objects = append(w.Objects, csi)
		w.Store.Update(func(d *cluster.Draft) { d.PutCSINode(csi) })
	}
	return nil
}

// putNode adds a node; with a pool it is a managed one.
func (w *World) putNode(n *corev1.Node, pool string, ready, going bool) {
	w.Store.Update(func(d *cluster.Draft) {
		if pool != "" {
			n.Labels[v1.NodePoolLabelKey] = pool
			n.Labels[v1.NodeRegisteredLabelKey] = "true"
			if ready {
				n.Labels[v1.NodeInitializedLabelKey] = "true"
			}
			c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name, UID: types.UID("claim-" + n.Name), Labels: maps.Clone(n.Labels)}}
			c.Status.ProviderID, c.Status.NodeName = n.Spec.ProviderID, n.Name
			c.Status.Allocatable, c.Status.Capacity = n.Status.Allocatable, n.Status.Capacity
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

// least is what no node is shorter than.
const least = 512

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
