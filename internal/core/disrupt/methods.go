package disrupt

import (
	"cmp"
	"context"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lower"
)

// empties proposes to remove nodes that run nothing which needs another place, one step each: they do not depend on each other.
func empties(candidates []*Candidate, ledger *Ledger) (steps []*Step, notes []Note) {
	var ready []*Candidate
	for _, c := range candidates {
		switch {
		case c.Static() || c.Held != nil || !c.Empty():
		case c.Pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
			notes = append(notes, Note{c, "the node is empty, but its NodePool has consolidateAfter: Never"})
		case c.Consolidatable:
			ready = append(ready, c)
		}
	}
	byRatio(ready)
	for _, c := range ready {
		if ledger.Take(v1.DisruptionReasonEmpty, []*Candidate{c}) {
			steps = append(steps, &Step{Method: Emptiness, Reason: v1.DisruptionReasonEmpty, Remove: []*Candidate{c}, Before: c.Price})
		}
	}
	return steps, notes
}

// drifted lists the nodes that no longer are what their pool asks for. A termination grace period overcomes pods that hold
// their node, because then the end of the node is certain. Empty nodes come first, then those that drifted first.
func drifted(candidates []*Candidate) []*Candidate {
	var out []*Candidate
	for _, c := range candidates {
		if c.Drifted != nil && !c.Static() && (c.Held == nil || c.Node.Claim.Spec.TerminationGracePeriod != nil) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *Candidate) int {
		return cmp.Or(
			compareBool(b.Empty(), a.Empty()),
			a.Drifted.LastTransitionTime.Compare(b.Drifted.LastTransitionTime.Time),
			cmp.Compare(a.Name(), b.Name()))
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// drifts proposes to replace as many drifted nodes as the budgets allow, whatever the replacements cost. They are planned
// together, so that two of them never count on the same room.
func (s *search) drifts(ctx context.Context, candidates []*Candidate) []*Step {
	window := s.ledger.Fits(v1.DisruptionReasonDrifted, candidates)
	if len(window) == 0 {
		return nil
	}
	answer := s.q.ask(ctx, window, lower.Input{Closed: s.q.closed})
	for c, text := range answer.refused {
		s.notes[c] = "it has drifted, but its pods would not all find a place: " + text
	}
	var steps []*Step
	for i := range answer.parts {
		p := &answer.parts[i]
		step := &Step{Method: Drift, Reason: v1.DisruptionReasonDrifted, Remove: p.remove, Open: p.open, Place: p.place, Before: p.price()}
		for _, o := range p.open {
			step.After += o.Price
			step.Worst += o.Worst
		}
		if s.ledger.Take(step.Reason, step.Remove) {
			byName(step.Remove)
			steps = append(steps, step)
		}
	}
	return steps
}
