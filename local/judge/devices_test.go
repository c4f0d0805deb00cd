package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/kit/selector"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestDevicesAreAllocatedAsPlanned has Kubernetes' own allocator give the pods of random plans their devices, one pod after the other as they
// were placed: on the nodes that exist, and on every machine that a claim may become. What was refused it does not find on a machine either.
func TestDevicesAreAllocatedAsPlanned(t *testing.T) {
	first, last := sim.Seeds(t, "KARPENTER_DEVICE_WORLDS", 200, 2000)
	placed, refused := 0, 0
	for seed := first; seed < last; seed++ {
		w := newDeviceWorld(seed)
		plan := engine.New().Plan(w.question())
		placed, refused = placed+len(w.pods)-len(plan.Refused), refused+len(plan.Refused)
		w.judge(t, seed, plan)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pods were placed, %d refused", placed, refused)
	if placed == 0 || refused == 0 {
		t.Error("the worlds are too easy, or too hard")
	}
}

// A deviceWorld is classes, templates, machines and nodes with devices, and pods that ask for them.
type deviceWorld struct {
	*rand.Rand
	store   *cluster.Store
	classes map[string]*resourcev1.DeviceClass
	asks    map[string]*resourcev1.ResourceClaimTemplate
	catalog *cloud.Catalog
	nodes   []string
	slices  []*resourcev1.ResourceSlice
	taken   structured.AllocatedState
	pods    map[cluster.PodKey]*corev1.Pod
}

var deviceEpoch = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newDeviceWorld(seed uint64) *deviceWorld {
	w := &deviceWorld{Rand: rand.New(rand.NewPCG(seed, 5)), store: cluster.NewStore(), classes: map[string]*resourcev1.DeviceClass{}, asks: map[string]*resourcev1.ResourceClaimTemplate{},
		catalog: &cloud.Catalog{}, pods: map[cluster.PodKey]*corev1.Pod{}}
	w.taken = noneTaken()
	w.store.Update(func(d *cluster.Draft) {
		for _, driver := range []string{"gpu.example", "nic.example"} {
			w.class(d, driver)
		}
		for i := range 1 + w.IntN(4) {
			w.template(d, fmt.Sprintf("ask-%d", i))
		}
		for i := range 1 + w.IntN(4) {
			w.machine(fmt.Sprintf("type-%d", i), float64(1+i))
		}
		for i := range w.IntN(4) {
			w.node(d, fmt.Sprintf("node-%d", i))
		}
		for i := range 1 + w.IntN(10) {
			w.pod(d, fmt.Sprintf("pod-%02d", i))
		}
		d.Synced(true)
	})
	return w
}

func noneTaken() structured.AllocatedState {
	return structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func expression(text string) resourcev1.DeviceSelector {
	return resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: text}}
}

func (w *deviceWorld) class(d *cluster.Draft, driver string) {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}}
	c.Spec.Selectors = []resourcev1.DeviceSelector{expression(fmt.Sprintf("device.driver == %q", driver))}
	w.classes[driver] = c
	cluster.DeviceClasses.Put(d, c)
}

func (w *deviceWorld) selectors(driver string) (out []resourcev1.DeviceSelector) {
	if w.IntN(3) == 0 {
		out = append(out, expression(fmt.Sprintf("device.attributes[%q].model == %q", driver, pick(w.Rand, "a", "b"))))
	}
	if w.IntN(6) == 0 {
		out = append(out, expression(fmt.Sprintf("device.capacity[%q].memory.compareTo(quantity(\"20Gi\")) >= 0", driver)))
	}
	if w.IntN(8) == 0 {
		out = append(out, expression("device.allowMultipleAllocations"))
	}
	return out
}

func (w *deviceWorld) amount() (mode resourcev1.DeviceAllocationMode, count int64) {
	if w.IntN(8) == 0 {
		return resourcev1.DeviceAllocationModeAll, 0
	}
	return resourcev1.DeviceAllocationModeExactCount, int64(pick(w.Rand, 1, 1, 1, 2, 3))
}

func (w *deviceWorld) tolerations() []resourcev1.DeviceToleration {
	return pick(w.Rand, nil, nil, []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}, []resourcev1.DeviceToleration{{Key: "sick", Operator: resourcev1.DeviceTolerationOpEqual, Value: "yes", Effect: resourcev1.DeviceTaintEffectNoSchedule}})
}

func (w *deviceWorld) capacity() *resourcev1.CapacityRequirements {
	if w.IntN(4) > 0 {
		return nil
	}
	return &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(pick(w.Rand, "1Gi", "5Gi", "12Gi", "30Gi"))}}
}

func (w *deviceWorld) template(d *cluster.Draft, name string) {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	spec := &t.Spec.Spec.Devices
	for i := range 1 + w.IntN(2) {
		r := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i)}
		driver := pick(w.Rand, "gpu.example", "gpu.example", "nic.example")
		if w.IntN(4) == 0 {
			for k := range 1 + w.IntN(3) {
				mode, count := w.amount()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("s%d", k), DeviceClassName: driver, AllocationMode: mode, Count: count,
					Selectors: w.selectors(driver), Tolerations: w.tolerations(), Capacity: w.capacity()})
			}
		} else {
			mode, count := w.amount()
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: driver, AllocationMode: mode, Count: count, Selectors: w.selectors(driver), Tolerations: w.tolerations(), Capacity: w.capacity()}
			if w.IntN(10) == 0 {
				r.Exactly.AdminAccess = new(true)
			}
		}
		spec.Requests = append(spec.Requests, r)
	}
	for range w.IntN(2) {
		var about []string
		if w.IntN(2) == 0 {
			about = []string{"r0"}
		}
		attribute := resourcev1.FullyQualifiedName(pick(w.Rand, "common.example/numa", "gpu.example/model"))
		k := resourcev1.DeviceConstraint{Requests: about, MatchAttribute: &attribute}
		if w.IntN(3) == 0 {
			k.MatchAttribute, k.DistinctAttribute = nil, &attribute
		}
		spec.Constraints = append(spec.Constraints, k)
	}
	w.asks[name] = t
	cluster.ClaimTemplates.Put(d, t)
}

// devices are those of one driver, with the counters that they draw on.
func (w *deviceWorld) devices(n int, split bool) (out []resourcev1.Device, counters []resourcev1.CounterSet) {
	if split {
		counters = []resourcev1.CounterSet{{Name: "chip", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(pick(w.Rand, "2", "4", "7"))}}}}
	}
	for i := range n {
		x := resourcev1.Device{Name: fmt.Sprintf("dev-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model": {StringValue: new(pick(w.Rand, "a", "b"))},
		}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(pick(w.Rand, "10Gi", "24Gi"))}}}
		if w.IntN(4) > 0 {
			x.Attributes["common.example/numa"] = resourcev1.DeviceAttribute{IntValue: new(int64(w.IntN(2)))}
		}
		if w.IntN(5) == 0 {
			x.Taints = []resourcev1.DeviceTaint{{Key: "sick", Value: "yes", Effect: pick(w.Rand, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)}}
		}
		if w.IntN(4) == 0 {
			x.AllowMultipleAllocations = new(true)
			c := x.Capacity["memory"]
			c.RequestPolicy = pick(w.Rand, nil,
				&resourcev1.CapacityRequestPolicy{Default: new(resource.MustParse("2Gi")), ValidValues: []resource.Quantity{resource.MustParse("2Gi"), resource.MustParse("8Gi")}},
				&resourcev1.CapacityRequestPolicy{Default: new(resource.MustParse("1Gi")), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: new(resource.MustParse("1Gi")), Max: new(resource.MustParse("9Gi")), Step: new(resource.MustParse("2Gi"))}})
			x.Capacity["memory"] = c
		}
		if split && w.IntN(3) > 0 {
			x.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "chip", Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(pick(w.Rand, "1", "2", "3"))}}}}
		}
		out = append(out, x)
	}
	return out, counters
}

func (w *deviceWorld) machine(name string, price float64) {
	it := &cloud.InstanceType{Name: name, Labels: map[string][]string{corev1.LabelInstanceTypeStable: {name}, corev1.LabelTopologyZone: {"z"}, v1.CapacityTypeLabelKey: {"on-demand"}, corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"}}}
	it.Capacity = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
	it.Offerings = []cloud.Offering{{Labels: map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: "on-demand"}, Price: cloud.FromDollars(price), Available: true}}
	for _, driver := range []string{"gpu.example", "nic.example"} {
		if n := w.IntN(5); n > 0 {
			s := cloud.DeviceSlice{Driver: driver}
			s.Devices, s.Counters = w.devices(n, w.IntN(3) == 0)
			it.Devices = append(it.Devices, s)
		}
	}
	w.catalog.Types = append(w.catalog.Types, it)
}

// published are the slices of a driver on a node.
func published(node, driver string, list []resourcev1.Device, counters []resourcev1.CounterSet) (out []*resourcev1.ResourceSlice) {
	n := int64(1)
	if len(counters) > 0 {
		n = 2
	}
	spec := resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: n}}
	spec.Devices = list
	out = append(out, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver + "-0"}, Spec: spec})
	if n > 1 {
		spec.Devices, spec.SharedCounters = nil, counters
		out = append(out, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver + "-1"}, Spec: spec})
	}
	return out
}

func (w *deviceWorld) node(d *cluster.Draft, name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Spec: corev1.NodeSpec{ProviderID: "x://" + name}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	d.PutNode(n)
	w.nodes = append(w.nodes, name)
	for _, driver := range []string{"gpu.example", "nic.example"} {
		list, counters := w.devices(1+w.IntN(4), w.IntN(3) == 0)
		for _, s := range published(name, driver, list, counters) {
			w.slices = append(w.slices, s)
			cluster.ResourceSlices.Put(d, s)
		}
		if x := list[0]; w.IntN(2) == 0 && x.AllowMultipleAllocations == nil { // somebody has it
			c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + driver, Namespace: "other"}}
			c.Status.Allocation = &resourcev1.AllocationResult{}
			c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: driver, Pool: name, Device: x.Name}}
			w.taken.AllocatedDevices.Insert(structured.MakeDeviceID(driver, name, x.Name))
			cluster.ResourceClaims.Put(d, c)
		}
	}
}

func (w *deviceWorld) pod(d *cluster.Draft, name string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(deviceEpoch)}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	for i := range 1 + w.IntN(2) {
		ask := fmt.Sprintf("ask-%d", w.IntN(len(w.asks)))
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i), ResourceClaimTemplateName: &ask})
	}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	w.pods[cluster.PodKey{Namespace: "default", Name: name}] = p
	d.PutPod(p)
}

func (w *deviceWorld) question() engine.Question {
	snap := w.store.Snapshot()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"}}
	q := engine.Question{Snap: snap, Pools: []engine.Pool{{Pool: pool, Catalog: w.catalog}}, Now: deviceEpoch, Settings: engine.Settings{Selects: selector.Selects, Search: work.Second / 100}}
	for key := range w.pods {
		q.Pods = append(q.Pods, snap.Pod(key))
	}
	return q
}

// claims are what kube-scheduler would have to allocate for a pod.
func (w *deviceWorld) claims(p *cluster.Pod) (out []*resourcev1.ResourceClaim) {
	for _, r := range w.pods[p.PodKey].Spec.ResourceClaims {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: p.Name + "-" + r.Name, Namespace: p.Namespace, UID: types.UID(p.Name + r.Name)}}
		c.Spec = *w.asks[*r.ResourceClaimTemplateName].Spec.Spec.DeepCopy()
		out = append(out, c)
	}
	return out
}

type classLister map[string]*resourcev1.DeviceClass

func (l classLister) List() (out []*resourcev1.DeviceClass, err error) {
	for _, c := range l {
		out = append(out, c)
	}
	return out, nil
}

func (l classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if c := l[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no class %s", name)
}

var judgeCache = cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})

// allocate has the claims of a pod allocated on a node, on top of what is taken there.
func (w *deviceWorld) allocate(t *testing.T, node string, list []*resourcev1.ResourceSlice, taken *structured.AllocatedState, p *cluster.Pod) bool {
	t.Helper()
	features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}
	a, err := structured.NewAllocator(t.Context(), features, *taken, classLister(w.classes), list, judgeCache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, w.claims(p))
	if err != nil || results == nil {
		return false
	}
	for _, r := range results {
		for _, got := range r.Devices.Results {
			id := structured.MakeDeviceID(got.Driver, got.Pool, got.Device)
			switch {
			case got.AdminAccess != nil && *got.AdminAccess:
			case got.ShareID != nil:
				taken.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, got.ShareID))
				taken.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, got.ConsumedCapacity))
			default:
				taken.AllocatedDevices.Insert(id)
			}
		}
	}
	return true
}

func (w *deviceWorld) judge(t *testing.T, seed uint64, plan *engine.Plan) {
	t.Helper()
	for _, x := range plan.Place {
		if !w.allocate(t, x.Node, w.slices, &w.taken, x.Pod) {
			t.Errorf("world %d: %s does not get its devices on %s", seed, x.Pod.Name, x.Node)
		}
	}
	for i, o := range plan.Open {
		for _, name := range o.Types {
			taken, list := noneTaken(), w.machineSlices(name)
			for _, p := range o.Pods {
				if !w.allocate(t, "new", list, &taken, p) {
					t.Errorf("world %d: %s does not get its devices on new node %d if that is a %s", seed, p.Name, i, name)
				}
			}
		}
	}
	for _, r := range plan.Refused {
		if w.stricter(&r) {
			continue
		}
		for _, it := range w.catalog.Types {
			taken := noneTaken()
			if w.allocate(t, "new", w.machineSlices(it.Name), &taken, r.Pod) {
				t.Errorf("world %d: %s is refused, and would get its devices on a %s: %v", seed, r.Pod.Name, it.Name, r.Reasons)
			}
		}
	}
}

// stricter reports whether a pod is refused where the allocator might find something: devices of one request that have to differ may be alike
// for it, where there are three, and where several drivers have counters nobody knows what it finds.
func (w *deviceWorld) stricter(r *engine.Refused) bool {
	for _, c := range w.claims(r.Pod) {
		if slices.ContainsFunc(c.Spec.Devices.Constraints, func(k resourcev1.DeviceConstraint) bool { return k.DistinctAttribute != nil }) {
			return true
		}
	}
	return slices.ContainsFunc(r.Reasons, func(c reason.Count) bool { return c.Code == reason.DeviceHard })
}

func (w *deviceWorld) machineSlices(name string) (out []*resourcev1.ResourceSlice) {
	for _, s := range w.catalog.Type(strings.TrimSpace(name)).Devices {
		out = append(out, published("new", s.Driver, s.Devices, s.Counters)...)
	}
	return out
}
