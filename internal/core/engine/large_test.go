package engine_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// vcpuOf is the vCPU of an instance type of the catalogue.
func vcpuOf(tb testing.TB, name string) int64 {
	tb.Helper()
	for _, it := range catalogue(tb).Types {
		if it.Name == name {
			return it.Capacity.Cpu().Value()
		}
	}
	tb.Fatalf("no type %q", name)
	return 0
}

// largestOf is the most vCPU that a node of a plan has; of a spot claim the least of what it lists.
func largestOf(tb testing.TB, p *engine.Plan) (most int64) {
	tb.Helper()
	for _, o := range p.Open {
		least := vcpuOf(tb, o.Type)
		for _, name := range o.Types {
			least = min(least, vcpuOf(tb, name))
		}
		most = max(most, least)
	}
	return most
}

// TestANodeIsASmallPartOfItsPool plans equal pods with the size policy and without: nodes above a quarter of what the pods ask for (8
// vCPU at least, 64 at most) only lower the bill by more than one percent, or hold a pod that needs one.
func TestANodeIsASmallPartOfItsPool(t *testing.T) {
	for _, row := range []struct {
		pods            int
		cpuMilli, memMi int64
	}{{5, 1000, 512}, {10, 1000, 512}, {12, 5000, 4096}, {30, 900, 3100}, {40, 1000, 1024}, {100, 1000, 1024}, {50, 3500, 28 << 10}, {300, 1000, 1024}, {4, 20_000, 4096}} {
		for _, spot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %dm spot=%v", row.pods, row.cpuMilli, spot), func(t *testing.T) {
				var pods []*corev1.Pod
				for i := range row.pods {
					pods = append(pods, benchload.Pending(fmt.Sprintf("p%03d", i), row.cpuMilli, row.memMi))
				}
				pools := []engine.Pool{{Pool: benchload.Pool(spot, false), Catalog: catalogue(t)}}
				off := engine.Settings{Size: engine.SizePolicy{Large: -1}}
				e := prepared(pools, off)
				p, any := solveFresh(e, pods, pools, engine.Settings{}), solveFresh(e, pods, pools, off)
				most := min(64, max(8, int64(row.pods)*row.cpuMilli/4000))
				t.Logf("%.4f on %d nodes of up to %d vCPU; of any size %.4f on %d of up to %d", p.Price.Dollars(), len(p.Open), largestOf(t, p), any.Price.Dollars(), len(any.Open), largestOf(t, any))
				if large := largestOf(t, p); large > most && row.cpuMilli < 1000*most && float64(p.Price) >= 0.99*float64(smallest(t, pods, spot, most).Price) {
					t.Errorf("a node of %d vCPU, the pods ask for four times %d", large, most)
				}
				if billed(p) > 1.0101*billed(any) {
					t.Errorf("%v; nodes of any size for %v", p.Price, any.Price)
				}
			})
		}
	}
}

// smallest plans pods in a pool without machines above most vCPU.
func smallest(tb testing.TB, pods []*corev1.Pod, spot bool, most int64) *engine.Plan {
	pool := benchload.Pool(spot, false)
	pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
		Key: "karpenter.k8s.aws/instance-cpu", Operator: corev1.NodeSelectorOpLt, Values: []string{fmt.Sprint(most + 1)}})
	pools := []engine.Pool{{Pool: pool, Catalog: catalogue(tb)}}
	return solveFresh(prepared(pools, engine.Settings{}), pods, pools, engine.Settings{})
}

// billed is what a plan is reckoned to cost without what its nodes are by themselves.
func billed(p *engine.Plan) float64 {
	sum := p.Cost
	for _, o := range p.Open {
		sum -= min(engine.DefaultNodePrice, o.Floor/20)
	}
	return sum.Dollars()
}

// TestPodsThatRunAreOfThePool opens one large node for pods of a pool that holds many others, and smaller ones where those are on nodes
// of another pool or of nodes that go.
func TestPodsThatRunAreOfThePool(t *testing.T) {
	for name, tc := range map[string]struct {
		pool  string
		gone  bool
		nodes int
	}{
		"nodes of the pool hold the rest":  {"pool-00", false, 1},
		"the rest is of another pool":      {"another", false, 4},
		"the nodes with the rest are gone": {"pool-00", true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			store := largeCluster(t, 60, 19, 0, 1)
			store.Update(func(d *cluster.Draft) {
				for i := range 12 {
					d.PutPod(benchload.Pending(fmt.Sprint("p", i), 5000, 4096))
				}
			})
			pool := benchload.Pool(false, false)
			pool.Name = tc.pool
			in := engine.Question{Snap: store.Snapshot(), Pools: []engine.Pool{{Pool: pool, Catalog: catalogue(t)}}, Gone: map[string]bool{}, Now: now}
			in.Pods = in.Snap.Provisionable()
			for i := range 60 {
				in.Gone[fmt.Sprintf("node-%05d", i)] = tc.gone
			}
			if p := engine.New().Plan(in); len(p.Open) != tc.nodes || len(p.Refused) > 0 {
				t.Errorf("%d nodes, the largest of %d vCPU, want %d; %d refused", len(p.Open), largestOf(t, p), tc.nodes, len(p.Refused))
			}
		})
	}
}
