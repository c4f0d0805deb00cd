package disrupt

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
)

// stillSaves is the part of its saving that a step must still have when it is looked at again: another step between the same
// nodes was never weighed against the pods that it moves.
const stillSaves = 0.9

// Confirm looks at a step again in the newest world. It returns the step as it should be carried out there, or why
// not, and what to remember. Nodes must still be candidates, budgets must still allow them, and the pods must still
// find places at a price that saves what it should.
//
// Between a proposal and this lie the validation delay and whatever happened in it. The question is asked anew and not compared: pods may
// have come and gone, machines may be dearer, and a step that is still right by today's answer is carried out with today's places, however
// much they differ. Only the saving is held against the old one, because that is what the step was preferred to others for.
//
// A step that falls apart on the second look is refused as a whole. Its parts may still be worth it by themselves; the next pass will say
// so, with everything else that it could do instead.
func Confirm(w *World, m Memory, step *Step) (*Step, Refusal, Memory) {
	survey := surveyOf(w)
	candidates := survey.candidates()
	if step.Method == Repair {
		candidates, _ = survey.broken()
	}
	byUID := map[types.UID]*Candidate{}
	for _, c := range candidates {
		byUID[c.Node.Claim.UID] = c
	}
	var remove []*Candidate
	for _, old := range step.Remove {
		c := byUID[old.Node.Claim.UID]
		if c == nil || !still(step, c) {
			return nil, Refusal{Code: Churn}.of(old), m
		}
		if why, held := survey.heldByRollout(c, step.Reason); held {
			return nil, why.of(c), m
		}
		remove = append(remove, c)
	}
	if why := survey.allows(survey.ledger(), step.Reason, remove); why.Code != "" {
		return nil, why, m
	}
	if step.Method == Emptiness {
		return &Step{Method: step.Method, Reason: step.Reason, Remove: remove, Before: step.Before}, Refusal{}, m
	}
	s := survey.search()
	empty, _, soon := s.survey.empties(candidates, survey.ledger())
	for _, e := range empty {
		s.whatIf.gate(e.Remove)
	}
	s.whatIf.gate(soon)
	switch {
	case step.Method == Repair:
		out, why := join(s.repairs(remove), len(remove))
		return out, why, m
	case step.Method == Drift && remove[0].Static(): // such nodes go one by one
		out, why := join(s.replaceStatic(drifting, remove), len(remove))
		return out, why, m
	case step.Method == Drift:
		out, why := join(s.replace(drifting, remove), len(remove))
		return out, why, m
	}
	out, why := join(s.weigh(remove, engine.Question{}), len(remove))
	if why.Code == "" && float64(out.Gains()) < stillSaves*float64(step.Gains()) {
		out, why = nil, Refusal{Code: Scheduling}
	}
	if why.Code == "" && survey.awaited.upsetBy(out) {
		out, why = nil, Refusal{Code: Awaited}.of(remove[0])
	}
	if why.Code == "" {
		m.churn = m.churn.leaves(out, w.Now)
	}
	return out, why, m
}

// still reports whether a candidate is one for the step's reason. A node that was to go because it was empty and
// got a pod meanwhile may be worth consolidating, but that is another step, with another budget.
func still(step *Step, c *Candidate) bool {
	switch step.Method {
	case Emptiness:
		return c.Empty() && c.Consolidatable && c.Held == nil
	case Drift:
		return c.replaceable()
	case Repair:
		return true // broken lists no others
	}
	_, ok := consolidates(c)
	return ok && c.Held == nil
}

// waitsForTurn reports whether only nodes that are going, or are not ready, keep a step from going within the budgets.
func (r Refusal) waitsForTurn() bool { return r.Code == Budget && r.Have >= r.Need }

// allows says why the budgets do not let some nodes go together now; its code is "" if they do. It has as many as
// it needs where budgets would let so many go at another time (waitsForTurn).
func (s *survey) allows(l *ledger, reason v1.DisruptionReason, remove []*Candidate) Refusal {
	if l.Take(reason, remove) {
		return Refusal{}
	}
	why := Refusal{Code: Budget, Reason: reason, Need: float64(len(remove)), Have: float64(len(remove))}
	for pool, n := range perPool(remove) {
		if count := l.counts[pool]; count == nil || count.Raw[reason] < n {
			why.Have = 0
		}
	}
	return why
}

// Forbids says why a step that another process has begun may not go on to remove the nodes of some claims; its code is "" if it may. They
// must be candidates for its reason, and the budgets must let them go together.
//
// What another process began is not planned again: its replacements stand there, and what they cost has been spent. But what is written on
// claims is only as true as its author, so candidates, halts and budgets are looked at as for any other step.
func (w *World) Forbids(reason v1.DisruptionReason, claims []types.UID) Refusal {
	survey := surveyOf(w)
	var remove []*Candidate
	for _, uid := range claims {
		at := slices.IndexFunc(survey.rows, func(c *Candidate) bool { return c.Node.Claim.UID == uid })
		if at < 0 || survey.busy(survey.rows[at]) {
			return Refusal{Code: NotOurs}
		}
		c := survey.rows[at]
		if reason == v1.DisruptionReasonUnhealthy {
			switch why := survey.keepsBroken(c); {
			case !c.due(survey):
				return Refusal{Code: Churn}.of(c)
			case why.Code != "" && why.Code != TooManyBroken: // the step was begun when there were fewer
				return why
			}
			if c.Node.Initialized() || c.rebooted {
				remove = append(remove, c)
			}
			continue
		}
		switch {
		case c.Block != nil:
			return *c.Block
		case c.Held != nil && (reason != v1.DisruptionReasonDrifted || c.Node.Claim.Spec.TerminationGracePeriod == nil):
			return *c.Held
		case reason == v1.DisruptionReasonEmpty && !c.Empty():
			return Refusal{Code: NotEmpty}.of(c)
		}
		remove = append(remove, c)
	}
	l := survey.ledger()
	l.rollouts = nil // its replacements are machines of the rollout already
	return survey.allows(l, reason, remove)
}

// join puts the parts into which a confirmed step fell together again; all of its nodes must be there.
//
// The engine may cut today what was one step yesterday. Opened and removed side by side the pieces are still that step; what matters is
// that no node of it got lost, because its neighbours were approved, budgeted and weighed together with it.
func join(steps []*Step, nodes int) (*Step, Refusal) {
	if len(steps) == 0 {
		return nil, Refusal{Code: Scheduling}
	}
	out := *steps[0]
	for _, s := range steps[1:] {
		out.Remove = append(slices.Clone(out.Remove), s.Remove...)
		out.Open = append(slices.Clone(out.Open), s.Open...)
		out.Place = append(slices.Clone(out.Place), s.Place...)
		out.Before += s.Before
		out.After += s.After
		out.Worst += s.Worst
		out.Own += s.Own
	}
	if len(out.Remove) != nodes {
		return nil, Refusal{Code: Scheduling}
	}
	if len(out.Remove) > 1 && out.Method == SingleNode {
		out.Method = MultiNode
	}
	return &out, Refusal{}
}
