package daysim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAWholeFleetDrifts changes the template of a pool of 200 nodes with ten pods each, so that every node has to be replaced, a fifth of
// them at a time. Replacements come first, so no pod may wait longer than ten seconds.
func TestAWholeFleetDrifts(t *testing.T) {
	const (
		nodes   = 200
		pods    = 2000
		limit   = 10 * time.Minute
		maxWait = 10 * time.Second
	)
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true, Search: search}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		edit := func(team string) {
			w.API.Put(pool(func(p *v1.NodePool) {
				p.Spec.Template.Labels = map[string]string{"team": team}
				p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "20%"}}
			}))
		}
		edit("a")
		for i := range pods {
			sim.Create(t, w, sim.Pod(fmt.Sprintf("web-%04d", i), "790m", owned))
		}
		settle(t, w, k, 10*time.Minute)
		machines := len(w.Cloud.Machines())
		if machines != nodes {
			t.Fatalf("%d nodes for %d pods, the test wants %d", machines, pods, nodes)
		}
		start := time.Now()
		edit("b")
		longest, since := time.Duration(0), map[string]time.Time{}
		for time.Since(start) < 2*limit && !replaced(w) {
			time.Sleep(time.Second)
			for _, p := range memapi.All[*corev1.Pod](w.API) {
				if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
					delete(since, p.Name)
				} else if at, ok := since[p.Name]; !ok {
					since[p.Name] = time.Now()
				} else {
					longest = max(longest, time.Since(at))
				}
			}
		}
		took := time.Since(start)
		t.Logf("%d nodes with %d pods were replaced in %v; no pod waited longer than %v; %d launches for it", machines, pods, took, longest, w.Cloud.Launches()-machines)
		if !replaced(w) || took > limit {
			t.Errorf("after %v the fleet is replaced: %t, want it within %v", took, replaced(w), limit)
		}
		if longest > maxWait {
			t.Errorf("a pod waited %v for its node, want at most %v", longest, maxWait)
		}
	})
}

// replaced says whether every node has the new label.
func replaced(w *sim.World) bool {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if c.Labels["team"] != "b" {
			return false
		}
	}
	return true
}
