package disrupt

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/surge"
)

// A pod that a budget holds leaves by a restart where its workload agrees and the saving pays for the restart.
func TestRestarts(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict  surge.Verdict
		saving   float64
		edit     func(*corev1.Pod)
		restarts int
		note     Code
	}{
		"its owner agrees":                {surge.Possible, 0.01, nil, 1, ""},
		"its owner has not":               {surge.NoConsent, 0.01, nil, 0, PodBudget},
		"nothing is known of it":          {"", 0.01, nil, 0, PodBudget},
		"the saving does not pay for it":  {surge.Possible, 10, nil, 0, TooManyRestarts},
		"it must not be disrupted at all": {surge.Possible, 0.01, func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }, 0, PodProtected},
	} {
		t.Run(name, func(t *testing.T) {
			edit := tc.edit
			if edit == nil {
				edit = func(*corev1.Pod) {}
			}
			f := newFixture(shape("large", 16, 64, 2, 0), shape("small", 2, 8, 0.1, 0)).pool("default").
				node("n", "default", "large", v1.CapacityTypeOnDemand).pods("n", "web", 1, "1", "1Gi", edit).pdb("web", 0)
			w := f.world()
			w.Surge, w.Settings.RestartSaving = map[types.UID]surge.Verdict{"web": tc.verdict}, tc.saving
			out := newPlanner(engine.New()).Propose(w)
			restarts := 0
			for _, step := range out.Steps {
				restarts += step.restarts()
			}
			if restarts != tc.restarts || (len(out.Steps) > 0) != (tc.restarts > 0) {
				t.Errorf("%d steps with %d restarts, want %d restarts", len(out.Steps), restarts, tc.restarts)
			}
			notes := append(out.Blocks, out.Notes...)
			if tc.note != "" && (len(notes) != 1 || notes[0].Code != tc.note) {
				t.Errorf("notes %v, want %s", notes, tc.note)
			}
		})
	}
}

// Nodes that need no restart go first.
func TestRestartsComeLast(t *testing.T) {
	drifted := func(_ *corev1.Node, c *v1.NodeClaim) {
		condition.SetTrue(c, v1.ConditionTypeDrifted, noon.Add(-time.Hour))
	}
	f := newFixture(shape("small", 2, 8, 0.1, 0)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}} }).
		node("a", "default", "small", v1.CapacityTypeOnDemand, drifted).pods("a", "web", 1, "1", "1Gi").pdb("web", 0).
		node("b", "default", "small", v1.CapacityTypeOnDemand, drifted).pods("b", "api", 1, "1", "1Gi")
	w := f.world()
	w.Surge = map[types.UID]surge.Verdict{"web": surge.Possible}
	out := newPlanner(engine.New()).Propose(w)
	if len(out.Steps) != 1 || out.Steps[0].Remove[0].Name() != "b" {
		t.Errorf("steps %v, want node b first", out.Steps)
	}
}
