package view

import (
	"fmt"
	"math"
	"time"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// A Step is a change of the fleet that was decided.
type Step struct {
	ID, Stage, Reason, Text string
	Nodes                   []string
	SavesDay                float64 // 0 if not known any more
	Pods                    int
	Until                   time.Time
}

// Steps returns the steps that were decided: first those that wait or are carried out, then those that wait for
// approval.
func Steps(snap *cluster.Snapshot, decided []board.Step) []Step {
	var out []Step
	for _, s := range decided {
		step := Step{ID: s.ID, Stage: string(s.Stage), Reason: string(s.Reason), Text: s.Text,
			SavesDay: 24 * s.Saves.Dollars(), Pods: s.Pods, Until: s.Until}
		for _, claim := range s.Claims {
			step.Nodes = append(step.Nodes, nodeOf(snap, claim))
		}
		if step.Text == "" {
			step.Text = sentence.Begun(step.Nodes, s.Opens)
		}
		out = append(out, step)
	}
	for plan := range snap.DisruptionPlans() {
		if plan.Open() {
			out = append(out, askedStep(plan))
		}
	}
	return out
}

// askedStep returns the step of a plan that waits for approval, or is approved and not yet begun.
func askedStep(plan *v1alpha1.DisruptionPlan) Step {
	s := plan.Status.Step
	step := Step{ID: plan.Name, Stage: "waits for approval: karpenter approve " + plan.Name, Reason: string(s.Reason),
		Text:     sentence.Asked(s),
		SavesDay: 24 * dollars(s.Saves), Pods: s.Pods, Until: plan.Status.ExpiresAt.Time}
	if plan.Approved() {
		step.Stage = "is approved and about to be looked at again"
	}
	for _, n := range s.Remove {
		step.Nodes = append(step.Nodes, n.Node)
	}
	return step
}

// dollars reads an amount of a DisruptionPlan, 0 if another text is there.
func dollars(text string) float64 {
	var x float64
	if _, err := fmt.Sscanf(text, "%g", &x); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// nodeOf returns the name of a claim's node, or the claim's own if there is none.
func nodeOf(snap *cluster.Snapshot, claim string) string {
	if n := snap.ClaimNode(claim); n != nil {
		return n.Name
	}
	return claim
}
