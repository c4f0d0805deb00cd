package cloud

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const gpu corev1.NodeConditionType = "GPUReady"

func TestRepairPoliciesThatAreWrongAreAllNamed(t *testing.T) {
	err := CheckRepairPolicies([]RepairPolicy{
		{ConditionType: gpu, Status: "Maybe", Reason: "(", Toleration: -1, Priority: 101},
		{Status: corev1.ConditionTrue, Reboot: true},
		{ConditionType: gpu, Status: corev1.ConditionTrue},
	})
	for _, want := range []string{"neither True, False nor Unknown", "negative", "101", "missing closing )", "type of the condition is missing",
		"which replaces", "2 repair policies have no reason"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one that says %q", err, want)
		}
	}
}
