package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
)

// TestWhatIsSentIsWhatWasPriced plans pods on random catalogues and asks what a launch of each claim sends: as many types, at the same
// mean, lowest and highest price. Claims that allow both are among them, where an on-demand offering bounds what spot may cost, those that
// are bought on demand although spot would hold the pods too, and those whose minValues only on-demand meets.
func TestWhatIsSentIsWhatWasPriced(t *testing.T) {
	spot, bounded, beaten, diverse, turned := 0, 0, 0, 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 2))
		catalog, band := randomTypes(r), shape.SpotBand(1+r.IntN(20))
		for _, o := range planOn(r, catalog, band).Open {
			sent, err := fleet.Choose(catalog.Types, o.Claim, band)
			if err != nil {
				t.Fatalf("seed %d: nothing is sent for a claim of %v: %v", seed, o.Types, err)
			}
			compare(t, seed, &o, sent)
			if again, err := fleet.ChooseWidely(catalog.Types, o.Claim, band); err != nil || len(again.Candidates) < len(sent.Candidates) {
				t.Fatalf("seed %d: when what was sent is out of stock, %d types are left of %d: %v", seed, len(again.Candidates), len(sent.Candidates), err)
			}
			wide, onDemand := rivals(catalog, &o, sent)
			switch {
			case asksForValues(o.Claim):
				diverse++
				if sent.CapacityType == v1.CapacityTypeOnDemand {
					turned += wide
				}
			case sent.CapacityType != v1.CapacityTypeSpot:
				beaten += wide
			default:
				spot++
				bounded += onDemand
			}
		}
	}
	if spot < 300 || bounded < 30 || beaten < 30 || diverse < 100 || turned < 10 {
		t.Errorf("only %d spot claims were looked at, %d of them bounded by an on-demand price, and %d that on-demand was cheaper for; %d with minValues, %d of them not met by spot",
			spot, bounded, beaten, diverse, turned)
	}
}

func asksForValues(c *v1.NodeClaim) bool {
	return slices.ContainsFunc(c.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil })
}

// rivals tells, of a claim that allows both, whether there is spot that it is not bought as, and whether there is spot within the band that is left out
// because on-demand costs less.
func rivals(catalog *cloud.Catalog, o *engine.Opening, sent fleet.Choice) (spot, dear int) {
	allows, zoned := map[string]bool{}, false
	for _, r := range o.Claim.Spec.Requirements {
		zoned = zoned || r.Key == corev1.LabelTopologyZone
		for _, value := range r.Values {
			allows[value] = true
		}
	}
	if !allows[v1.CapacityTypeSpot] || !allows[v1.CapacityTypeOnDemand] {
		return 0, 0
	}
	for _, it := range catalog.Types {
		if !allows[it.Name] || it.Exotic {
			continue
		}
		for i := range it.Offerings {
			if x := &it.Offerings[i]; x.Available && (allows[x.Zone()] || !zoned) && x.CapacityType() == v1.CapacityTypeSpot {
				spot = 1
				if x.Price > o.Worst && x.Price <= o.Floor*3/2 && len(sent.Candidates) < 15 {
					dear = 1
				}
			}
		}
	}
	return spot, dear
}

// TestSpotIsBoughtFromManyPools asks of the real catalogue what ordinary claims are sent as.
func TestSpotIsBoughtFromManyPools(t *testing.T) {
	catalog, err := offline.Catalog(offline.Options{Region: "us-east-1", Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range []string{"900m", "3500m", "7", "15"} {
		c := &v1.NodeClaim{}
		c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"spot"}},
			{Key: "karpenter.k8s.aws/instance-category", Operator: "In", Values: []string{"c", "m", "r"}},
			{Key: "karpenter.k8s.aws/instance-generation", Operator: "Gt", Values: []string{"4"}},
		}
		c.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("2Gi")}
		sent, err := fleet.Choose(catalog.Types, c, shape.DefaultBand)
		if err != nil {
			t.Fatal(err)
		}
		zones := map[string]bool{}
		for _, x := range sent.Candidates {
			for _, o := range x.Offerings {
				zones[o.Zone()] = true
			}
		}
		if len(sent.Candidates) < 5 || len(zones) < 3 {
			t.Errorf("a claim of %s CPU is sent as %d types in %d zones, want at least 5 in 3", cpu, len(sent.Candidates), len(zones))
		}
	}
}

func compare(t *testing.T, seed uint64, o *engine.Opening, sent fleet.Choice) {
	t.Helper()
	var cpu, memory resource.Quantity
	for _, p := range o.Pods {
		cpu.Add(p.Class.Spec.Containers[0].Resources.Requests["cpu"])
		memory.Add(p.Class.Spec.Containers[0].Resources.Requests["memory"])
	}
	for _, c := range sent.Candidates {
		if has := c.Type.Capacity; cpu.Cmp(has["cpu"]) > 0 || memory.Cmp(has["memory"]) > 0 || len(o.Pods) > 20 {
			t.Fatalf("seed %d: %s is sent, which does not hold the %d pods of the claim", seed, c.Type.Name, len(o.Pods))
		}
	}
	var prices []cloud.NanoUSD
	for _, c := range sent.Candidates {
		for _, x := range c.Offerings {
			prices = append(prices, x.Price)
		}
	}
	slices.Sort(prices)
	sum := cloud.NanoUSD(0)
	for _, p := range prices {
		sum += p
	}
	mean := prices[0]
	if sent.CapacityType == v1.CapacityTypeSpot {
		mean = (sum + cloud.NanoUSD(len(prices)/2)) / cloud.NanoUSD(len(prices))
	}
	if o.CapacityType != sent.CapacityType || o.Price != mean || o.Floor != prices[0] || o.Worst != prices[len(prices)-1] || o.Sent != len(sent.Candidates) {
		t.Fatalf("seed %d: planned as %s at %d (%d to %d) of %d types; sent as %s at %d (%d to %d) of %d types", seed,
			o.CapacityType, o.Price, o.Floor, o.Worst, o.Sent, sent.CapacityType, mean, prices[0], prices[len(prices)-1], len(sent.Candidates))
	}
}

// randomTypes sells types of random sizes in random zones, some of them out of stock, some exotic, some only on demand or only as spot.
func randomTypes(r *rand.Rand) *cloud.Catalog {
	out := &cloud.Catalog{}
	discount := 0.2 + 0.6*float64(r.IntN(2)) // spot costs at least so much of on-demand
	types, zones := 1+r.IntN(60), 4
	if r.IntN(10) == 0 { // more than one launch names
		types, zones = types+60, 6
	}
	for i := range types {
		cpu := int64(1) << (1 + r.IntN(4))
		it := &cloud.InstanceType{Name: fmt.Sprintf("t%03d", i), Exotic: r.IntN(10) == 0, Capacity: corev1.ResourceList{
			"cpu": *resource.NewQuantity(cpu, resource.DecimalSI), "memory": *resource.NewQuantity(cpu*(2+int64(r.IntN(3)))<<30, resource.BinarySI),
			"pods": *resource.NewQuantity(20, resource.DecimalSI),
		}}
		it.Labels = map[string][]string{corev1.LabelInstanceTypeStable: {it.Name}, "family": {fmt.Sprint("f", r.IntN(3))}}
		price, ways := float64(cpu)*(40+20*r.Float64()), r.IntN(8)
		for z := range 1 + r.IntN(zones) {
			sell := func(capacityType string, factor float64) {
				it.Offerings = append(it.Offerings, cloud.Offering{Available: r.IntN(5) > 0, Price: cloud.NanoUSD(price * factor * 1000), Labels: map[string]string{
					v1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: string(rune('a' + z)),
				}})
			}
			if ways != 0 {
				sell(v1.CapacityTypeOnDemand, 1)
			}
			if ways > 2 {
				sell(v1.CapacityTypeSpot, discount+r.Float64())
			}
		}
		out.Types = append(out.Types, it)
	}
	return out
}

// planOn plans a few pods for a pool of both capacity types, or of spot alone, some with minValues.
func planOn(r *rand.Rand, catalog *cloud.Catalog, band shape.Band) *engine.Plan {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	capacity := []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}
	require := func(key string, values ...string) *v1.NodeSelectorRequirementWithMinValues {
		list := &pool.Spec.Template.Spec.Requirements
		*list = append(*list, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values})
		return &(*list)[len(*list)-1]
	}
	require(v1.CapacityTypeLabelKey, capacity[:1+r.IntN(2)]...)
	if r.IntN(3) == 0 {
		require(corev1.LabelTopologyZone, "a", "c")
	}
	atLeast := func(n int, key string, values ...string) {
		require(key, values...).MinValues = &n
	}
	if r.IntN(5) == 0 {
		atLeast(2+r.IntN(2), "family", "f0", "f1", "f2")
	}
	if r.IntN(8) == 0 {
		var names []string
		for _, it := range catalog.Types {
			names = append(names, it.Name)
		}
		atLeast(1+r.IntN(min(len(names), 50)), corev1.LabelInstanceTypeStable, names...)
	}
	settings := engine.Settings{Band: band, MinValuesBestEffort: r.IntN(3) == 0}
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for i := range 1 + r.IntN(6) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i)), CreationTimestamp: metav1.NewTime(now)}}
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": *resource.NewMilliQuantity(int64(200+r.IntN(9000)), resource.DecimalSI), "memory": *resource.NewQuantity(int64(r.IntN(8))<<30, resource.BinarySI)}}}}
			if r.IntN(6) == 0 {
				p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
			}
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			d.PutPod(p)
		}
		d.Synced(true)
	})
	snap := store.Snapshot()
	return engine.New().Plan(engine.Question{Snap: snap, Pods: snap.Provisionable(), Now: now, Settings: settings,
		Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}})
}
