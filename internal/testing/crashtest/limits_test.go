package crashtest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A fleet that has drifted is renewed in a pool that may have no more than it has, and no machine is bought for nothing.
func TestDriftAtALimit(t *testing.T) {
	for name, tc := range map[string]struct {
		limits v1.Limits
		pods   int    // of 7 CPUs, or
		small  int    // of 1 CPU
		budget string // nodes that may go at once
		over   int64  // how many CPUs the pool may come to have while they do
	}{
		"one node at the limit of CPUs":           {v1.Limits{corev1.ResourceCPU: resource.MustParse("8")}, 1, 0, "1", 16},
		"one node at the limit of nodes":          {v1.Limits{v1.ResourceNodes: resource.MustParse("1")}, 1, 0, "1", 16},
		"four nodes, two at a time":               {v1.Limits{corev1.ResourceCPU: resource.MustParse("32")}, 4, 0, "2", 48},
		"four nodes, all at a time":               {v1.Limits{corev1.ResourceCPU: resource.MustParse("32")}, 4, 0, "100%", 64},
		"nodes whose pods could be packed anew":   {v1.Limits{corev1.ResourceCPU: resource.MustParse("20")}, 1, 8, "100%", 40},
		"a limit that leaves some types too much": {v1.Limits{corev1.ResourceCPU: resource.MustParse("12")}, 0, 10, "100%", 24},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
					p.Spec.Limits = tc.limits
					p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: tc.budget}}
					p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
					p.Generation++
				})
				time.Sleep(time.Second)
				for i := range tc.pods {
					w.API.Put(sim.Pod(fmt.Sprint("large-", i), "7", sim.OwnedBy("web")))
				}
				for i := range tc.small {
					w.API.Put(sim.Pod(fmt.Sprint("small-", i), "1", sim.OwnedBy("web")))
				}
				time.Sleep(30 * time.Second)
				if running(w) != tc.pods+tc.small {
					t.Fatalf("%d pods run before", running(w))
				}
				before := w.Cloud.Launches()
				memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
					p.Spec.Template.Labels = map[string]string{"team": "new"}
					p.Generation++
				})
				most := int64(0)
				for range 100 {
					time.Sleep(3 * time.Second)
					most = max(most, cpusOf(w))
				}
				claims := memapi.All[*v1.NodeClaim](w.API)
				for _, c := range claims {
					if c.Labels["team"] != "new" {
						t.Errorf("claim %s has not been replaced after five minutes", c.Name)
					}
				}
				if got := w.Cloud.Launches() - before; got != len(claims) || running(w) != tc.pods+tc.small {
					t.Errorf("%d machines were launched for %d, %d pods run", got, len(claims), running(w))
				}
				if most > tc.over {
					t.Errorf("the machines had %d CPUs at a time, want at most %d", most, tc.over)
				}
			})
		})
	}
}

// cpusOf sums up the machines that are not being stopped.
func cpusOf(w *sim.World) (sum int64) {
	for _, m := range w.Cloud.Machines() {
		if !m.Deleting {
			sum += m.Capacity.Cpu().Value()
		}
	}
	return sum
}

// A node that is too large is replaced by a cheaper one, and its pool's limit leaves nothing beside it.
func TestConsolidationAtALimit(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("8")}
			p.Generation++
		})
		time.Sleep(time.Second)
		w.API.Put(sim.Pod("small", "1", sim.OwnedBy("web")))
		w.API.Put(sim.Pod("big", "6900m"))
		time.Sleep(40 * time.Second)
		sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "big"))
		time.Sleep(5 * time.Minute)
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if got := c.Labels[corev1.LabelInstanceTypeStable]; got != "small" {
				t.Errorf("claim %s is of type %s, want the small one alone", c.Name, got)
			}
		}
	})
}
