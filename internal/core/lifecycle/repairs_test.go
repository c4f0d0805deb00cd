package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

const gpu corev1.NodeConditionType = "GPUReady"

func bound(minutes int) *time.Duration {
	d := time.Duration(minutes) * time.Minute
	return &d
}

// faultPolicies are those of a provider whose GPUs may be mended by a reboot, whose GPUs may be broken, and whose nodes may not be ready.
func faultPolicies() []cloud.RepairPolicy {
	return []cloud.RepairPolicy{
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: ".*", Toleration: 30 * time.Minute},
		{ConditionType: gpu, Status: corev1.ConditionFalse, Reason: "Mendable", Toleration: 10 * time.Minute, Grace: bound(5), Priority: 2, Reboot: true},
		{ConditionType: gpu, Status: corev1.ConditionFalse, Reason: "Broken", Toleration: 10 * time.Minute, Grace: bound(3), Priority: 9},
		{ConditionType: gpu, Status: corev1.ConditionFalse, Toleration: 40 * time.Minute, Grace: bound(20)},
	}
}

func TestFaults(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	repairs := lifecycle.NewRepairs(faultPolicies())
	since := func(minutes int, kind corev1.NodeConditionType, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))}
	}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		own        *time.Duration
		none       bool
		want       corev1.NodeConditionType
		due        int // minutes ago, negative for ahead
		grace      *time.Duration
		score      float64
		reboot     bool
	}{
		"well":                     {none: true},
		"a condition of no policy": {conditions: []corev1.NodeCondition{since(90, "DiskReady", "x")}, none: true},
		"not long enough":          {conditions: []corev1.NodeCondition{since(20, corev1.NodeReady, "x")}, want: corev1.NodeReady, due: -10, reboot: true},
		"long enough":              {conditions: []corev1.NodeCondition{since(36, corev1.NodeReady, "x")}, want: corev1.NodeReady, due: 6, score: 0.2},
		"the claim's bound":        {conditions: []corev1.NodeCondition{since(36, corev1.NodeReady, "x")}, own: bound(60), want: corev1.NodeReady, due: 6, grace: bound(60), score: 0.2},
		"the shorter bound":        {conditions: []corev1.NodeCondition{since(13, gpu, "Mendable")}, own: bound(1), want: gpu, due: 3, grace: bound(1), score: 1.1, reboot: true},
		"what a reboot may mend":   {conditions: []corev1.NodeCondition{since(13, gpu, "Mendable")}, want: gpu, due: 3, grace: bound(5), score: 1.1, reboot: true},
		"what no reboot mended":    {conditions: []corev1.NodeCondition{since(55, gpu, "Mendable")}, want: gpu, due: 45, grace: bound(5), score: 2.5},
		"both":                     {conditions: []corev1.NodeCondition{since(13, gpu, "Mendable, Broken")}, want: gpu, due: 3, grace: bound(3), score: 2.1},
		"an unknown reason":        {conditions: []corev1.NodeCondition{since(43, gpu, "x")}, want: gpu, due: 3, grace: bound(20), score: 0.1},
		"the graver one is named": {conditions: []corev1.NodeCondition{since(120, corev1.NodeReady, "x"), since(13, gpu, "Broken")},
			want: gpu, due: 3, grace: bound(3), score: 3},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}}
			claim := &v1.NodeClaim{}
			if tc.own != nil {
				claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *tc.own}
			}
			got := repairs.Of(node, claim, now)
			if (got == nil) != tc.none {
				t.Fatalf("fault = %+v", got)
			}
			if got == nil {
				return
			}
			due := now.Add(-time.Duration(tc.due) * time.Minute)
			if got.Condition.Type != tc.want || !got.Due.Equal(due) || got.Reboot != tc.reboot {
				t.Errorf("%s, due %s, reboot %t; want %s, due %s, reboot %t", got.Condition.Type, got.Due, got.Reboot, tc.want, due, tc.reboot)
			}
			if (got.Grace == nil) != (tc.grace == nil) || got.Grace != nil && *got.Grace != *tc.grace {
				t.Errorf("grace = %v, want %v", got.Grace, tc.grace)
			}
			if diff := got.Score - tc.score; diff < -0.001 || diff > 0.001 {
				t.Errorf("score = %v, want %v", got.Score, tc.score)
			}
		})
	}
}
