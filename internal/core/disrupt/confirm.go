package disrupt

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
)

// stillSaves is the part of its saving that a consolidation must still have when it is confirmed: with less saved it is in effect
// another step, which was never weighed against the pods that it moves.
const stillSaves = 0.9

// Confirm checks a step again in the newest world, right before it is started. It returns the step with today's places and machines, or a
// Refusal, whose code is "" if there is none; and the new memory. The nodes must still be candidates, the budgets must still allow them,
// and all pods must still find places.
//
// The step was proposed before the validation delay, or before a user approved it. Meanwhile pods come and go, and prices change. So
// Confirm asks the engine again, and the step gets the places and machines of the new answer, however much they differ. Only the saving is
// compared with the old one, because the step was preferred to others for it.
//
// If the engine now has an answer for only some of the nodes, the whole step is refused. The next pass proposes those again if they are
// still worth it.
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

// still reports whether a candidate may still go by the method of the step. An empty node that got a pod meanwhile may be worth
// consolidating, but that would be another step, with another budget.
func still(step *Step, c *Candidate) bool {
	switch step.Method {
	case Emptiness:
		return c.Empty() && c.Consolidatable && c.Held == nil
	case Drift:
		return c.replaceable()
	case Repair:
		return true // survey.broken has already left out all other nodes
	}
	_, ok := consolidates(c)
	return ok && c.Held == nil
}

// waitsForTurn reports whether a refused step only has to wait for its turn: the budgets forbid it just because other nodes are going or
// are not ready. For the meaning of Have and Need here see allows.
func (r Refusal) waitsForTurn() bool { return r.Code == Budget && r.Have >= r.Need }

// allows returns why the budgets do not let some nodes go together now; the code is "" if they do, and l then counts them as going. Need is
// the number of nodes. Have is the same number if the budgets would allow so many while no other node is going, else 0; see waitsForTurn.
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

// Forbids returns why a step that another process has begun may not go on to remove the nodes of some claims; the code is "" if it may.
// The nodes must be candidates for its reason, and the budgets must let them go together.
//
// Such a step is known only from records on claims. It is not planned again, because its replacements exist already. But any user who may
// change claims can forge a record, so candidates, pauses and budgets are checked as for any other step.
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

// join makes one step of the parts into which the engine has now split a step. The parts must have as many nodes as that step had;
// otherwise it is refused, because its nodes were approved, budgeted and weighed together.
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
