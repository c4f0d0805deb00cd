package telemetry

import (
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Disrupted counts a claim that Karpenter deleted of its own accord, and the pods that had to move because of it. policy is the pool's
// consolidation policy if that had a part in it, else "".
func (m *Metrics) Disrupted(claim *v1.NodeClaim, reason string, policy v1.ConsolidationPolicy, pods int) {
	labels := []string{reason, claim.Labels[v1.NodePoolLabelKey], claim.Labels[v1.CapacityTypeLabelKey],
		snake(string(policy)), terminationMode(claim)}
	m.NodeClaimsDisrupted.WithLabelValues(labels...).Inc()
	m.PodsDisruptionInitiated.WithLabelValues(labels...).Add(float64(pods))
}

// Unhealthy counts a claim that was deleted because its node was broken. grace bounds the drain: nil is no bound, 0 waits for nothing.
func (m *Metrics) Unhealthy(node *corev1.Node, claim *v1.NodeClaim, condition corev1.NodeConditionType, grace *time.Duration) {
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

// terminationMode returns how hard the end of a claim will be: graceful without a bound, eventual with a grace period, forceful without
// waiting.
func terminationMode(claim *v1.NodeClaim) string {
	switch grace := claim.Spec.TerminationGracePeriod; {
	case claim.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] != "":
		// the deadline was written before the claim was deleted: the drain waits for nothing
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
