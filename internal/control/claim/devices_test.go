package claim_test

import (
	"maps"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/control/claim"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A node whose pods count on a driver is open for them, and done, once the driver has published all its devices. Where it never does the machine
// counts, after the usual time, as one that never became ready.
func TestANodeWaitsForItsDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		off   bool // devices are not planned for
		asks  string
		comes []string // after a minute: drivers that publish a slice
		of    int64    // slices in a pool
		want  string   // why it is not initialised then, and never will be; "" if it is
	}{
		"a driver that publishes": {asks: "gpu.example", comes: []string{"gpu.example"}, of: 1},
		"one that never does":     {asks: "gpu.example", want: v1.ReasonDRADriverPoolsNotPublished},
		"half of its slices":      {asks: "gpu.example", comes: []string{"gpu.example"}, of: 2, want: v1.ReasonDRADriverPoolsNotPublished},
		"another driver":          {asks: "gpu.example", comes: []string{"nic.example"}, of: 1, want: v1.ReasonDRADriverPoolsNotPublished},
		"one of two":              {asks: "gpu.example,nic.example", comes: []string{"nic.example"}, of: 1, want: v1.ReasonDRADriverPoolsNotPublished},
		"both":                    {asks: "gpu.example,nic.example", comes: []string{"nic.example", "gpu.example"}, of: 1},
		"nobody counts on any":    {},
		"nobody reads what is published meanwhile": {off: true, asks: "gpu.example"},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Claim: claim.Settings{Devices: !tc.off}}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				time.Sleep(time.Second)
				sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) {
					c.Annotations = maps.Clone(sim.Get[*v1.NodePool](t, w, "default").Annotations) // of the pool's template
					if tc.asks != "" {
						c.Annotations[v1.RequestedDRADriversAnnotationKey] = tc.asks
					}
				}))
				time.Sleep(time.Minute)
				c := sim.Get[*v1.NodeClaim](t, w, "c")
				if !condition.IsTrue(c, v1.ConditionTypeRegistered) {
					t.Fatalf("the node did not join: %v", c.Status.Conditions)
				}
				if got, wait := condition.IsTrue(c, v1.ConditionTypeInitialized), tc.asks != "" && !tc.off; got == wait {
					t.Errorf("before its devices are there, initialised = %v", got)
				}
				for _, driver := range tc.comes {
					w.API.Put(sliceOf(driver, c.Status.NodeName, tc.of))
				}
				time.Sleep(5 * time.Second)
				wantInitialized(t, w, tc.want)
				time.Sleep(11 * time.Minute)
				wantInitialized(t, w, tc.want)
				trouble := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeMachinesGetReady)
				if (trouble != nil && trouble.Status == metav1.ConditionFalse) != (tc.want != "") {
					t.Errorf("machines of the pool get ready: %+v", trouble)
				}
			})
		})
	}
}

func sliceOf(driver, node string, of int64) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver}}
	s.Spec = resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: of},
		Devices: []resourcev1.Device{{Name: "device-0"}},
	}
	return s
}

// wantInitialized wants the claim to be initialised, or not to be for a reason.
func wantInitialized(t *testing.T, w *sim.World, reason string) {
	t.Helper()
	got := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeInitialized)
	if reason == "" && got.Status != metav1.ConditionTrue || reason != "" && (got.Status != metav1.ConditionUnknown || got.Reason != reason) {
		t.Errorf("Initialized = %s %s %q, want reason %q", got.Status, got.Reason, got.Message, reason)
	}
}
