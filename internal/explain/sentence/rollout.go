package sentence

import (
	"fmt"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// rolloutTexts has, for each state of a rollout, why its RolloutPolicy keeps a drifted node.
var rolloutTexts = map[rollout.State]string{
	rollout.Unread:     "it cannot be read",
	rollout.Starting:   "the rollout has not begun yet",
	rollout.Tripped:    "a gate tripped; karpenter resume, or a new spec of NodePool or node class, lets it go on",
	rollout.Closed:     "no window is open",
	rollout.Unanswered: "a gate does not answer",
	rollout.Rolling:    "the machines of the present step are not all ready",
	rollout.Baking:     "the machines of the present step are watched",
}

// heldByRollout explains the code Rollout.
func heldByRollout(r *disrupt.Refusal) string {
	text := fmt.Sprintf("RolloutPolicy %q holds it: %s%s", r.Name, rolloutTexts[rollout.State(r.Value)], until(r))
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// LastGood returns from which template and images new machines of a pool start while its rollout is stopped. last and err are the result of
// rollout.Restore: the pool with the state that passed last, or why the machines start from the present template instead.
func LastGood(e *v1alpha1.RolloutPool, last *v1.NodePool, err error) string {
	if err != nil {
		return fmt.Sprintf("new machines of NodePool %s start with its present template and images: %v", e.Name, err)
	}
	images := ""
	if len(e.LastGood.Images) > 0 {
		images = " and images " + strings.Join(e.LastGood.Images, ", ")
	}
	return fmt.Sprintf("new machines of NodePool %s start with template %s%s, which passed at %s", e.Name,
		last.Annotations[v1.NodePoolHashAnnotationKey], images, e.LastGood.Passed.UTC().Format(time.RFC3339))
}

// StartedWith returns that the machine of a claim started from the template and images that passed last, "" if it did not.
func StartedWith(claim *v1.NodeClaim) string {
	images, ok := claim.Annotations[v1.LastGoodImagesAnnotationKey]
	if !ok {
		return ""
	}
	text := "started with the template that passed last, as its RolloutPolicy had stopped its NodePool"
	if images != "" {
		text += "; so had images " + strings.ReplaceAll(images, ",", ", ")
	}
	return text
}

// Tripped returns the evidence by which the gate NodesReady or MovedPodsReady tripped.
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
