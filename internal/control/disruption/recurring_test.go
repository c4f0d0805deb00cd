package disruption_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// altered is a cloud in which something changes every machine as soon as it runs.
type altered struct {
	cloud.Provider
	on atomic.Bool
}

func (a *altered) Drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	if a.on.Load() {
		return "SecurityGroupDrift", nil
	}
	return a.Provider.Drifted(ctx, claim)
}

// Where machines drift as soon as they are launched, one is replaced now and then, and the others once that is over.
func TestDriftThatComesBackIsNotReplacedForEver(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		provider := &altered{Provider: w.Cloud}
		w.With(t, sim.KarpenterOptions{Provision: true, Disrupt: true, Cloud: provider}, func(k *sim.Karpenter) {
			editPool(w, func(p *v1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{}
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
			})
			for i := range 4 {
				sim.Create(t, w, sim.Claim(fmt.Sprint("c", i)))
				sim.Create(t, w, sim.Pod(fmt.Sprint("web", i), "1", sim.OwnedBy("web")))
			}
			time.Sleep(20 * time.Minute)
			made := map[string]bool{}
			count := func() int {
				for _, c := range memapi.All[*v1.NodeClaim](w.API) {
					made[c.Name] = true
				}
				return len(made)
			}
			count()
			provider.on.Store(true)
			for range 60 * 6 {
				time.Sleep(10 * time.Second)
				count()
			}
			// The four that ran, their replacements, and one after 0, 5, 15 and 35 minutes.
			if n := count(); n < 9 || n > 13 {
				t.Errorf("%d machines in an hour, want the four, four more and one now and then", n)
			}
			for _, c := range memapi.All[*v1.NodeClaim](w.API) {
				sim.WantEvent(t, k, "DisruptionBlocked", c.Name)
				break
			}
			provider.on.Store(false)
		})
	})
}

// An edit of the pool soon after the launch of its machines replaces them together. None waits until a new machine has been seen without
// drift.
func TestAnEditSoonAfterTheLaunchIsNotDriftThatComesBack(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(*sim.Karpenter) {
			editPool(w, func(p *v1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{}
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
			})
			for i := range 24 {
				sim.Create(t, w, sim.Pod(fmt.Sprint("web", i), "3", sim.OwnedBy("web")))
			}
			time.Sleep(2 * time.Minute)
			if n := len(memapi.All[*v1.NodeClaim](w.API)); n < 8 {
				t.Fatalf("%d machines, want several", n)
			}
			editPool(w, func(p *v1.NodePool) {
				p.Spec.Template.Labels = map[string]string{"edition": "2"}
				p.Spec.Template.Spec.ExpireAfter = v1.After(30 * time.Second)
			})
			time.Sleep(30 * time.Second)
			for _, c := range memapi.All[*v1.NodeClaim](w.API) {
				if c.Labels["edition"] != "2" {
					t.Errorf("claim %s is left", c.Name)
				}
			}
		})
	})
}
