package disrupt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/kit/selector"
)

// TestDevicesThatMovedPodsWillHaveAreTaken has a pod on its way from a to b, and another one that waits.
func TestDevicesThatMovedPodsWillHaveAreTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		moves, waits string // claims that pods name, "" for one from a template
		stay         bool   // another pod of the moved one's claim has no other place yet
		devices      int    // of b
		placed       bool
	}{
		"one device, and both have claims of their own": {devices: 1},
		"one for each": {devices: 2, placed: true},
		"the claim of the one that moves is allocated anew":                {moves: "one", devices: 1},
		"and needs one device":                                             {moves: "one", devices: 2, placed: true},
		"both have one claim, which follows":                               {moves: "one", waits: "one", devices: 1, placed: true},
		"a claim that stays, as another of its pods does, is nowhere else": {moves: "one", stay: true, devices: 1, placed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("small", 4, 16, 1, 0)).pool("p").node("a", "p", "small", "on-demand").node("b", "p", "small", "on-demand")
			f.publish("a", 1)
			f.publish("b", tc.devices)
			f.pods("a", "moves", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, tc.moves) })
			if tc.stay {
				f.pods("a", "stays", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, tc.moves) })
			}
			f.putDevices()
			f.pods("none", "late", 1, "1", "1Gi", waits, func(p *corev1.Pod) { wantsGPU(p, tc.waits) })
			f.store.Update(func(d *cluster.Draft) {
				d.MarkForRemoval("a")
				d.Plan(cluster.PodKey{Namespace: "default", Name: "moves-a-0"}, "b", noon)
			})
			snap := f.store.Snapshot()
			plan := engine.New().Plan(engine.Question{Snap: snap, Pods: []*cluster.Pod{snap.Pod(promisedPod)}, Settings: engine.Settings{Selects: selector.Selects}, Now: noon})
			if placed := len(plan.Place) == 1; placed != tc.placed {
				t.Errorf("placed = %v, want %v; refused: %+v", placed, tc.placed, plan.Refused)
			}
		})
	}
}

// TestDevicesOfKeptPlacesAreTaken has a pod on a that may come to b, and another one that waits.
func TestDevicesOfKeptPlacesAreTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		claim   string // that the pod on a names, "" for one of its own
		stay    bool   // another pod of that claim has no other place
		devices int    // of b
		placed  bool
	}{
		"one device":                           {devices: 1},
		"one for each":                         {devices: 2, placed: true},
		"one device, for a claim that follows": {claim: "one", devices: 1},
		"one for each claim":                   {claim: "one", devices: 2, placed: true},
		"a claim that stays, as another of its pods does": {claim: "one", stay: true, devices: 1, placed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("small", 4, 16, 1, 0)).pool("p").node("a", "p", "small", "on-demand").node("b", "p", "small", "on-demand")
			f.publish("a", 1)
			f.publish("b", tc.devices)
			f.pods("a", "may-come", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, tc.claim) })
			if tc.stay {
				f.pods("a", "stays", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, tc.claim) })
			}
			f.putDevices()
			f.pods("none", "late", 1, "1", "1Gi", waits, func(p *corev1.Pod) { wantsGPU(p, "") })
			snap := f.store.Snapshot()
			kept := []engine.Placement{{Pod: snap.Pod(cluster.PodKey{Namespace: "default", Name: "may-come-a-0"}), Node: "b"}}
			plan := engine.New().Plan(engine.Question{Snap: snap, Pods: []*cluster.Pod{snap.Pod(promisedPod)}, Kept: kept, Settings: engine.Settings{Selects: selector.Selects}, Now: noon})
			if placed := len(plan.Place) == 1; placed != tc.placed {
				t.Errorf("placed = %v, want %v; refused: %+v", placed, tc.placed, plan.Refused)
			}
		})
	}
}

// While what there is of devices is not read, nodes whose pods have some stay, and all others go as they would.
func TestDevicesThatAreNotReadHoldTheirNodesOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		failed []cluster.FailedFeed
		want   string
	}{
		"everything is read":  {nil, "a"},
		"devices are not":     {[]cluster.FailedFeed{{Kind: "ResourceSlice", Devices: true}}, "c"},
		"others are not read": {[]cluster.FailedFeed{{Kind: "PersistentVolume"}}, "a"}, // the loop asks nobody then
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("small", 4, 16, 1, 0), shape("plain", 4, 16, 0.5, 0)).pool("p").node("a", "p", "small", "on-demand").node("b", "p", "small", "on-demand").node("c", "p", "plain", "on-demand")
			f.publish("a", 1)
			f.publish("b", 4)
			f.pods("a", "job", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, "") })
			f.pods("b", "job", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, "") })
			f.pods("c", "web", 1, "1", "1Gi")
			f.putDevices()
			f.store.Update(func(d *cluster.Draft) { d.FailedFeeds(tc.failed) })
			w := f.world()
			w.Terms.Selects = selector.Selects
			var gone []string
			for _, s := range newPlanner(engine.New()).Propose(w).Steps {
				for _, c := range s.Remove {
					gone = append(gone, c.Name())
				}
			}
			slices.Sort(gone)
			if got := strings.Join(gone, ","); got != tc.want {
				t.Errorf("to go: %q, want %q", got, tc.want)
			}
		})
	}
}

// gpuDriver is the driver of all devices in stories, and the name of the device class.
const gpuDriver = "gpu.example"

func gpus(n int) (out []resourcev1.Device) {
	for i := range n {
		out = append(out, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	return out
}

// publish says that the driver has found so many devices on a node.
func (f *fixture) publish(node string, n int) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu"}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: gpuDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: gpus(n)}
	f.store.Update(func(d *cluster.Draft) { cluster.ResourceSlices.Put(d, s) })
}

// wantsGPU makes a pod ask for a device: by a claim of that name, by one of its own without.
func wantsGPU(p *corev1.Pod, claim string) {
	r := corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim}
	if claim == "" {
		r.ResourceClaimName, r.ResourceClaimTemplateName = nil, new("gpu")
	}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{r}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
}

// putDevices adds the class, the template and the claims that pods use. Claims are allocated on the node of the first of their pods that is bound, and
// reserved for all of them.
func (f *fixture) putDevices() {
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: gpuDriver}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + gpuDriver + "'"}}}
	claims, taken := map[string]*resourcev1.ResourceClaim{}, map[string]int{}
	use := func(p *cluster.Pod, r *corev1.PodResourceClaim) {
		name := p.Name + "-gpu"
		if r.ResourceClaimName != nil {
			name = *r.ResourceClaimName
		} else if p.NodeName == "" {
			return
		}
		c := claims[name]
		if c == nil {
			c = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
			claims[name] = c
		}
		if r.ResourceClaimTemplateName != nil {
			c.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: r.Name}
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}
		}
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		if c.Status.Allocation == nil && p.NodeName != "" {
			c.Status.Allocation = allocated(p.NodeName, taken[p.NodeName])
			taken[p.NodeName]++
		}
	}
	for p := range f.store.Snapshot().Pods() {
		for i := range p.Class.Spec.ResourceClaims {
			use(p, &p.Class.Spec.ResourceClaims[i])
		}
	}
	f.store.Update(func(d *cluster.Draft) {
		cluster.DeviceClasses.Put(d, class)
		cluster.ClaimTemplates.Put(d, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}})
		for _, c := range claims {
			cluster.ResourceClaims.Put(d, c)
		}
	})
}

func allocated(node string, device int) *resourcev1.AllocationResult {
	return &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: gpuDriver, Pool: node, Device: fmt.Sprintf("device-%d", device)}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}},
	}
}

// Every device of 20 nodes has a number of its own, and who writes claims asks hundreds of things about each. Pods of others are planned for, and
// those pods are told that it takes more plans, or is too much.
func TestClaimsThatAskTooMuchKeepNobodyWaiting(t *testing.T) {
	f := newFixture(shape("small", 4, 16, 1, 0)).pool("p")
	spec := func(alternatives int) resourcev1.ResourceClaimTemplateSpec {
		var out resourcev1.ResourceClaimSpec
		for r := range alternatives / 8 {
			request := resourcev1.DeviceRequest{Name: fmt.Sprint("r", r)}
			for a := range 8 {
				request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprint("a", a), DeviceClassName: gpuDriver, Count: 1})
			}
			out.Devices.Requests = append(out.Devices.Requests, request)
		}
		return resourcev1.ResourceClaimTemplateSpec{Spec: out}
	}
	for n := range 20 {
		node := fmt.Sprint("node-", n)
		f.node(node, "p", "small", "on-demand", func(n *corev1.Node, _ *v1.NodeClaim) { n.Labels["rack"] = node })
		devices := gpus(1000)
		for i := range devices {
			devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: new(fmt.Sprint(n, "/", i))}}
		}
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: gpuDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: devices}
		f.store.Update(func(d *cluster.Draft) { cluster.ResourceSlices.Put(d, s) })
	}
	f.putDevices()
	f.store.Update(func(d *cluster.Draft) {
		for i := range 100 {
			template := fmt.Sprint("greedy-", i)
			cluster.ClaimTemplates.Put(d, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: template}, Spec: spec(256)})
			d.PutPod(pending("greedy", template))
		}
		cluster.ClaimTemplates.Put(d, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "humble", Name: "humble"}, Spec: spec(8)})
		humble := pending("humble", "humble")
		humble.Spec.NodeSelector = map[string]string{"rack": "node-0"}
		d.PutPod(humble)
	})
	snap, asked := f.store.Snapshot(), 0
	selects := func(expression, driver string, d *resourcev1.Device) (bool, error) {
		asked++
		return driver == gpuDriver, nil
	}
	last := cluster.PodKey{Namespace: "greedy", Name: "greedy-99"}
	e := engine.New()
	for turn, most := range []int{20_000, 0, 0} {
		asked = 0
		in := engine.Question{Snap: snap, Pods: snap.Provisionable(), Settings: engine.Settings{Selects: selects}, Now: noon}
		if turn == 2 {
			in.LeftOut = map[cluster.PodKey]int{last: 2}
		}
		plan := e.Plan(in)
		if len(plan.Place) != 1 || plan.Place[0].Pod.Namespace != "humble" {
			t.Errorf("turn %d: %d placed, want that of others alone", turn, len(plan.Place))
		}
		said, ofLast := map[reason.Code]int{}, reason.Code(0)
		for _, r := range plan.Refused {
			said[r.Reasons[0].Code]++
			if r.Pod.PodKey == last {
				ofLast = r.Reasons[0].Code
			}
		}
		if said[reason.Postponed]+said[reason.DeviceHard] != 100 || turn > 0 && said[reason.DeviceHard] == 0 {
			t.Errorf("turn %d: refused for %v", turn, said)
		}
		if turn < 2 && ofLast != reason.Postponed || turn == 2 && ofLast != reason.DeviceHard {
			t.Errorf("turn %d: who came last was told %v", turn, ofLast)
		}
		if asked > most {
			t.Errorf("turn %d: a selector was asked %d times, want at most %d", turn, asked, most)
		}
	}
	// One that is left for another plan keeps the place that it has, and as nobody knows its devices, all of that node.
	f.store.Update(func(d *cluster.Draft) { d.Plan(cluster.PodKey{Namespace: "greedy", Name: "greedy-0"}, "node-0", noon) })
	snap = f.store.Snapshot()
	plan := engine.New().Plan(engine.Question{Snap: snap, Pods: snap.Provisionable(), Settings: engine.Settings{Selects: selects}, Now: noon})
	for _, r := range plan.Refused {
		if r.Pod.Name == "greedy-0" {
			t.Errorf("a pod that has a place is refused: %v", r.Reasons)
		}
	}
	if len(plan.Place) != 0 {
		t.Errorf("%d are placed on devices of which nobody knows whether they are free", len(plan.Place))
	}
}

// pending is a pod that waits, with a claim of its own from a template of its name.
func pending(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &name}}}}
	waits(p)
	return p
}

// A node that says that it has more devices than any node has gets no pod that wants one.
func TestANodeWithMoreDevicesThanAnyHasGivesNoneAway(t *testing.T) {
	for devices, placed := range map[int]bool{10_000: true, 10_001: false} {
		f := newFixture(shape("small", 4, 16, 1, 0)).pool("p").node("a", "p", "small", "on-demand")
		f.publish("a", devices)
		f.putDevices()
		f.pods("none", "late", 1, "1", "1Gi", waits, func(p *corev1.Pod) { wantsGPU(p, "") })
		snap := f.store.Snapshot()
		plan := engine.New().Plan(engine.Question{Snap: snap, Pods: []*cluster.Pod{snap.Pod(promisedPod)}, Settings: engine.Settings{Selects: selector.Selects}, Now: noon})
		if got := len(plan.Place) == 1; got != placed {
			t.Errorf("%d devices: placed = %v, want %v", devices, got, placed)
		}
	}
}
