package sentence

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/disrupt"
)

// Step says which nodes a step removes and which come instead.
func Step(s *disrupt.Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", s.Decision(), Count(len(s.Remove), "node"))
	for _, c := range s.Remove {
		labels := c.Node.Labels()
		fmt.Fprintf(&b, " %s/%s/%s", c.Name(), labels[corev1.LabelInstanceTypeStable], labels[v1.CapacityTypeLabelKey])
	}
	for i, o := range s.Open {
		if i == 0 {
			b.WriteString(", replaced by")
		}
		fmt.Fprintf(&b, " %s (%s, $%.4f/h)", o.Type, Count(len(o.Types), "type"), o.Price.Dollars())
	}
	return b.String()
}

// Saves says what a step saves in an hour, or how much more the fleet costs after it.
func Saves(dollars float64) string {
	if dollars < 0 {
		return fmt.Sprintf("costs $%.4f an hour more", -dollars)
	}
	return fmt.Sprintf("saves $%.4f an hour", dollars)
}

// PerHour writes dollars an hour, with the sign before the dollar.
func PerHour(dollars float64) string {
	if dollars < 0 {
		return "-" + PerHour(-dollars)
	}
	return fmt.Sprintf("$%.4f/h", dollars)
}

// Asked says the same as Step, of a plan that waits for approval.
func Asked(s *v1alpha1.DisruptionStep) string {
	var b strings.Builder
	decision := "delete"
	if len(s.Open) > 0 {
		decision = "replace"
	}
	fmt.Fprintf(&b, "%s %s:", decision, Count(len(s.Remove), "node"))
	for _, n := range s.Remove {
		fmt.Fprintf(&b, " %s/%s/%s", n.Node, n.InstanceType, n.CapacityType)
	}
	for i, o := range s.Open {
		if i == 0 {
			b.WriteString(", replaced by")
		}
		fmt.Fprintf(&b, " %s (%s, $%s/h)", o.InstanceType, Count(o.Types, "type"), o.Price)
	}
	return b.String()
}

// Begun says the same as Step, if only the names of nodes and claims are known, such as after a restart.
func Begun(nodes, claims []string) string {
	text := fmt.Sprintf("delete %s: %s", Count(len(nodes), "node"), strings.Join(nodes, " "))
	if len(claims) > 0 {
		text = fmt.Sprintf("replace %s: %s, replaced by %s", Count(len(nodes), "node"), strings.Join(nodes, " "),
			strings.Join(claims, " "))
	}
	return text
}
