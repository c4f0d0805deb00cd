package disrupt

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// Drift that an edit of the pool or its class caused does not come back on new machines, so it is not drift from birth, however young the
// machines are. Drift that nothing of this explains is.
func TestEditsCauseNoDriftFromBirth(t *testing.T) {
	edit := func(f *fixture) {
		p := f.pools["b"].Pool.DeepCopy()
		p.Spec.Template.Labels = map[string]string{"edition": "2"}
		f.store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, p) })
	}
	editClass := func(f *fixture) {
		f.store.Update(func(d *cluster.Draft) {
			d.PutNodeClass(&cluster.NodeClass{Group: classRef.Group, Kind: classRef.Kind, Name: classRef.Name, UID: "class", Generation: 2})
		})
	}
	nothing := func(*fixture) {}
	const before, after = -2 * time.Minute, -time.Minute // when the passes saw the pool
	for name, tc := range map[string]struct {
		reason  string
		edit    func(*fixture)
		created time.Duration
		births  bool
	}{
		"the pool was edited after the launch":                       {v1.ReasonNodePoolDrifted, edit, -3 * time.Minute, false},
		"its requirements were, and another process saw it":          {v1.ReasonRequirementsDrifted, nothing, -3 * time.Minute, false},
		"something changes the hash of claims":                       {v1.ReasonNodePoolDrifted, nothing, -30 * time.Second, true},
		"the same after an edit":                                     {v1.ReasonNodePoolDrifted, edit, -30 * time.Second, true},
		"the claim was planned before the edit":                      {v1.ReasonNodePoolDrifted, edit, -55 * time.Second, false},
		"the class was edited after the launch":                      {"SecurityGroupDrift", editClass, -3 * time.Minute, false},
		"something changes the security groups":                      {"SecurityGroupDrift", nothing, -3 * time.Minute, true},
		"the class was edited, and something changes the new groups": {"SecurityGroupDrift", editClass, -30 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoPools()
			f.store.Update(func(d *cluster.Draft) {
				d.PutNodeClass(&cluster.NodeClass{Group: classRef.Group, Kind: classRef.Kind, Name: classRef.Name, UID: "class", Generation: 1})
			})
			young := func(_ *corev1.Node, c *v1.NodeClaim) {
				c.CreationTimestamp = metav1.NewTime(noon.Add(tc.created))
				condition.Clear(c, v1.ConditionTypeLaunched, noon)
				condition.SetTrue(c, v1.ConditionTypeLaunched, noon.Add(tc.created))
				condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: tc.reason}, noon)
			}
			look := func(at time.Duration, was map[string]edition) map[string]edition {
				w := f.world()
				w.Now = noon.Add(at)
				return editionsOf(w, was)
			}
			editions := look(before, nil)
			tc.edit(f)
			editions = look(after, editions)
			f.node("young", "b", "dear", onDemand, young)
			recurring, _ := recurringOf(surveyOf(f.world()), look(0, editions))
			if births := len(recurring) > 0; births != tc.births {
				t.Errorf("drift from birth: %t, want %t", births, tc.births)
			}
		})
	}
}

// Young nodes go together when their pool is edited.
func TestYoungNodesOfAnEditedPoolGoTogether(t *testing.T) {
	f := twoPools()
	planner := newPlanner(engine.New())
	planner.Propose(f.world())
	for _, name := range []string{"x", "y", "z"} {
		f.node(name, "b", "dear", onDemand, func(_ *corev1.Node, c *v1.NodeClaim) {
			c.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
			condition.Clear(c, v1.ConditionTypeLaunched, noon)
			condition.SetTrue(c, v1.ConditionTypeLaunched, noon.Add(-time.Minute))
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: v1.ReasonNodePoolDrifted}, noon)
		})
	}
	if out := planner.Propose(f.world()); len(out.Steps) != 3 {
		t.Errorf("got %q, want all three", say(out))
	}
}
