package engine_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// planned are the plans of workloads that some test has asked for.
var planned = map[string]*engine.Plan{}

// planOf returns the plan of a workload, which it makes once.
func planOf(t *testing.T, name string, spot, anyCategory bool) *engine.Plan {
	t.Helper()
	key := fmt.Sprint(name, spot, anyCategory)
	if planned[key] == nil {
		planned[key] = planAnew(t, name, spot, anyCategory)
	}
	return planned[key]
}

// planAnew plans a workload as the benchmarks do.
func planAnew(t *testing.T, name string, spot, anyCategory bool) *engine.Plan {
	t.Helper()
	pools := []engine.Pool{{Pool: benchload.Pool(spot, anyCategory), Catalog: catalogue(t)}}
	return solveFresh(prepared(pools, engine.Settings{}), workload(t, name), pools, engine.Settings{})
}

// TestWorkloadPrices holds the bars on prices from Kubernetes objects to the plan: against the bound, against first
// fit, and with every category and generation of machine allowed, which must not make the fleet dearer or strange.
func TestWorkloadPrices(t *testing.T) {
	for _, row := range []struct {
		name           string
		onDemand, spot float64 // price over the best bound
	}{
		{"few3", 1.005, 1.01},
		{"few2skew", 1.005, 1.01},
		{"few2complement", 1.005, 1.01},
		{"few5", 1.005, 1.01},
		{"many5000", 1.01, 1.02},
		{"zonespread", 1.03, 1.07},
		{"hostanti", 1.03, 1.03},
	} {
		for _, spot := range []bool{false, true} {
			p := planOf(t, row.name, spot, false)
			bar := row.onDemand
			if spot {
				bar = row.spot
			}
			if len(p.Refused) > 0 || 1+p.Gap() > bar {
				t.Errorf("%s spot=%v: %d refused, %.4f of the bound, want at most %.3f", row.name, spot, len(p.Refused), 1+p.Gap(), bar)
			}
			if _, base := firstFit(t, workload(t, row.name), spot, 0); float64(p.Cost) > 0.75*float64(base) {
				t.Errorf("%s spot=%v: %.2f is not 25 %% below first fit's %.2f", row.name, spot, p.Cost.Dollars(), base.Dollars())
			}
			if _, base := firstFit(t, workload(t, row.name), spot, 64); p.Cost >= base {
				t.Errorf("%s spot=%v: %.2f is not below capped first fit's %.2f", row.name, spot, p.Cost.Dollars(), base.Dollars())
			}
			wide := planOf(t, row.name, spot, true)
			if len(wide.Refused) > 0 || wide.Cost > p.Cost {
				t.Errorf("%s spot=%v: with every category %.2f, with three %.2f", row.name, spot, wide.Cost.Dollars(), p.Cost.Dollars())
			}
			for _, o := range wide.Open {
				if exotic(t, o.Type) {
					t.Errorf("%s spot=%v: opens a %s, which no pod needs", row.name, spot, o.Type)
				}
			}
			t.Logf("%.2f s %.2f s %s spot=%v: price %.4f, any category %.4f, gap %.4f %.4f", p.Work.Seconds(), wide.Work.Seconds(), row.name, spot, p.Price.Dollars(), wide.Price.Dollars(), p.Gap(), wide.Gap())
		}
	}
}

// Five pods of one CPU each cost as much on one c6g.2xlarge as on three smaller machines: fewer nodes win.
func TestAtEqualPriceFewerNodesWin(t *testing.T) {
	for name, tc := range map[string]struct {
		price cloud.NanoUSD
		one   bool
	}{
		"a node costs something by itself": {0, true},
		"unless that is switched off":      {-1, false},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i := range 5 {
				pods = append(pods, benchload.Pending(fmt.Sprint("p", i), 1000, 512))
			}
			pools := []engine.Pool{{Pool: benchload.Pool(false, false), Catalog: catalogue(t)}}
			set := engine.Settings{NodePrice: tc.price}
			p := solveFresh(prepared(pools, set), pods, pools, set)
			if one := len(p.Open) == 1 && p.Open[0].Type == "c6g.2xlarge"; one != tc.one || p.Price != 272_000_000 {
				t.Errorf("%d nodes for %v, the first a %s", len(p.Open), p.Price, p.Open[0].Type)
			}
			if extra := p.Cost - p.Price; tc.one && extra != engine.DefaultNodePrice || !tc.one && extra != 0 {
				t.Errorf("decisions add %v", extra)
			}
		})
	}
}

func exotic(t *testing.T, name string) bool {
	types := catalogue(t).Types
	return types[slices.IndexFunc(types, func(it *cloud.InstanceType) bool { return it.Name == name })].Exotic
}
