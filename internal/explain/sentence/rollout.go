package sentence

import (
	"fmt"
	"strings"

	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// rolloutTexts say why a RolloutPolicy holds a node.
var rolloutTexts = map[rollout.State]string{
	rollout.Unread:     "it cannot be read",
	rollout.Starting:   "the rollout has not begun yet",
	rollout.Tripped:    "a gate tripped; karpenter resume, or a new spec of NodePool or node class, lets it go on",
	rollout.Closed:     "no window is open",
	rollout.Unanswered: "a gate does not answer",
	rollout.Rolling:    "the machines of the present step are not all ready",
	rollout.Baking:     "the machines of the present step are watched",
}

func heldByRollout(r *disrupt.Refusal) string {
	text := fmt.Sprintf("RolloutPolicy %q holds it: %s%s", r.Name, rolloutTexts[rollout.State(r.Value)], until(r))
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// Tripped says by what evidence a gate tripped.
func Tripped(g rollout.Gate, v *rollout.Verdict) string {
	var text string
	switch g {
	case rollout.NodesReady:
		text = fmt.Sprintf("%d of %d new machines are not ready", v.BadMachines, v.Machines)
	case rollout.MovedPodsReady:
		text = fmt.Sprintf("%d of %d pods on new machines fail, while their like did well", v.BadPods, v.Pods)
	}
	if len(v.Examples) > 0 {
		text += " (" + strings.Join(v.Examples, ", ") + ")"
	}
	return fmt.Sprintf("gate %s: %s", g, text)
}
