package disrupt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/selector"
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
		devices int // of b
		placed  bool
	}{
		"one device":   {1, false},
		"one for each": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("small", 4, 16, 1, 0)).pool("p").node("a", "p", "small", "on-demand").node("b", "p", "small", "on-demand")
			f.publish("a", 1)
			f.publish("b", tc.devices)
			f.pods("a", "may-come", 1, "1", "1Gi", func(p *corev1.Pod) { wantsGPU(p, "") })
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
	f.store.Update(func(d *cluster.Draft) { d.PutResourceSlice(s) })
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
		d.PutDeviceClass(class)
		d.PutResourceClaimTemplate(&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}})
		for _, c := range claims {
			d.PutResourceClaim(c)
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
