package provision

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// leftOut returns a text with the pools that may get no nodes now, and why; "" if there are none. It is written after the reasons of the
// other pools. Without it a pod that only such a pool could hold would wait without an explanation.
func leftOut(snap *cluster.Snapshot, notReady map[string]bool) string {
	const few = 5
	var parts []string
	more := 0
	for p := range cluster.Pools.All(snap) {
		switch {
		case !notReady[p.Name]:
		case len(parts) == few:
			more++
		default:
			parts = append(parts, fmt.Sprintf("pool %q %s", p.Name, unready(p)))
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more pool(s) that are not ready", more))
	}
	return strings.Join(parts, "; ")
}

// unready returns why a pool is not ready.
func unready(p *v1.NodePool) string {
	if p.DeletionTimestamp != nil {
		return "is being deleted"
	}
	for _, kind := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
		if c := condition.Get(p, kind); c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
			return "is not ready: " + c.Message
		}
	}
	return "is not ready yet"
}
