package crashtest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// gpus are devices of a model.
func gpus(model string, n int) (out []resourcev1.Device) {
	for i := range n {
		out = append(out, resourcev1.Device{Name: "gpu-" + string(rune('0'+i)), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
	}
	return out
}

// gpuShop sells machines without devices, and dearer ones with two GPUs each.
func gpuShop(*v1.NodePool) (*cloud.Catalog, error) {
	with := sim.Kind("gpu", 8, 4)
	with.Devices = []cloud.DeviceSlice{{Driver: "gpu.example", Devices: gpus("a100", 2)}}
	return &cloud.Catalog{Types: []*cloud.InstanceType{with, sim.Kind("small", 2, 0.1)}}, nil
}

// published is what a driver says of the devices of a node.
func published(node string, of []resourcev1.Device) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu"}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: of}
	return s
}

// TestDevicesThatDoNotComeAreNotBoughtAgainAndAgain has pods that want GPUs, and drivers that do not bring what instance types promise. For as
// long as nothing changes few machines are tried, and pods that want no devices get theirs.
func TestDevicesThatDoNotComeAreNotBoughtAgainAndAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		comes []resourcev1.Device // nil: no driver
		least int                 // machines in two hours
		most  int
	}{
		"what was promised":        {gpus("a100", 2), 1, 1},
		"no driver":                {nil, 1, 1}, // the machine is not done, and is kept for the pod
		"devices of another model": {gpus("t4", 2), 3, 10},
		"fewer devices":            {gpus("a100", 1), 3, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var w *sim.World
			fits := tc.most == 1 && tc.comes != nil
			o := sim.Options{Cloud: fakecloud.Options{Catalog: gpuShop}, Refuses: func(p *corev1.Pod, n *corev1.Node) bool {
				return len(p.Spec.ResourceClaims) > 0 && (!fits || n.Labels[corev1.LabelInstanceTypeStable] != "gpu")
			}}
			o.Joins = func(m cloud.Machine) bool {
				if m.InstanceType == "gpu" && tc.comes != nil {
					time.AfterFunc(5*time.Second, func() { w.API.Put(published(sim.NodeName(m), tc.comes)) })
				}
				return true
			}
			ko := everything
			ko.Devices = true
			sim.BubbleAlone(t, o, func(t *testing.T, world *sim.World) {
				w = world
				for _, object := range wantsTwoGPUs() {
					w.API.Put(object)
				}
				bought := watchPurchases(t, w)
				w.With(t, ko, func(k *sim.Karpenter) {
					time.Sleep(30 * time.Minute)
					w.API.Put(sim.Pod("web", "1"))
					time.Sleep(90 * time.Minute)
					if p := sim.Get[*corev1.Pod](t, w, "web"); p.Status.Phase != corev1.PodRunning {
						t.Errorf("a pod that wants no devices is %s", p.Status.Phase)
					}
					if n := bought.count(); n < tc.least || n > tc.most {
						t.Errorf("%d machines were bought in two hours, want %d to %d; with so many minutes in between: %v", n, tc.least, tc.most, bought.gaps())
					}
					if p := sim.Get[*corev1.Pod](t, w, "train"); (p.Spec.NodeName != "") != fits {
						t.Errorf("the pod that wants GPUs is on %q", p.Spec.NodeName)
					}
					if tc.most > 1 {
						wantText(t, k, "train", "without the devices that machines of its type are expected to have", "a further node is tried at ")
					}
				})
			})
		})
	}
}

// wantsTwoGPUs is a pod that wants two GPUs of the model that is promised, and what its claim names.
func wantsTwoGPUs() []client.Object {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example" && device.attributes["gpu.example"].model == "a100"`}}}
	two := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}
	two.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 2}}}
	pod := sim.Pod("train", "1", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("two")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	return []client.Object{class, two, pod}
}
