package daysim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// foreign is how another implementation of the same API has stamped its objects.
var foreign = drift.Stamp{Hash: "1234567890123456789", Version: "v3"}

func stamp(annotations map[string]string, s drift.Stamp) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		out[k] = v
	}
	out[v1.NodePoolHashAnnotationKey], out[v1.NodePoolHashVersionAnnotationKey] = s.Hash, s.Version
	return out
}

// TestAFleetChangesHands takes a running fleet over from another implementation of the same API, keeps it for an hour, and hands it
// back. Nothing is launched, deleted, drifted or disrupted by that; only the hashes change, by the rule that both sides know.
func TestAFleetChangesHands(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		w.API.Put(pool(func(p *v1.NodePool) {
			p.Spec.Template.Labels = map[string]string{"team": "a"}
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		}))
		options := sim.KarpenterOptions{Provision: true, Disrupt: true, Search: search}
		w.With(t, options, func(k *sim.Karpenter) {
			for i := range 8 {
				sim.Create(t, w, sim.Pod(fmt.Sprintf("web-%d", i), "1800m", owned))
			}
			settle(t, w, k, 10*time.Minute)
		})

		// The other side stamps its objects its own way.
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = stamp(p.Annotations, foreign) })
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			memapi.Edit(w.API, "", c.Name, func(c *v1.NodeClaim) { c.Annotations = stamp(c.Annotations, foreign) })
		}
		claims, launches := names(w), w.Cloud.Launches()

		w.With(t, options, func(*sim.Karpenter) { time.Sleep(time.Hour) })
		if after := names(w); !slices.Equal(claims, after) || w.Cloud.Launches() != launches {
			t.Errorf("after an hour the claims are %v, before they were %v; %d launches", after, claims, w.Cloud.Launches()-launches)
		}
		present := drift.PoolStamp(sim.Get[*v1.NodePool](t, w, "default"))
		if got := drift.Stored(sim.Get[*v1.NodePool](t, w, "default").Annotations); got != present {
			t.Errorf("the pool is stamped %v, want %v", got, present)
		}
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if got := drift.Stored(c.Annotations); got != present {
				t.Errorf("claim %s is stamped %v, want %v", c.Name, got, present)
			}
			if condition.Get(c, v1.ConditionTypeDrifted) != nil || condition.Get(c, v1.ConditionTypeDisruptionReason) != nil {
				t.Errorf("claim %s has conditions %v", c.Name, c.Status.Conditions)
			}
			// What the other side finds its objects by, and what makes it restamp instead of drifting them.
			if c.Labels[v1.NodePoolLabelKey] != "default" || !slices.Contains(c.Finalizers, v1.TerminationFinalizer) || c.Annotations[v1.NodePoolHashVersionAnnotationKey] == foreign.Version {
				t.Errorf("claim %s cannot be handed back: %v %v %v", c.Name, c.Labels, c.Finalizers, c.Annotations)
			}
		}
		for _, n := range memapi.All[*corev1.Node](w.API) {
			if len(n.Spec.Taints) > 0 || n.DeletionTimestamp != nil || !slices.Contains(n.Finalizers, v1.TerminationFinalizer) {
				t.Errorf("node %s has taints %v, finalizers %v, deleted %v", n.Name, n.Spec.Taints, n.Finalizers, n.DeletionTimestamp)
			}
		}
	})
}

func names(w *sim.World) []string {
	var out []string
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return out
}
