package replay

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/history/recording"
)

// onSpot sells the machines of a variant on spot too, at half the price.
func onSpot(v *Variant) {
	for _, it := range v.Pools[0].Catalog.Types {
		spot := cloud.Offering{Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, corev1.LabelTopologyZone: "a"}, Price: it.Offerings[0].Price / 2, Available: true}
		it.Offerings = append(it.Offerings, spot)
		it.Labels[v1.CapacityTypeLabelKey] = []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot}
	}
}

func TestMarketOf(t *testing.T) {
	m := Market{{SoldOut: 0.1}, {Type: "a", SoldOut: 0.2}, {Type: "a", Zone: "z", SoldOut: 0.3}, {CapacityType: "on-demand", SoldOut: 0.4}}
	for key, want := range map[offerKey]float64{
		{"b", "z", "spot"}: 0.1, {"a", "y", "spot"}: 0.2, {"a", "z", "spot"}: 0.3, {"a", "z", "on-demand"}: 0.4,
	} {
		if got := m.rateOf(key).SoldOut; got != want {
			t.Errorf("%v: %v, want %v", key, got, want)
		}
	}
}

// Of many hours, and many machines, as many are hit as the rate says.
func TestRatesAreMet(t *testing.T) {
	m := Market{{Interrupted: 0.2, SoldOut: 0.3}}
	key := offerKey{"a", "z", v1.CapacityTypeSpot}
	const n = 20_000
	out, back := 0, 0
	for i := range n {
		if m.soldOut(key, start.Add(time.Duration(i)*time.Hour)) {
			out++
		}
		if d, ok := m.lifetime(key, fmt.Sprintf("default-%05d", i)); ok && d < month {
			back++
		}
	}
	if got := float64(out) / n; got < 0.28 || got > 0.32 {
		t.Errorf("sold out in %.3f of all hours, want 0.3", got)
	}
	if got := float64(back) / n; got < 0.18 || got > 0.22 {
		t.Errorf("%.3f of the machines are taken back within a month, want 0.2", got)
	}
	if _, ok := m.lifetime(offerKey{"a", "z", v1.CapacityTypeOnDemand}, "default-1"); ok {
		t.Error("a machine on demand is taken back")
	}
	if m.soldOut(key, start) != m.soldOut(key, start.Add(59*time.Minute)) {
		t.Error("what is sold out changes within the hour")
	}
}

// Machines that are taken back are replaced; their pods wait as long as a machine boots.
func TestSpotMachinesAreTakenBack(t *testing.T) {
	v := variant()
	onSpot(&v)
	s := settings()
	s.Market = Market{{Interrupted: 0.9999}}
	got := play(t, record(t, 10*24*3600, life("a", "1", 0, 0)), v, s)
	if n := got.Steps["Interrupted"]; n == 0 || got.Launched < n || got.Evictions < n || got.Unplaced != 0 || got.WaitSeconds.Max > 75 {
		t.Errorf("%v, %d launched, %d evictions, waited %+v", got.Steps, got.Launched, got.Evictions, got.WaitSeconds)
	}
}

// A budget holds pods for two minutes, and no longer: then the machine is gone.
func TestABudgetDoesNotHoldAMachineThatIsTakenBack(t *testing.T) {
	v := variant()
	onSpot(&v)
	v.Store.Update(func(d *cluster.Draft) {
		cluster.PDBs.Put(d, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	})
	s := settings()
	s.Market = Market{{Interrupted: 0.9999}}
	got := play(t, record(t, 10*24*3600, life("a", "1", 0, 0)), v, s)
	if n := got.Steps["Interrupted"]; n == 0 || got.Evictions != n {
		t.Errorf("%v, %d evictions", got.Steps, got.Evictions)
	}
}

// What is sold out is bought otherwise, and where nothing is left the pod waits until there is something.
func TestWhatIsSoldOut(t *testing.T) {
	for name, tc := range map[string]struct {
		market  Market
		dollars float64
		waits   bool
	}{
		"nothing":                    {nil, 0.05, false},
		"spot":                       {Market{{CapacityType: v1.CapacityTypeSpot, SoldOut: 1}}, 0.1, false},
		"the small ones":             {Market{{Type: "small", SoldOut: 1}}, 0.2, false},
		"all but the dearest":        {Market{{SoldOut: 1}, {Type: "large", CapacityType: v1.CapacityTypeOnDemand}}, 0.4, false},
		"everything":                 {Market{{SoldOut: 1}}, 0, true},
		"what nobody here would buy": {Market{{Type: "other", SoldOut: 1}}, 0.05, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := variant()
			onSpot(&v)
			s := settings()
			s.Market = tc.market
			got := play(t, record(t, 3600, life("a", "1", 0, 0)), v, s)
			if last := got.Curve[len(got.Curve)-1]; last.Price != tc.dollars || (got.Unplaced == 1) != tc.waits {
				t.Errorf("$%v an hour, %d without a place, want $%v", last.Price, got.Unplaced, tc.dollars)
			}
			if (got.SoldOut > 0) != (len(tc.market) > 0 && tc.market[0].Type != "other") {
				t.Errorf("%d launches met nothing", got.SoldOut)
			}
		})
	}
}

// A step whose machine is sold out is not begun: nothing goes for which nothing comes.
func TestAStepWhoseMachineIsSoldOutIsNotBegun(t *testing.T) {
	v := variant()
	stand(t, &v, node("one", "large"), nil)
	s := settings()
	s.Market = Market{{CapacityType: v1.CapacityTypeOnDemand, SoldOut: 1}}
	got := play(t, record(t, 3600, on("one", life("a", "1", 0, 0))), v, s)
	if got.Launched != 0 || got.Evictions != 0 || got.SoldOut == 0 || got.Curve[5].Nodes != 1 {
		t.Errorf("%d launched, %d evictions, at last %+v", got.Launched, got.Evictions, got.Curve[5])
	}
}

// Machines that are no longer what their pool makes are replaced, one after the other, and others are left alone.
func TestAnEditOfAPoolDrifts(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   func(*v1.NodePool)
		class  string // why machines of the class drift
		drifts bool
	}{
		"a label":               {func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "b"} }, "", true},
		"requirements":          {func(p *v1.NodePool) { only(p, "large") }, "", true},
		"requirements that fit": {func(p *v1.NodePool) { only(p, "large", "small") }, "", false},
		"limits":                {func(p *v1.NodePool) { p.Spec.Weight = new(int32(5)) }, "", false},
		"its node class":        {func(*v1.NodePool) {}, "NodeClassDrift", true},
		"nothing":               {func(*v1.NodePool) {}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := variant()
			after := v.Pools[0].Pool.DeepCopy()
			tc.edit(after)
			v.Edits = []Edit{{At: start.Add(30 * time.Minute), Pools: []engine.Pool{{Pool: after, Catalog: v.Pools[0].Catalog}},
				Classes: map[string]func(*v1.NodeClaim) string{"default": func(*v1.NodeClaim) string { return tc.class }}}}
			lives := []recording.Life{life("a", "1500m", 0, 0), life("b", "1500m", 0, 0)}
			got := play(t, record(t, 7200, lives...), v, settings())
			if (got.Steps["Drifted"] > 0) != tc.drifts || tc.drifts && got.Evictions != 2 || !tc.drifts && got.Evictions != 0 {
				t.Errorf("steps %v, %d evictions", got.Steps, got.Evictions)
			}
			if last := got.Curve[len(got.Curve)-1]; last.Waiting != 0 || last.Pods != 2 {
				t.Errorf("at last %+v", last)
			}
		})
	}
}

// A pool that an edit does not name stays: its machines are looked after as before.
func TestAnEditOfOtherPools(t *testing.T) {
	v := variant()
	other := v.Pools[0].Pool.DeepCopy()
	other.Name, other.UID, other.Spec.Weight = "other", "other", new(int32(5))
	v.Edits = []Edit{{At: start.Add(30 * time.Minute), Pools: []engine.Pool{{Pool: other, Catalog: v.Pools[0].Catalog}}}}
	got := play(t, record(t, 7200, life("a", "1500m", 0, 0), life("b", "1500m", 0, 3600), life("c", "1500m", 2400, 0)), v, settings())
	if last := got.Curve[len(got.Curve)-1]; last.Nodes != 2 || last.Waiting != 0 || got.Steps["Drifted"] != 0 {
		t.Errorf("at last %+v, steps %v", last, got.Steps)
	}
}

func only(p *v1.NodePool, kinds ...string) {
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: kinds}}
}
