package cli

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// rate is what the machines of a cloud cost in an hour.
func rate(machines []cloud.Machine, catalog *cloud.Catalog) (sum cloud.NanoUSD) {
	for _, m := range machines {
		price, _ := catalog.Price(map[string]string{corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone,
			v1.CapacityTypeLabelKey: m.CapacityType})
		sum += price
	}
	return sum
}

// found returns what a command would read of a world.
func found(w *sim.World) *objects {
	o := &objects{}
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		o.pods = append(o.pods, p.DeepCopy())
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		o.nodes = append(o.nodes, n.DeepCopy())
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		o.claims = append(o.claims, c.DeepCopy())
	}
	o.pools, o.apps.pdbs = memapi.All[*v1.NodePool](w.API), memapi.All[*policyv1.PodDisruptionBudget](w.API)
	return o
}

// A fleet gets what the report says that it would reach when it is handed to the loops for a simulated day: fleets that Karpenter has bought and
// that lost half of their pods, and fleets of other managers, which are drained.
func TestTheLoopsReachWhatTheReportSays(t *testing.T) {
	first, last := sim.Seeds(t, "REACH_SEEDS", 4, 100)
	var allSaid, allReached cloud.NanoUSD
	for seed := first; seed <= last; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		catalog := &cloud.Catalog{}
		for _, cores := range []int64{2, 4, 8, 16} {
			catalog.Types = append(catalog.Types, sim.Kind(fmt.Sprintf("kind-%02d", cores), cores, float64(cores)*(0.045+0.01*r.Float64())))
		}
		sold := func(*v1.NodePool) (*cloud.Catalog, error) { return catalog, nil }
		sim.BubbleAlone(t, sim.Options{Cloud: fakecloud.Options{Catalog: sold}}, func(t *testing.T, w *sim.World) {
			pool := sim.Pool("default")
			pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
			w.API.Put(pool)
			options := sim.KarpenterOptions{Provision: true, Disrupt: true, Search: enoughSearch}
			w.With(t, options, func(*sim.Karpenter) {
				for app := range 5 {
					cpus := []string{"300m", "700m", "1100m", "1900m", "3500m"}[r.IntN(5)]
					for i := range 2 + r.IntN(12) {
						sim.Create(t, w, sim.Pod(fmt.Sprintf("app%d-%d", app, i), cpus, func(p *corev1.Pod) {
							p.Labels["app"] = fmt.Sprint("app", app)
							sim.OwnedBy(p.Labels["app"])(p)
						}))
					}
				}
				time.Sleep(10 * time.Minute)
			})
			for _, p := range memapi.All[*corev1.Pod](w.API) {
				if r.IntN(2) == 0 {
					p.OwnerReferences = nil
					memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
					w.API.Remove(p)
				}
			}
			if seed%4 >= 2 {
				none := intstr.FromInt32(0)
				w.API.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}, Spec: policyv1.PodDisruptionBudgetSpec{
					MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app0"}}}})
			}
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}} })

			o := found(w)
			q := engine.Question{Snap: o.store().Snapshot(), Pools: []engine.Pool{{Pool: o.pools[0], Catalog: catalog}}, Now: time.Now()}
			report, foreign := &savingsReport{Report: &savings.Report{}}, seed%2 == 1 && seed%4 < 2
			for _, n := range o.nodes {
				x := savings.Node{Name: n.Name, Manager: savings.Karpenter, Priced: true}
				if foreign {
					x.Manager = savings.NodeGroup
				}
				report.Nodes = append(report.Nodes, x)
			}
			today := rate(w.Cloud.Machines(), catalog)
			if err := report.reach(t.Context(), Env{Err: io.Discard}, o, &q); err != nil {
				t.Fatal(err)
			}
			w.With(t, options, func(*sim.Karpenter) {
				end := time.Now().Add(reachTime)
				if foreign {
					old := memapi.All[*corev1.Node](w.API)
					for _, n := range old {
						memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
					}
					for _, n := range old {
						claims := memapi.All[*v1.NodeClaim](w.API)
						i := slices.IndexFunc(claims, func(c *v1.NodeClaim) bool { return c.Status.NodeName == n.Name })
						if i >= 0 { // it was not consolidated meanwhile
							sim.Delete(t, w, claims[i])
						}
						time.Sleep(drainPace)
					}
				}
				time.Sleep(time.Until(end))
			})
			reached, said := rate(w.Cloud.Machines(), catalog), report.reached.PerHour
			t.Logf("seed %d: today %.3f, said %.3f, reached %.3f: %+.1f%%; %d evictions", seed, today.Dollars(), said.Dollars(), reached.Dollars(),
				100*(reached.Dollars()/said.Dollars()-1), report.reached.Evictions)
			if math.Abs(reached.Dollars()/said.Dollars()-1) > .13 { // a machine of seven
				t.Errorf("seed %d: the report says %.3f, the loops reach %.3f", seed, said.Dollars(), reached.Dollars())
			}
			allSaid, allReached = allSaid+said, allReached+reached
		})
	}
	if all := allReached.Dollars()/allSaid.Dollars() - 1; math.Abs(all) > .05 {
		t.Errorf("the loops reach %+.1f%% of what the reports say", 100*all)
	}
}
