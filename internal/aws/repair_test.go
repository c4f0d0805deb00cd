package aws

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

func TestRepairPolicies(t *testing.T) {
	policies := (&Provider{}).RepairPolicies()
	if err := cloud.CheckRepairPolicies(policies); err != nil {
		t.Fatal(err)
	}
	repairs := lifecycle.NewRepairs(policies)
	for name, tc := range map[string]struct {
		condition corev1.NodeCondition
		after     time.Duration // 0 for never
		grace     time.Duration
		reboot    bool
	}{
		"not ready":                  {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, 30 * time.Minute, 10 * time.Minute, false},
		"not heard of":               {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, 30 * time.Minute, 10 * time.Minute, false},
		"ready":                      {corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, 0, 0, false},
		"a GPU that a reboot mends":  {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "NvidiaXID48Error"}, 10 * time.Minute, 5 * time.Minute, false},
		"with its number by itself":  {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID48"}, 10 * time.Minute, 5 * time.Minute, false},
		"in lower case":              {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "xid48"}, 10 * time.Minute, 5 * time.Minute, false},
		"a number that begins alike": {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID480"}, 30 * time.Minute, 10 * time.Minute, false},
		"a shorter number":           {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID4"}, 30 * time.Minute, 10 * time.Minute, false},
		"a broken GPU":               {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID79"}, 10 * time.Minute, 5 * time.Minute, false},
		"both":                       {corev1.NodeCondition{Type: accelerated, Status: corev1.ConditionFalse, Reason: "XID48,XID79"}, 10 * time.Minute, 5 * time.Minute, false},
		"storage":                    {corev1.NodeCondition{Type: "StorageReady", Status: corev1.ConditionFalse}, 30 * time.Minute, 10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			tc.condition.LastTransitionTime = metav1.NewTime(begin)
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{tc.condition}}}
			got := repairs.Of(node, &v1.NodeClaim{}, begin.Add(tc.after))
			if (got == nil) != (tc.after == 0) {
				t.Fatalf("fault = %+v", got)
			}
			if got == nil {
				return
			}
			if !got.Due.Equal(begin.Add(tc.after)) || got.Grace == nil || *got.Grace != tc.grace || got.Reboot != tc.reboot {
				t.Errorf("due after %s, grace %v, reboot %t", got.Due.Sub(begin), got.Grace, got.Reboot)
			}
		})
	}
}
