package disrupt

import (
	"fmt"
	"testing"

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

func TestStepsThatWaitUseTheBudget(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "2"}} })
	for i := range 5 {
		f.node(fmt.Sprintf("n%d", i), "default", "m", v1.CapacityTypeOnDemand)
	}
	w := f.world()
	w.Promised = map[string]int{"default": 1}
	if got := surveyOf(w).ledger().Left("default", v1.DisruptionReasonDrifted); got != 1 {
		t.Errorf("left = %d, want 1", got)
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
