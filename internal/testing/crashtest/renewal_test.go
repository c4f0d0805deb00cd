package crashtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// The fleet that is renewed: as many machines as the limit allows, two at a time.
const (
	renewed   = 6
	allowance = 2
)

// TestCrashesDuringRenewal changes the pool under a fleet that is at its limit, and stops Karpenter again and again while it replaces the nodes
// one after the other; every other seed lets two processes act at once for a moment, as if the lease had failed.
func TestCrashesDuringRenewal(t *testing.T) {
	sim.EachSeed(t, "CRASH_SEEDS", 15, 500, renewing)
}

func renewing(t *testing.T, seed uint64) {
	w := newTrial(t, seed)
	w.disrupt = true
	ctx, stop := context.WithCancel(t.Context())
	world := make(chan struct{})
	go func() { w.Run(ctx); close(world) }()
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
		p.Spec.Limits = v1.Limits{corev1.ResourceCPU: *resource.NewQuantity(8*(renewed+1), resource.DecimalSI)}
		p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: fmt.Sprint(allowance)}}
		p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
	})
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}
	w.API.Put(budget)
	for i := range renewed {
		w.API.Put(sim.Pod(fmt.Sprint("web-", i), "7", sim.OwnedBy("web")))
	}
	w.API.Put(sim.Pod("held", "7", sim.OwnedBy("web")))
	end := w.start()
	w.eventually("every pod runs", 2*time.Minute, w.wantRunning)
	held := w.claimOf("held")

	seen := &sightings{claims: map[types.UID]bool{}}
	watched := make(chan struct{})
	go func() { w.watchClaims(ctx, seen); close(watched) }()
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
		p.Spec.Template.Labels = map[string]string{"team": "new"}
		p.Generation++
	})
	most := allowance
	for range 2 + w.rand.IntN(4) {
		w.jump()
		time.Sleep(w.between(0, 12*time.Second))
		if seed%2 == 1 {
			next := w.start()
			time.Sleep(w.between(0, 2*time.Second))
			end()
			end, most = next, 2*allowance
			continue
		}
		end()
		time.Sleep(w.between(0, 4*time.Second))
		end = w.start()
	}
	w.API.SetSkew(0)
	w.eventually("the fleet is renewed", 30*time.Minute, func() string { return w.wantRenewed(held.UID) })
	w.eventually("machines, claims and nodes are the same", time.Minute, w.same)
	w.eventually("every pod runs", time.Minute, w.wantRunning)
	end()
	stop()
	<-world
	<-watched
	if seen.leaving > most {
		t.Errorf("seed %d: %d nodes went at a time, the budget is %d", seed, seen.leaving, allowance)
	}
	if launches := w.Cloud.Launches(); launches > len(seen.claims) {
		t.Errorf("seed %d: %d machines were launched for %d claims", seed, launches, len(seen.claims))
	}
	time.Sleep(time.Minute) // machines that are still stopping do so
}

func (r *trial) wantRunning() string {
	if n := running(r.World); n != renewed+1 {
		return fmt.Sprintf("%d of %d pods run", n, renewed+1)
	}
	return ""
}

// claimOf is the claim whose node a pod runs on.
func (r *trial) claimOf(pod string) *v1.NodeClaim {
	node := sim.Get[*corev1.Pod](r.t, r.World, pod).Spec.NodeName
	for _, c := range memapi.All[*v1.NodeClaim](r.API) {
		if c.Status.NodeName == node {
			return c
		}
	}
	r.t.Fatalf("seed %d: pod %s runs on %q, which has no claim", r.seed, pod, node)
	return nil
}

// wantRenewed says what is still old, or carries what a step has left behind. One claim must be what it was.
func (r *trial) wantRenewed(held types.UID) string {
	found := false
	for _, c := range memapi.All[*v1.NodeClaim](r.API) {
		switch {
		case c.UID == held:
			found = c.DeletionTimestamp == nil
			continue
		case c.Labels["team"] != "new":
			return "claim " + c.Name + " is an old one"
		}
	}
	if !found {
		r.t.Fatalf("seed %d: the node whose pod is not to be evicted was removed", r.seed)
	}
	for _, c := range memapi.All[*v1.NodeClaim](r.API) {
		if c.Annotations[v1.DisruptionCommandAnnotationKey] != "" || condition.IsTrue(c, v1.ConditionTypeDisruptionReason) {
			return "claim " + c.Name + " carries what a step has left"
		}
	}
	for _, n := range memapi.All[*corev1.Node](r.API) {
		if len(n.Spec.Taints) > 0 {
			return fmt.Sprintf("node %s has taints %v", n.Name, n.Spec.Taints)
		}
	}
	return ""
}

// sightings are what was seen of claims.
type sightings struct {
	claims  map[types.UID]bool
	leaving int // the most that were being deleted at a time
}

func (r *trial) watchClaims(ctx context.Context, s *sightings) {
	for ctx.Err() == nil {
		leaving := 0
		memapi.Each(r.API, func(c *v1.NodeClaim) {
			s.claims[c.UID] = true
			if c.DeletionTimestamp != nil && c.Labels["team"] != "new" && !condition.IsTrue(c, v1.ConditionTypeInstanceTerminating) {
				leaving++
			}
		})
		s.leaving = max(s.leaving, leaving)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
