package disrupt

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

// A pod that no place is looked for takes no room from those that have to move.
func TestWhoWaitsInAWhatIf(t *testing.T) {
	unschedulable := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	key := cluster.PodKey{Namespace: "default", Name: "web--0"}
	for name, tc := range map[string]struct {
		do   func(*cluster.Draft)
		want int
	}{
		"a pod without a place":          {func(*cluster.Draft) {}, 1},
		"one that gets none now":         {func(d *cluster.Draft) { d.Hold(key) }, 0},
		"one that may get one again":     {func(d *cluster.Draft) { d.Hold(key); d.Unhold(key) }, 1},
		"one that had none and has one":  {func(d *cluster.Draft) { d.Hold(key); d.Plan(key, "n", noon) }, 0},
		"one whose plan came to nothing": {func(d *cluster.Draft) { d.Hold(key); d.Plan(key, "n", noon); d.Unplan(key) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture().pods("", "web", 1, "1", "1Gi", unschedulable)
			f.store.Update(tc.do)
			if got := len(surveyOf(f.world()).waiting); got != tc.want {
				t.Errorf("%d pods wait, want %d", got, tc.want)
			}
		})
	}
}
