package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/selector"
)

// A World is a cluster in a story.
type World struct {
	Store    *cluster.Store
	Catalog  *cloud.Catalog // of pools that have none of their own
	Pools    []engine.Pool
	Settings engine.Settings
	Now      time.Time
	Engine   *engine.Engine
	Objects  []runtime.Object // what was put into the store, as the API server would show it
	// Memory is what the engine remembered when it was asked, nil where the story does not say it.
	Memory *engine.Memory

	pending []*corev1.Pod
	notes   map[cluster.PodKey]note
	spares  map[cluster.PodKey][]*corev1.Pod // by the namespace and the name of their buffer
	own     map[string]*cloud.Catalog        // by pool
	names   map[string]int
	claims  int
}

// zones is what the provider of stories knows about labels: its disks have a name of their own for the zone.
var zones = label.Table{Labels: []label.Label{{Key: corev1.LabelTopologyZone, Aliases: []string{"topology.ebs.csi.aws.com/zone"}}}}

// shortKeys are what stories call long label keys.
var shortKeys = map[string]string{
	"zone": corev1.LabelTopologyZone, "host": corev1.LabelHostname, "ct": v1.CapacityTypeLabelKey, "arch": corev1.LabelArchStable,
	"os": corev1.LabelOSStable, "type": corev1.LabelInstanceTypeStable, "pool": v1.NodePoolLabelKey,
}

func longKey(key string) string {
	if k, ok := shortKeys[key]; ok {
		return k
	}
	return key
}

// World builds the world of a story, before any round.
func (s *Scenario) World() (*World, error) {
	w := &World{Store: cluster.NewStore(), Engine: engine.New(zones), names: map[string]int{}, Now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
	if err := w.readSettings(s.section("settings", 1)); err != nil {
		return nil, err
	}
	var err error
	if text := s.section("types", 1); text != "" {
		w.Catalog, w.own, err = readTypes(text)
	} else {
		w.Catalog, err = readShapes(s.section("shapes", 1))
	}
	if err != nil {
		return nil, err
	}
	if text := s.section("memory", 1); text != "" {
		w.Memory = &engine.Memory{}
		if err := json.Unmarshal([]byte(text), w.Memory); err != nil {
			return nil, fmt.Errorf("memory: %w", err)
		}
		w.Engine = engine.Recall(*w.Memory, zones)
	}
	return w, nil
}

// readTypes reads instance types with all that is known about them, one after the other.
func readTypes(text string) (all *cloud.Catalog, own map[string]*cloud.Catalog, err error) {
	shared := map[string]*cloud.Catalog{"": {}} // by the pools that have it
	own = map[string]*cloud.Catalog{}
	r := json.NewDecoder(strings.NewReader(text))
	for {
		it := &sold{}
		if err := r.Decode(it); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("types: %w", err)
		}
		key := strings.Join(it.Pools, ",")
		if shared[key] == nil {
			shared[key] = &cloud.Catalog{}
		}
		for _, pool := range it.Pools {
			own[pool] = shared[key]
		}
		shared[key].Types = append(shared[key].Types, &it.InstanceType)
	}
	for _, c := range shared {
		slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	}
	return shared[""], own, nil
}

// catalogOf is what a pool can launch.
func (w *World) catalogOf(pool string) *cloud.Catalog {
	if own := w.own[pool]; own != nil {
		return own
	}
	return w.Catalog
}

// Enter brings what a round adds into the world.
func (w *World) Enter(s *Scenario, round int) error {
	if text := s.section("pools", round); text != "" || round == 1 {
		if err := w.readPools(text); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		section string
		read    func(string) error
	}{{"objects", w.readObjects}, {"nodes", w.readNodes}, {"delete", w.readDeletions}, {"pods", w.readPods}} {
		if err := step.read(s.section(step.section, round)); err != nil {
			return fmt.Errorf("%s of round %d: %w", step.section, round, err)
		}
	}
	return nil
}

func (w *World) readSettings(text string) error {
	for _, l := range lines(text) {
		switch key, value, _ := strings.Cut(l.name, "="); key {
		case "preferences":
			w.Settings.IgnorePreferences = value == "Ignore"
		case "minValues":
			w.Settings.MinValuesBestEffort = value == "BestEffort"
		case "devices":
			if value == "true" {
				w.Settings.Selects = selector.Selects
			}
		case "reserved":
			w.Settings.ReservedCapacity = value == "true"
		case "count", "tied": // read where the answer is written
		case "search", "terms", "cut-at", "node-price", "large", "large-gain", "grace":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			w.setNumber(key, n)
		case "now":
			now, err := time.Parse(time.RFC3339Nano, value)
			if err != nil {
				return err
			}
			w.Now = now
		case "band":
			if err := json.Unmarshal([]byte(value), &w.Settings.Band); err != nil {
				return fmt.Errorf("band: %w", err)
			}
		case "firstfit":
			w.Settings.FirstFit = value == "true"
		case "default-spread":
			for _, x := range split(value, ",") {
				c, err := spreadOf(x, nil)
				if err != nil {
					return err
				}
				c.LabelSelector = nil
				w.Settings.DefaultSpread = append(w.Settings.DefaultSpread, c)
			}
		default:
			return fmt.Errorf("unknown setting %q", key)
		}
	}
	return nil
}

func (w *World) setNumber(key string, n int64) {
	set := &w.Settings
	switch key {
	case "search":
		set.Search = work.Units(n)
	case "terms":
		set.Terms = work.Units(n)
	case "cut-at":
		set.CutAt = work.Units(n)
	case "node-price":
		set.NodePrice = cloud.NanoUSD(n)
	case "large":
		set.Size.Large = n
	case "large-gain":
		set.Size.GainPermille = n
	case "grace":
		set.DefaultTerminationGracePeriod = new(time.Duration(n))
	}
}

// readShapes reads the table of instance types: a name with cpu, mem, pods, zones, spot and od (prices), reserved=id:count,
// gpu, exotic, label=k:v|w, volumes=driver:limit, device=driver:count:attribute:value|attribute|… (an attribute without a value has one that is
// known only later).
func readShapes(text string) (*cloud.Catalog, error) {
	if strings.TrimSpace(text) == "" {
		text = "default cpu=4 mem=4Gi pods=5 zones=a,b,c od=0.4 spot=0.2"
	}
	c := &cloud.Catalog{}
	for _, l := range lines(text) {
		it := &cloud.InstanceType{Name: l.name, Labels: map[string][]string{}, Exotic: l.has("exotic"), Capacity: corev1.ResourceList{}}
		for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "cpu", corev1.ResourceMemory: "mem", corev1.ResourcePods: "pods", "gpu.example/gpu": "gpu", corev1.ResourceEphemeralStorage: "disk"} {
			q, err := resource.ParseQuantity(l.get(key, map[string]string{"cpu": "4", "mem": "4Gi", "pods": "110"}[key]))
			if err != nil {
				if l.has(key) {
					return nil, fmt.Errorf("shape %s: %s: %w", l.name, key, err)
				}
				continue
			}
			it.Capacity[name] = q
		}
		for _, x := range l.all("label") {
			k, v, _ := strings.Cut(x, ":")
			it.Labels[longKey(k)] = split(v, "|")
		}
		for _, x := range l.all("volumes") {
			driver, n, _ := strings.Cut(x, ":")
			limit, err := strconv.Atoi(n)
			if err != nil {
				return nil, err
			}
			if it.VolumeLimits == nil {
				it.VolumeLimits = map[string]int{}
			}
			it.VolumeLimits[driver] = limit
		}
		for _, x := range l.all("device") {
			slice, err := devicesOf(x)
			if err != nil {
				return nil, fmt.Errorf("shape %s: device: %w", l.name, err)
			}
			it.Devices = append(it.Devices, slice)
		}
		if err := addOfferings(it, &l); err != nil {
			return nil, err
		}
		finishLabels(it)
		c.Types = append(c.Types, it)
	}
	slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
}

// devicesOf reads the devices of a driver.
func devicesOf(text string) (cloud.DeviceSlice, error) {
	parts := strings.SplitN(text, ":", 3)
	out := cloud.DeviceSlice{Driver: parts[0]}
	if len(parts) < 2 {
		return out, fmt.Errorf("%q has no count", text)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return out, err
	}
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	if len(parts) > 2 {
		for _, x := range split(parts[2], "|") {
			if name, value, has := strings.Cut(x, ":"); has {
				attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
			} else {
				out.Later = append(out.Later, name)
			}
		}
	}
	for i := range n {
		out.Devices = append(out.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i), Attributes: attributes})
	}
	return out, nil
}

func addOfferings(it *cloud.InstanceType, l *line) error {
	add := func(zone, ct string, price float64, more map[string]string, reserved int) {
		labels := map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: ct}
		maps.Copy(labels, more)
		it.Offerings = append(it.Offerings, cloud.Offering{Labels: labels, Price: cloud.FromDollars(price), Available: !slices.Contains(split(l.get("dry", ""), ","), zone), Reserved: reserved})
	}
	for _, zone := range split(l.get("zones", "a,b,c"), ",") {
		for key, ct := range map[string]string{"od": v1.CapacityTypeOnDemand, "spot": v1.CapacityTypeSpot} {
			if !l.has(key) {
				continue
			}
			price, err := strconv.ParseFloat(l.get(key, ""), 64)
			if err != nil {
				return fmt.Errorf("shape %s: %w", it.Name, err)
			}
			add(zone, ct, price, nil, 0)
		}
	}
	for _, x := range l.all("reserved") { // id:zone:count
		f := strings.Split(x, ":")
		if len(f) != 3 {
			return fmt.Errorf("shape %s: reserved=%s is not id:zone:count", it.Name, x)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			return err
		}
		add(f[1], v1.CapacityTypeReserved, 0.000001, map[string]string{"example.com/reservation": f[0]}, n)
	}
	slices.SortFunc(it.Offerings, func(a, b cloud.Offering) int {
		return strings.Compare(a.CapacityType()+a.Zone(), b.CapacityType()+b.Zone())
	})
	return nil
}

// finishLabels fills in what every type has.
func finishLabels(it *cloud.InstanceType) {
	it.Labels[corev1.LabelInstanceTypeStable] = []string{it.Name}
	for key, value := range map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"} {
		if _, ok := it.Labels[key]; !ok {
			it.Labels[key] = []string{value}
		}
	}
	for _, o := range it.Offerings {
		for k, v := range o.Labels {
			if !slices.Contains(it.Labels[k], v) {
				it.Labels[k] = append(it.Labels[k], v)
			}
		}
	}
}

// readPools reads pools: a name with weight, limits=cpu:4,nodes:2, budget=nodes, labels=k:v, taint=k:v:effect, startup=…,
// need=key:Op:v|w[:minValues].
func (w *World) readPools(text string) error {
	if strings.TrimSpace(text) == "" {
		text = "default"
	}
	w.Pools = nil
	for _, l := range lines(text) {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: l.name, UID: types.UID(l.name)}}
		spec := &p.Spec.Template.Spec
		spec.NodeClassRef = &v1.NodeClassReference{Group: "example.com", Kind: "Class", Name: "default"}
		if x := l.get("weight", ""); x != "" {
			n, err := strconv.ParseInt(x, 10, 32)
			if err != nil {
				return err
			}
			weight := int32(n)
			p.Spec.Weight = &weight
		}
		for _, x := range split(l.get("limits", ""), ",") {
			k, v, _ := strings.Cut(x, ":")
			q, err := resource.ParseQuantity(v)
			if err != nil {
				return err
			}
			if p.Spec.Limits == nil {
				p.Spec.Limits = v1.Limits{}
			}
			p.Spec.Limits[corev1.ResourceName(k)] = q
		}
		for _, x := range l.all("budget") {
			p.Spec.Disruption.Budgets = append(p.Spec.Disruption.Budgets, v1.Budget{Nodes: x})
		}
		p.Spec.Template.Labels = pairs(l.get("labels", ""))
		for _, x := range l.all("taint") {
			spec.Taints = append(spec.Taints, taintOf(x))
		}
		for _, x := range l.all("startup") {
			spec.StartupTaints = append(spec.StartupTaints, taintOf(x))
		}
		for _, x := range l.all("need") {
			r := requirementOf(x)
			q := v1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values}
			if f := strings.Split(x, ":"); len(f) > 3 {
				n, err := strconv.Atoi(f[3])
				if err != nil {
					return err
				}
				q.MinValues = &n
			}
			spec.Requirements = append(spec.Requirements, q)
		}
		w.Pools = append(w.Pools, engine.Pool{Pool: p, Catalog: w.catalogOf(p.Name)})
	}
	w.Store.Update(func(d *cluster.Draft) {
		for _, p := range w.Pools {
			d.PutPool(p.Pool)
		}
	})
	return nil
}

// pairs reads k:v,k:v.
func pairs(text string) map[string]string {
	var out map[string]string
	for _, x := range split(text, ",") {
		k, v, _ := strings.Cut(x, ":")
		if out == nil {
			out = map[string]string{}
		}
		out[longKey(k)] = v
	}
	return out
}

func taintOf(text string) corev1.Taint {
	f := append(strings.Split(text, ":"), "", "")
	return corev1.Taint{Key: f[0], Value: f[1], Effect: corev1.TaintEffect(f[2])}
}

// requirementOf reads key:Op:v|w.
func requirementOf(text string) corev1.NodeSelectorRequirement {
	f := append(strings.Split(text, ":"), "", "")
	return corev1.NodeSelectorRequirement{Key: longKey(f[0]), Operator: corev1.NodeSelectorOperator(f[1]), Values: split(f[2], "|")}
}

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

// readDeletions removes pods and nodes by name.
func (w *World) readDeletions(text string) error {
	for _, l := range lines(text) {
		kind, name, _ := strings.Cut(l.name, "/")
		switch kind {
		case "pod":
			w.Store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: name}) })
			w.pending = slices.DeleteFunc(w.pending, func(p *corev1.Pod) bool { return p.Name == name })
		case "node":
			w.Store.Update(func(d *cluster.Draft) { d.DeleteNode(name); d.DeleteClaim("claim-" + name) })
		default:
			return fmt.Errorf("cannot delete %q", l.name)
		}
	}
	return nil
}

// readObjects reads Kubernetes objects as YAML.
func (w *World) readObjects(text string) error {
	r := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		var raw map[string]any
		if err := r.Decode(&raw); err == io.EOF {
			w.keepRoom()
			w.keepPlaces()
			return nil
		} else if err != nil {
			return err
		}
		if len(raw) == 0 {
			continue
		}
		if err := w.putObject(raw); err != nil {
			return err
		}
	}
}

func (w *World) putObject(raw map[string]any) error {
	kind, _ := raw["kind"].(string)
	var err error
	w.Store.Update(func(d *cluster.Draft) {
		switch kind {
		case "Pod":
			p, bad := decode[corev1.Pod](raw)
			if err = bad; err == nil {
				w.putPod(d, p)
			}
		case "Spare":
			p, bad := decode[corev1.Pod](raw)
			if err = bad; err == nil {
				w.spare(p)
			}
		case "DaemonSet":
			err = put(w, raw, func(o *appsv1.DaemonSet) { o.UID = types.UID(o.Name); d.PutDaemonSet(o) })
		case "PersistentVolumeClaim":
			err = put(w, raw, d.PutPVC)
		case "PersistentVolume":
			err = put(w, raw, d.PutPV)
		case "StorageClass":
			err = put(w, raw, func(o *storagev1.StorageClass) { d.PutStorageClass(o) })
		case "ResourceClaim":
			err = put(w, raw, d.PutResourceClaim)
		case "ResourceClaimTemplate":
			err = put(w, raw, d.PutResourceClaimTemplate)
		case "DeviceClass":
			err = put(w, raw, d.PutDeviceClass)
		case "ResourceSlice":
			err = put(w, raw, d.PutResourceSlice)
		case "CSINode":
			err = put(w, raw, d.PutCSINode)
		case "Namespace":
			err = put(w, raw, d.PutNamespace)
		case "PodDisruptionBudget":
			err = put(w, raw, d.PutPDB)
		case "Service":
			err = put(w, raw, d.PutService)
		case "ReplicaSet":
			err = put(w, raw, func(o *appsv1.ReplicaSet) { d.PutOwnerSelector(types.UID(o.Name), o.Spec.Selector) })
		case "NodePool":
			err = put(w, raw, func(p *v1.NodePool) {
				d.PutPool(p)
				w.Pools = append(w.Pools, engine.Pool{Pool: p, Catalog: w.catalogOf(p.Name)})
			})
		case "Node":
			err = put(w, raw, func(n *corev1.Node) { d.PutNode(n); markGoing(d, n) })
		case "NodeClaim":
			err = put(w, raw, func(c *v1.NodeClaim) { d.PutClaim(c); markGoing(d, c) })
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
	})
	return err
}

func markGoing(d *cluster.Draft, o metav1.Object) {
	if o.GetAnnotations()[goingAnnotation] != "" {
		d.MarkForRemoval(o.GetName())
	}
}

func put[T any, P interface {
	*T
	runtime.Object
}](w *World, raw map[string]any, to func(P)) error {
	o, err := decode[T](raw)
	if err == nil {
		w.Objects = append(w.Objects, P(o))
		to(P(o))
	}
	return err
}
