package sentence

import (
	"fmt"
	"strings"

	"karpenter.sh/karpenter/internal/core/breaker"
)

// Evidence says how many new machines and moved pods are not ready.
func Evidence(e breaker.Evidence) string {
	var parts []string
	if e.BadMachines > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d new machines are not ready", e.BadMachines, e.Machines))
	}
	if e.BadPods > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d moved pods are not ready again", e.BadPods, e.Pods))
	}
	text := strings.Join(parts, ", ")
	if len(e.Examples) > 0 {
		text += " (" + strings.Join(e.Examples, ", ") + ")"
	}
	return text
}
