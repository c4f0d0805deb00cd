package telemetry

import (
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Disrupted counts a claim that Karpenter deleted of its own accord, with the pods that had to move because of it.
// policy is the pool's consolidation policy for consolidation, empty for everything else.
func (m *Metrics) Disrupted(claim *v1.NodeClaim, reason string, policy v1.ConsolidationPolicy, pods int) {
	labels := []string{reason, claim.Labels[v1.NodePoolLabelKey], claim.Labels[v1.CapacityTypeLabelKey],
		snake(string(policy)), terminationMode(claim)}
	m.NodeClaimsDisrupted.WithLabelValues(labels...).Inc()
	m.PodsDisruptionInitiated.WithLabelValues(labels...).Add(float64(pods))
}

// Repaired counts the end of a claim whose node was broken. grace is what the drain is bounded by, nil for nothing.
func (m *Metrics) Repaired(node *corev1.Node, claim *v1.NodeClaim, condition corev1.NodeConditionType, grace *time.Duration) {
	mode := "eventual"
	switch {
	case grace == nil:
		mode = "graceful"
	case *grace == 0:
		mode = "forceful"
	}
	labels := node.Labels
	m.NodeClaimsUnhealthy.WithLabelValues(snake(string(condition)), labels[v1.NodePoolLabelKey], labels[v1.CapacityTypeLabelKey],
		claim.Status.ImageID, mode).Inc()
}

// terminationMode says how hard the end of a claim will be.
func terminationMode(claim *v1.NodeClaim) string {
	switch grace := claim.Spec.TerminationGracePeriod; {
	case claim.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] != "": // written before the end began: nothing is waited for
		return "forceful"
	case grace == nil:
		return "graceful"
	case grace.Duration > 0:
		return "eventual"
	}
	return "forceful"
}

// snake turns WhenEmpty into when_empty.
func snake(camel string) string {
	var b strings.Builder
	for i, r := range camel {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
