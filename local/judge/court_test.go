package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/scenario"
)

// A court is a world in front of the filters: its objects as the API server shows them once everything that is on its way has arrived.
type court struct {
	*filters
	world *scenario.World
	pods  map[cluster.PodKey]*corev1.Pod
	draw  *rand.Rand
	news  int  // nodes that were opened
	wary  bool // a daemon of one zone or capacity type counts on a machine whatever that may be, as it does for a claim that is not launched yet
}

// newCourt shows the world to the filters, without the nodes that are to go and the pods that are planned anew.
func newCourt(f *filters, w *scenario.World, draw *rand.Rand) *court {
	c := &court{filters: f, world: w, pods: map[cluster.PodKey]*corev1.Pod{}, draw: draw}
	c.show()
	return c
}

// show puts the world's objects in front of the filters.
func (c *court) show() {
	c.clear()
	c.news = 0
	going := map[string]bool{}
	for row := range c.world.Store.Snapshot().Nodes() {
		going[row.Name] = row.MarkedForRemoval
	}
	var pods []*corev1.Pod
	for _, o := range c.world.Objects {
		switch o := o.(type) {
		case *corev1.Node:
			c.picture.addNode(c.settled(o))
			if starts(o) {
				c.putDisks(o.Name)
			}
		case *corev1.Pod:
			p := admitted(o)
			c.pods[cluster.PodKey{Namespace: p.Namespace, Name: p.Name}] = p
			pods = append(pods, p)
		case *storagev1.CSINode:
			c.putCSINode(o)
		case *corev1.PersistentVolume:
			c.feeds["PersistentVolume"].put(o)
		case *corev1.PersistentVolumeClaim:
			c.feeds["PersistentVolumeClaim"].put(o)
		case *storagev1.StorageClass:
			c.feeds["StorageClass"].put(o)
		case *corev1.Namespace:
			c.feeds["Namespace"].put(o)
		}
	}
	for _, p := range pods {
		if p.Spec.NodeName != "" && c.picture.infos[p.Spec.NodeName] != nil {
			c.picture.infos[p.Spec.NodeName].AddPod(p)
		}
	}
	for _, node := range c.picture.names() {
		if going[node] {
			c.remove(node)
		}
	}
}

// settled is a Node that has finished starting: what is taken off by then does not count against it. One that is cordoned has the taint
// that a controller of Kubernetes gives it.
func (c *court) settled(n *corev1.Node) *corev1.Node {
	if n.Spec.Unschedulable {
		n = n.DeepCopy()
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if !starts(n) {
		return n
	}
	n = n.DeepCopy()
	n.Labels[v1.NodeInitializedLabelKey] = "true"
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != corev1.TaintNodeUnschedulable || slices.ContainsFunc(c.world.Pools, func(p engine.Pool) bool {
			return p.Pool.Name == n.Labels[v1.NodePoolLabelKey] && slices.ContainsFunc(p.Pool.Spec.Template.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(&t) })
		})
	})
	return n
}

func starts(n *corev1.Node) bool {
	return n.Labels[v1.NodePoolLabelKey] != "" && n.Labels[v1.NodeInitializedLabelKey] == ""
}

// admitted is a pod as the API server stores it: matchLabelKeys are part of the selectors.
func admitted(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	for i := range p.Spec.TopologySpreadConstraints {
		t := &p.Spec.TopologySpreadConstraints[i]
		for _, key := range t.MatchLabelKeys {
			if value, ok := p.Labels[key]; ok && t.LabelSelector != nil {
				t.LabelSelector.MatchExpressions = append(t.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
			}
		}
	}
	return p
}

func (c *court) putCSINode(o *storagev1.CSINode) {
	c.picture.csi[o.Name] = o
	c.feeds["CSINode"].put(o)
}

// A machine is one thing that the launch of a claim could give.
type machine struct {
	kind  *cloud.InstanceType
	offer *cloud.Offering
}

// machinesFor returns all that the launch of a claim could give.
func machinesFor(claim *v1.NodeClaim, catalog *cloud.Catalog) []machine {
	var out []machine
	for _, t := range catalog.Types {
		for i := range t.Offerings {
			if m := (machine{t, &t.Offerings[i]}); m.offer.Available && m.serves(claim) {
				out = append(out, m)
			}
		}
	}
	return out
}

func (m machine) serves(claim *v1.NodeClaim) bool {
	for i := range claim.Spec.Requirements {
		r := &claim.Spec.Requirements[i]
		if values, decided := m.values(r.Key); decided && !need.Set(r).Takes(values...) {
			return false
		}
	}
	return true
}

// values returns what a label may be on the machine, and whether the cloud decides it at all.
func (m machine) values(key string) ([]string, bool) {
	if v, ok := m.offer.Labels[key]; ok {
		return []string{v}, true
	}
	values, ok := m.kind.Labels[key]
	return values, ok
}

// node is the Node of a machine that was launched for a claim.
func (m machine) node(name string, claim *v1.NodeClaim) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(claim.Labels)}}
	for key := range m.kind.Labels {
		values, _ := m.values(key)
		for _, v := range values {
			if allowed(claim, key, v) {
				n.Labels[key] = v
				break
			}
		}
	}
	maps.Copy(n.Labels, m.offer.Labels)
	maps.Copy(n.Labels, map[string]string{corev1.LabelHostname: name, v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"})
	n.Spec.Taints = claim.Spec.Taints
	n.Status.Capacity, n.Status.Allocatable = m.kind.Capacity, m.kind.Capacity
	return n
}

// declaring gives the Node of a new machine what a node of its pool declares; where the pool has none, what pods need.
func (c *court) declaring(n *corev1.Node) *corev1.Node {
	first := true
	for _, o := range c.world.Objects {
		old, ok := o.(*corev1.Node)
		if !ok || old.Labels[v1.NodePoolLabelKey] != n.Labels[v1.NodePoolLabelKey] {
			continue
		}
		first = false
		if len(old.Status.DeclaredFeatures) > 0 {
			n.Status.DeclaredFeatures = old.Status.DeclaredFeatures
		}
	}
	if first {
		n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
	}
	return n
}

func (m machine) csiNode(name string) *storagev1.CSINode {
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, driver := range slices.Sorted(maps.Keys(m.kind.VolumeLimits)) {
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(m.kind.VolumeLimits[driver]))}})
	}
	return csi
}

func allowed(claim *v1.NodeClaim, key, value string) bool {
	return need.Of(claim.Spec.Requirements).AllowValue(key, value)
}

// open adds the Node of a machine, with its CSINode and daemons, and returns its name.
func (c *court) open(m machine, claim *v1.NodeClaim) string {
	c.news++
	name := fmt.Sprintf("new-%d", c.news)
	c.picture.addNode(c.declaring(m.node(name, claim)))
	c.putCSINode(m.csiNode(name))
	c.putDisks(name)
	c.startDaemons(name)
	return name
}

// become turns a node into another machine of its claim, with the pods that it has and that machine's daemons.
func (c *court) become(name string, m machine, claim *v1.NodeClaim) {
	pods := c.picture.infos[name].GetPods()
	c.picture.addNode(c.declaring(m.node(name, claim)))
	c.putCSINode(m.csiNode(name))
	c.startDaemons(name)
	for _, p := range pods {
		if !isDaemon(p.GetPod()) {
			c.picture.infos[name].AddPodInfo(p)
		}
	}
}

func isDaemon(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

func (c *court) putDisks(node string) {
	for _, disk := range c.disks(node) {
		c.feeds["PersistentVolume"].put(disk)
	}
}

// disks are the local volumes of a new node: something makes them for classes without a provisioner, or nobody could use such a class.
func (c *court) disks(node string) []*corev1.PersistentVolume {
	var out []*corev1.PersistentVolume
	for _, o := range c.world.Objects {
		class, ok := o.(*storagev1.StorageClass)
		if !ok || class.Provisioner != "kubernetes.io/no-provisioner" {
			continue
		}
		for i := range 10 {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-disk-%d", node, i), ResourceVersion: "1"}}
			v.Spec.StorageClassName = class.Name
			v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")}
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod}
			v.Spec.Local = &corev1.LocalVolumeSource{Path: "/disk"}
			v.Spec.NodeAffinity = on(corev1.LabelHostname, node)
			v.Status.Phase = corev1.VolumeAvailable
			out = append(out, v)
		}
	}
	return out
}

// on is the affinity of a volume that nodes reach which have a label.
func on(key string, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}}
}

// close takes a Node away that open added last.
func (c *court) close(name string) {
	c.news--
	delete(c.picture.infos, name)
	c.feeds["CSINode"].remove(c.picture.csi[name])
	delete(c.picture.csi, name)
	for _, disk := range c.disks(name) {
		c.feeds["PersistentVolume"].remove(disk)
	}
}

// startDaemons binds the daemons that the filters let onto a node and that it does not run yet. Other pods' wishes keep none away:
// daemons come first.
func (c *court) startDaemons(node string) {
	info := c.picture.infos[node]
	for _, set := range c.daemons() {
		if slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool { return ownedBy(p.GetPod(), set) }) {
			continue
		}
		p := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		p.Namespace, p.Name, p.UID = cmp.Or(set.Namespace, "default"), set.Name+"-"+node, types.UID(set.Name+"/"+node)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
		p.Status.Phase = corev1.PodRunning
		for key, effect := range map[string]corev1.TaintEffect{corev1.TaintNodeNotReady: corev1.TaintEffectNoExecute, corev1.TaintNodeUnschedulable: corev1.TaintEffectNoSchedule} {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
		}
		if c.wary {
			delete(p.Spec.NodeSelector, corev1.LabelTopologyZone)
			delete(p.Spec.NodeSelector, v1.CapacityTypeLabelKey)
			p.Spec.Affinity = nil
		}
		if why := c.ask(p).on(node); why == "" || strings.HasPrefix(why, names.InterPodAffinity) {
			p.Spec.NodeName = node
			info.AddPod(p)
		}
	}
}

func ownedBy(p *corev1.Pod, set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" && o.Name == set.Name })
}

// bind puts a pod onto a node, and its volumes near it.
func (c *court) bind(p *corev1.Pod, node string) {
	p = p.DeepCopy()
	p.Spec.NodeName = node
	info := c.picture.infos[node]
	info.AddPod(p)
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			c.bindVolume(p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName, info.Node())
		}
	}
}

const bindCompleted = "pv.kubernetes.io/bind-completed"

// bindVolume does what the controllers of volumes do once a pod that waits for them has a node.
func (c *court) bindVolume(key string, node *corev1.Node) {
	found, ok, _ := c.feeds["PersistentVolumeClaim"].indexer.GetByKey(key)
	if !ok {
		return
	}
	claim := found.(*corev1.PersistentVolumeClaim)
	if claim.Spec.VolumeName != "" {
		return
	}
	class, ok, _ := c.feeds["StorageClass"].indexer.GetByKey(*claim.Spec.StorageClassName)
	if !ok {
		return
	}
	pv := c.freeVolume(claim, node)
	if pv == nil {
		pv = madeVolume(claim, class.(*storagev1.StorageClass), node)
	} else {
		c.feeds["PersistentVolume"].remove(pv)
		pv = pv.DeepCopy()
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	pv.Status.Phase = corev1.VolumeBound
	c.feeds["PersistentVolume"].put(pv)
	c.feeds["PersistentVolumeClaim"].remove(claim)
	claim = claim.DeepCopy()
	claim.Spec.VolumeName, claim.Status.Phase = pv.Name, corev1.ClaimBound
	claim.Annotations = map[string]string{bindCompleted: "yes"}
	c.feeds["PersistentVolumeClaim"].put(claim)
}

// freeVolume returns a volume that exists, belongs to nobody and can be used on the node.
func (c *court) freeVolume(claim *corev1.PersistentVolumeClaim, node *corev1.Node) *corev1.PersistentVolume {
	for _, o := range c.feeds["PersistentVolume"].objects() {
		pv := o.(*corev1.PersistentVolume)
		if pv.Spec.ClaimRef == nil && pv.Spec.StorageClassName == *claim.Spec.StorageClassName && volume.CheckNodeAffinity(pv, node.Labels) == nil {
			return pv
		}
	}
	return nil
}

// madeVolume is a volume that the provisioner of a class makes for a node: in its zone, or wherever the class allows if many nodes may write to
// it, as disks and file systems are.
func madeVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "made-for-" + claim.Name, ResourceVersion: "1"}}
	v.Spec.StorageClassName = class.Name
	v.Spec.AccessModes, v.Spec.Capacity = claim.Spec.AccessModes, claim.Spec.Resources.Requests
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: v.Name}
	zone, ok := node.Labels[corev1.LabelTopologyZone]
	switch {
	case !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany):
		if ok {
			v.Spec.NodeAffinity = on(corev1.LabelTopologyZone, zone)
		}
	case len(class.AllowedTopologies) > 0:
		v.Spec.NodeAffinity = on(corev1.LabelTopologyZone, class.AllowedTopologies[0].MatchLabelExpressions[0].Values...)
	}
	return v
}
