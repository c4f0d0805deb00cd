package disrupt

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

func TestLedger(t *testing.T) {
	type edit = func(*corev1.Node, *v1.NodeClaim)
	unready := func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	deleting := func(_ *corev1.Node, c *v1.NodeClaim) {
		c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(noon)), []string{v1.TerminationFinalizer}
	}
	young := func(n *corev1.Node, _ *v1.NodeClaim) { delete(n.Labels, v1.NodeInitializedLabelKey) }
	stopped := func(_ *corev1.Node, c *v1.NodeClaim) { condition.SetTrue(c, v1.ConditionTypeInstanceTerminating, noon) }
	for name, tc := range map[string]struct {
		budget string
		nodes  int
		edits  map[int][]edit
		marked []int
		want   int
	}{
		"ten percent of ten nodes is one":                {"10%", 10, nil, nil, 1},
		"a node that is not ready uses the budget up":    {"3", 10, map[int][]edit{0: {unready}}, nil, 2},
		"so does one that is being deleted":              {"3", 10, map[int][]edit{0: {deleting}}, nil, 2},
		"one that is both counts once":                   {"3", 10, map[int][]edit{0: {unready, deleting}}, nil, 2},
		"one that we are removing counts":                {"3", 10, nil, []int{4}, 2},
		"it is never below none":                         {"2", 10, map[int][]edit{0: {unready}, 1: {unready}, 2: {unready}}, nil, 0},
		"nodes that are not initialised are not counted": {"50%", 4, map[int][]edit{0: {young}, 1: {young}}, nil, 1},
		"nor are machines that are stopping":             {"50%", 4, map[int][]edit{0: {stopped}, 1: {stopped}}, nil, 1},
		"all of ten when all are on their way":           {"100%", 3, map[int][]edit{0: {deleting}, 1: {deleting}, 2: {deleting}}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: tc.budget}} })
			for i := range tc.nodes {
				f.node(fmt.Sprintf("n%02d", i), "default", "m", v1.CapacityTypeOnDemand, tc.edits[i]...)
			}
			for _, i := range tc.marked {
				f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval(fmt.Sprintf("n%02d", i)) })
			}
			if got := surveyOf(f.world()).ledger().Left("default", v1.DisruptionReasonEmpty); got != tc.want {
				t.Errorf("left = %d, want %d", got, tc.want)
			}
		})
	}
}

// TestStepsThatWaitUseTheBudget has a budget of two, of which a node uses one: it goes, has long been going, or is not ready.
func TestStepsThatWaitUseTheBudget(t *testing.T) {
	deleted := func(ago time.Duration) func(*corev1.Node, *v1.NodeClaim) {
		return func(_ *corev1.Node, c *v1.NodeClaim) {
			c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(noon.Add(-ago))), []string{v1.TerminationFinalizer}
		}
	}
	unready := func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	for name, tc := range map[string]struct {
		other   func(*corev1.Node, *v1.NodeClaim)
		waiting int
		ahead   bool
		planned int
	}{
		"nothing waits": {deleted(0), 0, false, 1}, "a step waits": {deleted(0), 1, false, 0},
		"steps wait for their turn": {deleted(0), 1, true, 2}, "two do": {deleted(0), 2, true, 1}, "three do": {deleted(0), 3, true, 0},
		"the node has nearly been going for too long": {deleted(stuckAfter - 1), 1, true, 2},
		"the node will not go soon":                   {deleted(stuckAfter), 0, true, 1},
		"it will not, and a step waits":               {deleted(stuckAfter), 1, true, 1},
		"it will not, and two do":                     {deleted(stuckAfter), 2, true, 0},
		"a node that is not ready goes nowhere":       {unready, 1, true, 1},
		"it does not, and two steps wait":             {unready, 2, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "2"}} })
			for i := range 5 {
				f.node(fmt.Sprintf("n%d", i), "default", "m", v1.CapacityTypeOnDemand)
			}
			w := f.node("other", "default", "m", v1.CapacityTypeOnDemand, tc.other).world()
			w.Promised, w.Ahead = map[string]int{"default": tc.waiting}, tc.ahead
			l := surveyOf(w).ledger()
			if planned, drifted := l.Left("default", v1.DisruptionReasonUnderutilized), l.Left("default", v1.DisruptionReasonDrifted); planned != tc.planned || drifted != 1 {
				t.Errorf("%d may be planned for and %d drifted ones go, want %d and one", planned, drifted, tc.planned)
			}
		})
	}
}

func TestABrokenBudgetAllowsNothingAndSaysWhy(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "lots"}} }).
		pool("other").node("a", "default", "m", v1.CapacityTypeOnDemand).node("b", "other", "m", v1.CapacityTypeOnDemand)
	l := surveyOf(f.world()).ledger()
	if l.Left("default", v1.DisruptionReasonEmpty) != 0 || l.counts["default"].Err == nil {
		t.Errorf("the broken budget allows %d, error %v", l.Left("default", v1.DisruptionReasonEmpty), l.counts["default"].Err)
	}
	if l.Left("other", v1.DisruptionReasonEmpty) != 1 {
		t.Errorf("the other pool is allowed %d, want 1", l.Left("other", v1.DisruptionReasonEmpty))
	}
}
