package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A hook answers what it is told to.
type hook struct {
	name   string
	result cloudprovider.NodeLifecycleHookResult
	err    error
}

func (h hook) Name() string { return h.name }

func (h hook) Registered(_ context.Context, c *karpv1.NodeClaim) (cloudprovider.NodeLifecycleHookResult, error) {
	if c.Name != "web" || c.Labels["changed"] != "" {
		return h.result, errors.New("it is not the claim")
	}
	c.Labels["changed"] = "by a hook"
	return h.result, h.err
}

func TestRegistrationHooks(t *testing.T) {
	for name, tc := range map[string]struct {
		hooks   []cloudprovider.NodeLifecycleHook
		pending string
		again   time.Duration
	}{
		"none": {nil, "", 0},
		"done": {[]cloudprovider.NodeLifecycleHook{hook{name: "disk"}, hook{name: "cni"}}, "", 0},
		"the shortest time counts": {[]cloudprovider.NodeLifecycleHook{hook{name: "disk", result: cloudprovider.NodeLifecycleHookResult{RequeueAfter: time.Minute}},
			hook{name: "done"}, hook{name: "cni", result: cloudprovider.NodeLifecycleHookResult{RequeueAfter: 7 * time.Second}}}, "disk, cni", 7 * time.Second},
		"a hook without a time":  {[]cloudprovider.NodeLifecycleHook{hook{name: "disk", result: cloudprovider.NodeLifecycleHookResult{Requeue: true}}}, "disk", hookRetry},
		"a hook that has failed": {[]cloudprovider.NodeLifecycleHook{hook{name: "disk", err: errors.New("no route")}}, "disk", hookRetry},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{}
			for _, h := range tc.hooks {
				WithRegistrationHook(h)(&s)
			}
			a := adapt(t, newRack(), newFakeCluster())
			a.hooks = s.hooks
			if pending, again := a.registrationHook(t.Context(), claim("web")); pending != tc.pending || again != tc.again {
				t.Errorf("pending %q, again in %v; want %q, %v", pending, again, tc.pending, tc.again)
			}
		})
	}
}

// TestACatalogueIsKeptForAWhile counts how often the provider is asked.
func TestACatalogueIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		a := adapt(t, r, p)
		var last *cloud.Catalog
		ask := func(pool *v1.NodePool) (same bool) {
			t.Helper()
			c, err := a.Catalog(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			same, last = c == last, c
			return same
		}
		one, other := pool("default"), pool("default")
		other.Name, other.UID = "other", "o"
		for _, step := range []struct {
			what  string
			do    func()
			pool  *v1.NodePool
			asked int
			same  bool
		}{
			{"the first time", func() {}, one, 1, false},
			{"again", func() {}, one, 1, true},
			{"another pool", func() {}, other, 2, false},
			{"the first pool again", func() {}, one, 2, false},
			{"after a while nothing has changed", func() { time.Sleep(catalogLifetime) }, one, 3, true},
			{"the pool has changed", func() { one.Generation++ }, one, 4, true},
			{"the node class has changed", func() { p.classes["default"].ResourceVersion = "2" }, one, 5, true},
			{"prices have changed, but not for long enough", func() { r.price = 2 }, one, 5, true},
			{"prices have changed", func() { time.Sleep(catalogLifetime) }, one, 6, false},
		} {
			step.do()
			if same := ask(step.pool.DeepCopy()); same != step.same || r.typesAsked != step.asked {
				t.Errorf("%s: the same %v, asked %d times; want %v, %d", step.what, same, r.typesAsked, step.same, step.asked)
			}
		}
	})
}

// TestALaunchFollowsNodeOverlays has an overlay that makes the largest server the cheapest: the provider does not know of it.
func TestALaunchFollowsNodeOverlays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			overlaid  bool
			minValues *int
			want      string
		}{
			"without an overlay the provider chooses":  {want: "server-2"},
			"the type that the overlay makes cheapest": {overlaid: true, want: "server-8"},
			"flexibility that was asked for is kept":   {overlaid: true, minValues: new(2), want: "server-2"},
		} {
			a := adapt(t, newRack(), newFakeCluster())
			a.corrected = func(_ context.Context, pool string, c *cloud.Catalog) *cloud.Catalog {
				out := &cloud.Catalog{}
				for _, it := range c.Types {
					copied := *it
					copied.Offerings = append([]cloud.Offering(nil), it.Offerings...)
					for i := range copied.Offerings {
						if o := &copied.Offerings[i]; tc.overlaid && pool == "default" && it.Name == "server-8" {
							o.Price, o.Overlaid = 1, true
						}
					}
					out.Types = append(out.Types, &copied)
				}
				return out
			}
			if _, err := a.Catalog(t.Context(), pool("default")); err != nil {
				t.Fatal(err)
			}
			c := claim("web")
			c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"server-2", "server-4", "server-8"}, MinValues: tc.minValues}}
			if m, err := a.Launch(t.Context(), c); err != nil || m.InstanceType != tc.want {
				t.Errorf("%s: launched %s, error %v; want %s", name, m.InstanceType, err, tc.want)
			}
		}
	})
}
