package savings

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// catalogue sells m5 of three sizes on demand, at five cents a core, and spot at two.
func catalogue() *cloud.Catalog {
	c := &cloud.Catalog{}
	for name, cores := range map[string]int64{"m5.large": 2, "m5.xlarge": 4, "m5.2xlarge": 8} {
		it := &cloud.InstanceType{Name: name, Labels: map[string][]string{
			corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"},
			corev1.LabelTopologyZone: {"a"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand, v1.CapacityTypeSpot},
		}, Capacity: room(cores)}
		for capacity, perCore := range map[string]float64{v1.CapacityTypeOnDemand: .05, v1.CapacityTypeSpot: .02} {
			it.Offerings = append(it.Offerings, cloud.Offering{Available: true, Price: cloud.FromDollars(perCore * float64(cores)),
				Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: capacity}})
		}
		slices.SortFunc(it.Offerings, func(x, y cloud.Offering) int { return cmp.Compare(x.Price, y.Price) })
		c.Types = append(c.Types, it)
	}
	slices.SortFunc(c.Types, func(x, y *cloud.InstanceType) int { return cmp.Compare(x.Name, y.Name) })
	return c
}

func room(cores int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(cores*4<<30, resource.BinarySI), corev1.ResourcePods: resource.MustParse("110")}
}

func node(i int, it *cloud.InstanceType, capacity string) *corev1.Node {
	name := fmt.Sprintf("n%d", i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "a",
			corev1.LabelInstanceTypeStable: it.Name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", capacityTypeLabel: capacity}},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///a/i-" + name},
		Status: corev1.NodeStatus{Capacity: it.Capacity, Allocatable: it.Capacity, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func pod(name, node string, millis int64, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(millis, resource.DecimalSI)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// randomFleet returns nodes of three types that hold pods, some of which may not move.
func randomFleet(r *rand.Rand) engine.Question {
	catalog, store := catalogue(), cluster.NewStore()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "K", Name: "default"}
	none := intstr.FromInt32(0)
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		cluster.PDBs.Put(d, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "held", Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"held": "yes"}}}})
		for i := range 1 + r.IntN(6) {
			it := catalog.Types[r.IntN(3)]
			cores := it.Capacity.Cpu().Value()
			n := node(i, it, []string{"ON_DEMAND", "SPOT"}[r.IntN(2)])
			d.PutNode(n)
			for j := range r.IntN(3) {
				p := pod(fmt.Sprintf("p%d-%d", i, j), n.Name, r.Int64N(cores*500), map[string]string{"held": []string{"yes", "no", "no"}[r.IntN(3)]})
				if r.IntN(5) == 0 {
					p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
				}
				d.PutPod(p)
			}
		}
		d.Synced(true)
	})
	return engine.Question{Snap: store.Snapshot(), Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, Now: time.Unix(1e9, 0)}
}

func TestPartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 150 {
		q := randomFleet(r)
		var commitments []tariff.Commitment
		if n%2 == 1 {
			commitments = []tariff.Commitment{
				{ID: "sp", Kind: tariff.ComputeSavingsPlan, PerHour: cloud.NanoUSD(r.Int64N(5e8)),
					Rates: map[string]cloud.NanoUSD{"m5.large": 7e7, "m5.xlarge": 1e8}},
				{ID: "ri", Kind: tariff.ReservedInstance, Region: "r", Type: "m5.large", OS: tariff.Linux, Machines: r.Int64N(4), PerHour: 5e7},
			}
		}
		report := Of(q, engine.New(label.Table{}), "r", commitments)
		sum := cloud.NanoUSD(0)
		for _, p := range report.Gap {
			if sum += p.PerHour; p.PerHour < 0 {
				t.Errorf("fleet %d: %s costs %d", n, p.Cause, p.PerHour)
			}
		}
		if sum != report.Today-report.Least || report.Least < 0 {
			t.Errorf("fleet %d: the parts are %d, today − least %d − %d", n, sum, report.Today, report.Least)
		}
		if len(report.NoPool) > 0 {
			t.Errorf("fleet %d: %v fit no pool", n, report.NoPool)
		}
	}
}

// Fleets that are as cheap as the market allows have no gap but what the proof leaves open.
func TestACheapFleetHasNoGap(t *testing.T) {
	catalog, store := catalogue(), cluster.NewStore()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "K", Name: "default"}
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		d.PutNode(node(0, catalog.Type("m5.large"), "SPOT"))
		d.PutPod(pod("p", "n0", 1900, nil))
		d.Synced(true)
	})
	q := engine.Question{Snap: store.Snapshot(), Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, Now: time.Unix(1e9, 0)}
	if r := Of(q, engine.New(label.Table{}), "r", nil); r.Today != 4e7 || r.Least != 4e7 {
		t.Errorf("today %d, least %d: want both 40000000", r.Today, r.Least)
	}
}

// One spot type that is much cheaper than all others is not asked for alone. What that costs is no weakness of the proof.
func TestSpotListsAreACauseOfTheirOwn(t *testing.T) {
	catalog, store := catalogue(), cluster.NewStore()
	cheap := *catalog.Type("m5.large")
	cheap.Name, cheap.Labels, cheap.Offerings = "m4.large", maps.Clone(cheap.Labels), slices.Clone(cheap.Offerings)
	cheap.Labels[corev1.LabelInstanceTypeStable] = []string{cheap.Name}
	cheap.Offerings[0].Price = cloud.FromDollars(.03) // spot, where m5.large costs 0.04
	catalog.Types = slices.Insert(catalog.Types, 0, &cheap)
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "K", Name: "default"}
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		d.PutNode(node(0, catalog.Type("m5.xlarge"), "SPOT"))
		d.PutPod(pod("p", "n0", 1900, nil))
		d.Synced(true)
	})
	q := engine.Question{Snap: store.Snapshot(), Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, Now: time.Unix(1e9, 0)}
	q.Settings.Band = shape.DefaultBand
	gap := map[Cause]cloud.NanoUSD{}
	report := Of(q, engine.New(label.Table{}), "r", nil)
	for _, p := range report.Gap {
		gap[p.Cause] = p.PerHour
	}
	if report.Least != 3e7 || gap[Caution] <= 0 || gap[Open] != 0 {
		t.Errorf("least %d, caution %d, open %d: want 30000000, more than 0, 0", report.Least, gap[Caution], gap[Open])
	}
}

func TestManager(t *testing.T) {
	for _, tc := range []struct {
		labels  map[string]string
		manager Manager
		name    string
	}{
		{map[string]string{computeTypeLabel: "auto", v1.NodePoolLabelKey: "general"}, AutoMode, "general"},
		{map[string]string{v1.NodePoolLabelKey: "default"}, Karpenter, "default"},
		{map[string]string{managedGroupLabel: "web"}, NodeGroup, "web"},
		{map[string]string{eksctlGroupLabel: "old"}, NodeGroup, "old"},
		{nil, ByHand, ""},
	} {
		if manager, name := managerOf(tc.labels); manager != tc.manager || name != tc.name {
			t.Errorf("%v: %s %q, want %s %q", tc.labels, manager, name, tc.manager, tc.name)
		}
	}
}
