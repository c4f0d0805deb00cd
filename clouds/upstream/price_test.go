package upstream

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// TestPricesOverTheSameProvider plans the same pods with both cores over Karpenter's KWOK provider. A claim costs what the provider takes for
// it: its cheapest offering.
func TestPricesOverTheSameProvider(t *testing.T) {
	shapes := func(groups ...[3]int64) (pods []*corev1.Pod) { // how many, milli-CPU, MiB
		for g, s := range groups {
			for i := range s[0] {
				pods = append(pods, benchload.Pending(fmt.Sprintf("p-%d-%04d", g, i), s[1], s[2]))
			}
		}
		return pods
	}
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), &options.Options{
		PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, CPURequests: 2000})
	types, err := kwok.ConstructInstanceTypes(kwokoptions.ToContext(ctx, &kwokoptions.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		pods []*corev1.Pod
	}{
		{"1,000 pods of 1 vCPU and 2 GiB", shapes([3]int64{1000, 1000, 2048})},
		{"1,000 pods of 900m and 3 GiB", shapes([3]int64{1000, 900, 3072})},
		{"500 of 1 vCPU and 1 GiB, 500 of 500m and 6 GiB", shapes([3]int64{500, 1000, 1024}, [3]int64{500, 500, 6144})},
	} {
		for _, capacity := range []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot} {
			ours, nodes := planOurs(catalogOf(types, func(launchKey) bool { return false }), capacity, tc.pods)
			theirs, theirNodes := planTheirs(t, ctx, types, capacity, tc.pods)
			t.Logf("| %s, %s | %d | %.4f | %d | %.4f | **%.3f** |", tc.name, capacity, nodes, ours, theirNodes, theirs, ours/theirs)
			if ours > theirs*1.000001 {
				t.Errorf("%s, %s: ours costs %.4f, Karpenter's %.4f", tc.name, capacity, ours, theirs)
			}
		}
	}
}

// planOurs returns what our plan costs an hour, and its nodes.
func planOurs(catalog *cloud.Catalog, capacity string, pods []*corev1.Pod) (price float64, nodes int) {
	p := pool("default")
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{capacity}},
		{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
		{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, pod := range pods {
			d.PutPod(pod)
		}
		d.Synced(true)
	})
	snap := store.Snapshot()
	plan := engine.New().Plan(engine.Question{Snap: snap, Pools: []engine.Pool{{Pool: p, Catalog: catalog}}, Pods: snap.Provisionable(),
		Now: benchload.Now})
	placed := 0
	for i := range plan.Open {
		open, best := &plan.Open[i], cloud.NanoUSD(-1)
		placed += len(open.Pods)
		for _, it := range catalog.Types {
			for j := range it.Offerings {
				o := &it.Offerings[j]
				if slices.Contains(open.Types, it.Name) && o.Available && slices.Contains(open.Zones, o.Zone()) &&
					slices.Contains(open.CapacityTypes, o.CapacityType()) && (best < 0 || o.Price < best) {
					best = o.Price
				}
			}
		}
		price += best.Dollars()
	}
	if placed != len(pods) {
		return 1e9, len(plan.Open)
	}
	return price, len(plan.Open)
}

// planTheirs does what a pass of Karpenter's own provisioner does.
func planTheirs(t *testing.T, ctx context.Context, types []*cloudprovider.InstanceType, capacity string, pods []*corev1.Pod) (float64, int) {
	t.Helper()
	p := &karpv1.NodePool{}
	p.Name = "default"
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	for key, value := range map[string]string{v1.CapacityTypeLabelKey: capacity, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"} {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	client, now := fake.NewFakeClient(), clock.RealClock{}
	known := state.NewCluster(now, client, kwok.NewCloudProvider(ctx, client, types))
	pools, byPool := []*karpv1.NodePool{p}, map[string][]*cloudprovider.InstanceType{p.Name: types}
	topology, err := scheduling.NewTopology(ctx, client, known, nil, pools, byPool, pods)
	if err != nil {
		t.Fatal(err)
	}
	s := scheduling.NewScheduler(ctx, client, pools, known, nil, topology, byPool, nil, events.NewRecorder(&record.FakeRecorder{}), now, nil, nil)
	results, err := s.Solve(ctx, pods)
	if err != nil {
		t.Fatal(err)
	}
	price, placed := 0.0, 0
	for _, claim := range results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes).NewNodeClaims {
		best := -1.0
		for _, it := range claim.InstanceTypeOptions {
			for _, o := range it.Offerings.Available().Compatible(claim.Requirements) {
				if best < 0 || o.Price < best {
					best = o.Price
				}
			}
		}
		price += best
		placed += len(claim.Pods)
	}
	if placed != len(pods) {
		t.Errorf("Karpenter's plan places %d of %d pods", placed, len(pods))
	}
	return price, len(results.NewNodeClaims)
}
