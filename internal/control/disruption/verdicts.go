package disruption

import (
	"cmp"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// say gives the views of the cluster what a pass has found. A pass that does not search for a cheaper fleet finds no target and no
// reasons of consolidation. These stay as an earlier pass found them, as far as they still hold.
func (t *teller) say(w *disrupt.World, out *disrupt.Proposal) {
	if t.Verdicts == nil {
		return
	}
	said := board.Found(out)
	if said.Before == 0 {
		said.Before, said.Target = t.said.Before, t.said.Target
	}
	fresh := map[string]bool{}
	for i := range said.Kept {
		fresh[said.Kept[i].Claim] = true
	}
	for _, r := range t.said.Kept {
		over := !r.Until.IsZero() && !r.Until.After(w.Now)
		if r.Reason == v1.DisruptionReasonUnderutilized && !fresh[r.Claim] && !over && w.Snap.ClaimNode(r.Claim) != nil {
			said.Kept = append(said.Kept, r)
		}
	}
	slices.SortFunc(said.Kept, func(a, b disrupt.Refusal) int {
		return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Code, b.Code))
	})
	t.said = said
	t.Verdicts.Keep(said)
}

// showSteps gives the views of the cluster the steps that wait or are under way.
func (l *Loop) showSteps() {
	if l.tell.Verdicts == nil {
		return
	}
	var steps []board.Step
	for _, id := range sortedKeys(l.pending) {
		p := l.pending[id]
		steps = append(steps, shown(p.Step, board.Step{ID: id, Stage: board.Waits, Until: p.Due}))
	}
	for _, c := range l.ordered() {
		s := board.Begun(c.Record)
		if c.step != nil {
			s = shown(c.step, s)
		}
		steps = append(steps, s)
	}
	l.tell.Verdicts.Step(steps)
}

// shown fills in what the views show of a step.
func shown(step *disrupt.Step, s board.Step) board.Step {
	s.Reason, s.Text, s.Saves, s.Pods, s.Claims = step.Reason, sentence.Step(step), step.Saves(), step.Pods(), nil
	for _, c := range step.Remove {
		s.Claims = append(s.Claims, c.Node.Claim.Name)
	}
	return s
}
