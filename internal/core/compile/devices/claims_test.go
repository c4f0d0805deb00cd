package devices

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
)

// A stage is the objects of one question. Its nodes are called n0, n1, and so on.
type stage struct {
	slices    []*resourcev1.ResourceSlice
	claims    []*resourcev1.ResourceClaim
	templates []*resourcev1.ResourceClaimTemplate
	nodes     []Node
	machines  []Machine
	daemons   []Daemon
}

// gpus returns a slice with n devices on a node.
func gpus(node string, n int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-" + node}}
	s.Spec.Driver, s.Spec.NodeName = "gpu.example.com", &node
	s.Spec.Pool = resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}
	s.Spec.Devices = deviceList(n)
	return s
}

func deviceList(n int) []resourcev1.Device {
	var out []resourcev1.Device
	model := "large"
	for i := range n {
		out = append(out, resourcev1.Device{Name: "gpu-" + string(rune('a'+i)),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
	}
	return out
}

// one asks for count devices of the class gpu.
func one(count int64) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: count}}}}}
}

func claimNamed(name string, spec resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

// allocated writes that a claim has a device of a node.
func allocated(c *resourcev1.ResourceClaim, node, device string) *resourcev1.ResourceClaim {
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "gpu.example.com", Pool: node, Device: device}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}},
	}
	return c
}

// usedBy reserves a claim for a pod.
func usedBy(c *resourcev1.ResourceClaim, pod string) *resourcev1.ResourceClaim {
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}}
	return c
}

// podOf returns a pod that uses a claim, or the claim of a template if the name starts with "template".
func podOf(name, node, claim string) *cluster.Pod {
	ref := corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim}
	if strings.HasPrefix(claim, "template") {
		ref = corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &claim}
	}
	return &cluster.Pod{PodKey: cluster.PodKey{Namespace: "shop", Name: name}, UID: types.UID(name), NodeName: node,
		Class: &podclass.Class{Namespace: "shop", Spec: &corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{ref}}}}
}

// read asks the question of the stage for one pod, in a cluster where the given other pods run.
func (s *stage) read(p *cluster.Pod, running ...*corev1.Pod) (*Model, Needs) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.DeviceClasses.Put(d, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == 'gpu.example.com'"}}}}})
		for _, x := range s.slices {
			cluster.ResourceSlices.Put(d, x)
		}
		for _, x := range s.claims {
			cluster.ResourceClaims.Put(d, x)
		}
		for _, x := range s.templates {
			cluster.ClaimTemplates.Put(d, x)
		}
		for _, x := range running {
			d.PutPod(x)
		}
	})
	snap := store.Snapshot()
	in := Input{Snap: snap, Memory: NewMemory(), Generated: ReadGenerated(snap), Now: time.Unix(0, 0), Pods: []*cluster.Pod{p},
		Groups: [][]*cluster.Pod{{p}}, Nodes: s.nodes, Bins: map[string]int{}, Daemons: s.daemons,
		Selects: func(_, driver string, _ *resourcev1.Device) (bool, error) { return driver == "gpu.example.com", nil }}
	for i, n := range s.nodes {
		in.Bins[n.Name] = i
	}
	if s.machines != nil {
		in.Templates = [][]Machine{s.machines}
	}
	m, needs := Read(in)
	return m, needs[0]
}

// places returns for each node, as y or n, whether the claims find their devices there.
func places(states [][]*devices.State, needs Needs) string {
	out := ""
	for _, at := range states {
		if _, no := devices.All(at, needs.Claims); no == nil && len(at) > 0 {
			out += "y"
		} else {
			out += "n"
		}
	}
	return out
}

func template(name string, count int64) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: one(count)}}
}

func TestWhereDevicesAreLeft(t *testing.T) {
	ready := func(names ...string) []Node {
		var out []Node
		for _, name := range names {
			out = append(out, Node{Name: name, Initialized: true})
		}
		return out
	}
	withPod := func(n Node, p *cluster.Pod) Node { n.Claimants = []*cluster.Pod{p}; return n }
	typed := func(n int) *cloud.InstanceType {
		return &cloud.InstanceType{Devices: []cloud.DeviceSlice{{Driver: "gpu.example.com", Devices: deviceList(n)}}}
	}
	incomplete, twice := gpus("n0", 2), gpus("n0", 2)
	incomplete.Spec.Pool.ResourceSliceCount = 2
	twice.Spec.Devices[1].Name = twice.Spec.Devices[0].Name
	for name, tc := range map[string]struct {
		stage stage
		want  string
	}{
		"a node with enough devices": {
			stage: stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 2), gpus("n1", 1)}, nodes: ready("n0", "n1", "n2")},
			want:  "ynn",
		},
		"a device that another claim has": {
			stage: stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 2)},
				claims: []*resourcev1.ResourceClaim{allocated(claimNamed("other", one(1)), "n0", "gpu-a")},
				nodes:  ready("n0")},
			want: "n",
		},
		"a bound pod without allocation": {
			stage: stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 3)},
				nodes: []Node{withPod(ready("n0")[0], podOf("bound", "n0", "template"))}},
			want: "n",
		},
		"a pool with a missing slice": {
			stage: stage{slices: []*resourcev1.ResourceSlice{incomplete}, nodes: ready("n0")},
			want:  "n",
		},
		"a pool with a repeated device": {stage: stage{slices: []*resourcev1.ResourceSlice{twice}, nodes: ready("n0")}, want: "n"},
		"a node that is starting": {
			stage: stage{nodes: []Node{{Name: "n0", Types: []*cloud.InstanceType{typed(2)}}}},
			want:  "y",
		},
		"a node that may be one of two types": {
			stage: stage{nodes: []Node{{Name: "n0", Types: []*cloud.InstanceType{typed(2), typed(1)}}}},
			want:  "n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.stage.templates = []*resourcev1.ResourceClaimTemplate{template("template", 2)}
			m, needs := tc.stage.read(podOf("p", "", "template"))
			if needs.Bad.Code != 0 {
				t.Fatalf("refused: %+v", needs.Bad)
			}
			nodes, _ := m.Place(nil)
			if got := places(nodes, needs); got != tc.want {
				t.Errorf("devices are left on %q, want %q", got, tc.want)
			}
		})
	}
}

func runningPod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
}

// A DaemonSet takes devices of every new machine before the pods of the question do.
func TestMachinesBringDevices(t *testing.T) {
	it := &cloud.InstanceType{Devices: []cloud.DeviceSlice{{Driver: "gpu.example.com", Devices: deviceList(2)}}}
	s := stage{templates: []*resourcev1.ResourceClaimTemplate{template("template", 2), template("template-of-set", 1)},
		machines: []Machine{{Type: it}, {Type: it, Daemons: []int{0}}, {}},
		daemons:  []Daemon{{Namespace: "shop", Class: podOf("set", "", "template-of-set").Class}}}
	m, needs := s.read(podOf("p", "", "template"))
	_, templates := m.Place(nil)
	var got string
	for _, state := range templates[0] {
		if state == nil {
			got += "-"
			continue
		}
		got += places([][]*devices.State{{state}}, needs)
	}
	if got != "yn-" {
		t.Errorf("machines that serve the claim: %q, want %q", got, "yn-")
	}
	if len(m.Drivers) != 1 || m.Drivers[0] != "gpu.example.com" {
		t.Errorf("drivers = %v", m.Drivers)
	}
}

// A pod that has its room on a node already takes its devices there.
func TestExpectedPodsTakeDevices(t *testing.T) {
	s := stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 3)}, nodes: []Node{{Name: "n0", Initialized: true}},
		templates: []*resourcev1.ResourceClaimTemplate{template("template", 2)}}
	m, needs := s.read(podOf("p", "", "template"))
	other := podOf("other", "", "template")
	other.UID = "" // its claim is not made yet
	nodes, _ := m.Place([]Expected{{Pod: other, Class: other.Class, Bin: 0}})
	if got := places(nodes, needs); got != "n" {
		t.Errorf("devices are left on %q, want none: two of three are promised", got)
	}
}

func TestClaimsThatCannotBePlanned(t *testing.T) {
	leaving := claimNamed("leaving", one(1))
	leaving.DeletionTimestamp = &metav1.Time{}
	noClass := one(1)
	noClass.Devices.Requests[0].Exactly.DeviceClassName = "none"
	odd := one(1)
	odd.Devices.Requests[0].Exactly.AllocationMode = "Some"
	noCEL := one(1)
	noCEL.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{}}
	both := one(1)
	both.Devices.Constraints = []resourcev1.DeviceConstraint{{}}
	empty := one(1)
	empty.Devices.Requests[0].Exactly = nil
	somewhere := allocated(claimNamed("somewhere", one(1)), "n0", "gpu-a")
	somewhere.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Key = "metadata.uid"
	for name, tc := range map[string]struct {
		claim *resourcev1.ResourceClaim
		uses  string // if not the name of the claim
		want  reason.Flaw
	}{
		"a claim that does not exist":     {uses: "none", want: reason.Missing},
		"a template that does not exist":  {uses: "template-none", want: reason.TemplateMissing},
		"a claim that is being deleted":   {claim: leaving, want: reason.Leaving},
		"a class that does not exist":     {claim: claimNamed("c", noClass), want: reason.DeviceClassMissing},
		"an unknown allocation mode":      {claim: claimNamed("c", odd), want: reason.CountUnknown},
		"a selector of an unknown kind":   {claim: claimNamed("c", noCEL), want: reason.SelectorUnknown},
		"a constraint of an unknown kind": {claim: claimNamed("c", both), want: reason.ConstraintUnknown},
		"a request of an unknown kind":    {claim: claimNamed("c", empty), want: reason.RequestUnknown},
		"more devices than anything has":  {claim: claimNamed("c", one(1<<40)), want: reason.TooMany},
		"a claim that is in use on no node": {
			claim: usedBy(allocated(claimNamed("c", one(1)), "far", "gpu-a"), "user"),
			want:  reason.InUseElsewhere,
		},
		"a claim allocated to an odd place": {claim: somewhere, want: reason.PlaceUnknown},
		"a claim that can be planned":       {claim: claimNamed("c", one(1))},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 1)}, nodes: []Node{{Name: "n0", Initialized: true}}}
			if tc.claim != nil {
				s.claims, tc.uses = []*resourcev1.ResourceClaim{tc.claim}, tc.claim.Name
			}
			user := runningPod("user", "far")
			_, needs := s.read(podOf("p", "", tc.uses), user)
			if needs.Bad.Flaw != tc.want || (needs.Bad.Code == 0) != (tc.want == 0) {
				t.Errorf("refused for %+v, want flaw %v", needs.Bad, tc.want)
			}
		})
	}
}

// Pods of an allocated claim go where it is, unless every pod that used it is gone.
func TestAnAllocatedClaimTiesItsPods(t *testing.T) {
	user := runningPod("user", "n0")
	for name, tc := range map[string]struct {
		running []*corev1.Pod
		want    int // the bin where the claim has to be used
	}{
		"its user runs": {running: []*corev1.Pod{user}, want: 0},
		"its user left": {want: devices.Nowhere},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 1), gpus("n1", 1)},
				claims: []*resourcev1.ResourceClaim{usedBy(allocated(claimNamed("c", one(1)), "n0", "gpu-a"), "user")},
				nodes:  []Node{{Name: "n0", Initialized: true}, {Name: "n1", Initialized: true}}}
			m, needs := s.read(podOf("p", "", "c"), tc.running...)
			if needs.Bad.Code != 0 || len(needs.Claims) != 1 || needs.Claims[0].At != tc.want {
				t.Fatalf("needs = %+v, want a claim at %d", needs, tc.want)
			}
			if nodes, _ := m.Place(nil); places(nodes, needs)[0] != 'y' {
				t.Error("the claim cannot stay where it is allocated")
			}
		})
	}
}

// No pod gets a device that belongs to several nodes, because other pods that might take it are not planned.
func TestDevicesOfSeveralNodesAreRefused(t *testing.T) {
	far := gpus("n0", 1)
	everywhere := true
	far.Spec.NodeName, far.Spec.AllNodes = nil, &everywhere
	s := stage{slices: []*resourcev1.ResourceSlice{far}, claims: []*resourcev1.ResourceClaim{claimNamed("c", one(1))}}
	if _, needs := s.read(podOf("p", "", "c")); needs.Bad.Flaw != reason.OfSeveralNodes {
		t.Errorf("refused for %+v", needs.Bad)
	}
}

// Devices that share counters are given away as long as the counters last.
func TestSharedCountersRunOut(t *testing.T) {
	s := gpus("n0", 2)
	s.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "memory",
		Counters: map[string]resourcev1.Counter{"gib": {Value: resource.MustParse("10")}}}}
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "memory",
			Counters: map[string]resourcev1.Counter{"gib": {Value: resource.MustParse("6")}}}}
	}
	for count, want := range map[int64]string{1: "y", 2: "n"} {
		st := stage{slices: []*resourcev1.ResourceSlice{s}, nodes: []Node{{Name: "n0", Initialized: true}},
			claims: []*resourcev1.ResourceClaim{claimNamed("c", one(count))}}
		m, needs := st.read(podOf("p", "", "c"))
		nodes, _ := m.Place(nil)
		if got := places(nodes, needs); got != want {
			t.Errorf("%d devices: %q, want %q", count, got, want)
		}
	}
}

// A constraint that all devices of a claim differ in an attribute rules out a node whose devices are all alike.
func TestConstraintsCompareAttributes(t *testing.T) {
	name := resourcev1.FullyQualifiedName("gpu.example.com/model")
	for kind, tc := range map[string]struct {
		constraint resourcev1.DeviceConstraint
		want       string
	}{
		"alike":    {constraint: resourcev1.DeviceConstraint{MatchAttribute: &name}, want: "y"},
		"distinct": {constraint: resourcev1.DeviceConstraint{DistinctAttribute: &name}, want: "n"},
	} {
		t.Run(kind, func(t *testing.T) {
			spec := one(2)
			spec.Devices.Constraints = []resourcev1.DeviceConstraint{tc.constraint}
			s := stage{slices: []*resourcev1.ResourceSlice{gpus("n0", 2)}, nodes: []Node{{Name: "n0", Initialized: true}},
				claims: []*resourcev1.ResourceClaim{claimNamed("c", spec)}}
			m, needs := s.read(podOf("p", "", "c"))
			nodes, _ := m.Place(nil)
			if got := places(nodes, needs); needs.Bad.Code != 0 || got != tc.want {
				t.Errorf("places = %q, refused for %+v, want %q", got, needs.Bad, tc.want)
			}
		})
	}
}

func TestShareOfACapacity(t *testing.T) {
	q := resource.MustParse
	ptr := func(s string) *resource.Quantity { v := q(s); return &v }
	for name, tc := range map[string]struct {
		policy *resourcev1.CapacityRequestPolicy
		asked  string // "" if the claim does not say
		want   string
		refuse bool
	}{
		"nothing asked takes all":         {want: "100"},
		"nothing asked takes the default": {policy: &resourcev1.CapacityRequestPolicy{Default: ptr("5")}, want: "5"},
		"without a policy as asked":       {asked: "7", want: "7"},
		"at least the minimum": {
			policy: &resourcev1.CapacityRequestPolicy{ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr("10")}},
			asked:  "7",
			want:   "10",
		},
		"rounded up to a step": {
			policy: &resourcev1.CapacityRequestPolicy{ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr("10"), Step: ptr("4")}},
			asked:  "15",
			want:   "18",
		},
		"above the maximum": {
			policy: &resourcev1.CapacityRequestPolicy{ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr("10"), Max: ptr("20")}},
			asked:  "30",
			want:   "30",
			refuse: true,
		},
		"the next listed value": {
			policy: &resourcev1.CapacityRequestPolicy{ValidValues: []resource.Quantity{q("10"), q("20")}},
			asked:  "15",
			want:   "20",
		},
		"above every listed value": {
			policy: &resourcev1.CapacityRequestPolicy{ValidValues: []resource.Quantity{q("10"), q("20")}},
			asked:  "25",
			want:   "25",
			refuse: true,
		},
		"more than the device has": {asked: "101", want: "101", refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kind{device: &resourcev1.Device{Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"c": {Value: q("100"), RequestPolicy: tc.policy}}}}
			want := &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
			if tc.asked != "" {
				want.Requests["c"] = q(tc.asked)
			}
			got, within := takes(want, k)
			if full := q(tc.want); len(got) != 1 || got[0] != milli(&full) || within == tc.refuse {
				t.Errorf("takes = %v, within %t, want %s", got, within, tc.want)
			}
		})
	}
}

func TestTolerationsOfDevices(t *testing.T) {
	taint := resourcev1.DeviceTaint{Key: "broken", Value: "yes", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		toleration resourcev1.DeviceToleration
		want       bool
	}{
		"any taint":      {toleration: resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}, want: true},
		"the same value": {toleration: resourcev1.DeviceToleration{Key: "broken", Value: "yes"}, want: true},
		"another value":  {toleration: resourcev1.DeviceToleration{Key: "broken", Value: "no"}},
		"another key":    {toleration: resourcev1.DeviceToleration{Key: "old", Operator: resourcev1.DeviceTolerationOpExists}},
		"another effect": {
			toleration: resourcev1.DeviceToleration{Key: "broken", Operator: resourcev1.DeviceTolerationOpExists,
				Effect: resourcev1.DeviceTaintEffectNoExecute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := toleratesDevice(&tc.toleration, &taint); got != tc.want {
				t.Errorf("toleratesDevice = %t, want %t", got, tc.want)
			}
		})
	}
}
