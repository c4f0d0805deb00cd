package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

func TestAilmentThatIsDueFirst(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	policies := []cloud.RepairPolicy{
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute},
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 20 * time.Minute},
		{ConditionType: "GPUReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute},
		{ConditionType: "Overheated", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute, Reboot: true},
	}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, minute int) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(begin.Add(time.Duration(minute) * time.Minute))}
	}
	for name, c := range map[string]struct {
		conditions []corev1.NodeCondition
		want       corev1.NodeConditionType
		due        int // minutes after begin
	}{
		"a node without conditions is well":           {},
		"another status is well":                      {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, 0)}},
		"another condition is no ailment":             {conditions: []corev1.NodeCondition{condition("DiskPressure", corev1.ConditionFalse, 0)}},
		"what needs a reboot is left to others":       {conditions: []corev1.NodeCondition{condition("Overheated", corev1.ConditionFalse, 0)}},
		"not ready":                                   {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, 5)}, want: corev1.NodeReady, due: 35},
		"not heard of has a time of its own":          {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown, 5)}, want: corev1.NodeReady, due: 25},
		"the one that is due first, not the older":    {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, 0), condition("GPUReady", corev1.ConditionFalse, 8)}, want: "GPUReady", due: 18},
		"the order of conditions is of no importance": {conditions: []corev1.NodeCondition{condition("GPUReady", corev1.ConditionFalse, 25), condition(corev1.NodeReady, corev1.ConditionFalse, 0)}, want: corev1.NodeReady, due: 30},
		"a condition without a time says nothing":     {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := lifecycle.Ailing(&corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}, policies)
			if ok != (c.want != "") {
				t.Fatalf("ailing: %v", ok)
			}
			if ok && (got.Condition.Type != c.want || !got.Due.Equal(begin.Add(time.Duration(c.due)*time.Minute))) {
				t.Errorf("%s due %s, want %s due after %d minutes", got.Condition.Type, got.Due, c.want, c.due)
			}
		})
	}
}

func TestHowManyMayAilAtOnce(t *testing.T) {
	for all, most := range map[int]int{1: 1, 2: 1, 5: 1, 6: 2, 10: 2, 11: 3, 100: 20, 101: 21} {
		if lifecycle.TooManyAil(most, all) || !lifecycle.TooManyAil(most+1, all) {
			t.Errorf("of %d nodes %d may ail and %d may not", all, most, most+1)
		}
	}
}
