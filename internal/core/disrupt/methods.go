package disrupt

import (
	"cmp"
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
)

// empties proposes to remove nodes that run nothing which needs another place, one step each: they do not depend on each other. It
// also returns those that have not been vacant for long enough.
//
// Which of two empty nodes goes first is decided by price alone, as both cost the same to remove. Steps of one node each, because they
// wait for nothing: there is no machine to be opened, and a node that turns out not to be empty keeps no other from going.
func (s *survey) empties(candidates []*Candidate, ledger *ledger) (steps []*Step, notes []Refusal, soon []*Candidate) {
	var ready []*Candidate
	for _, c := range candidates {
		switch {
		case c.Static() || c.Held != nil || !c.Empty():
		case c.Pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
			notes = append(notes, Refusal{Code: ConsolidateNever, Reason: v1.DisruptionReasonEmpty, Name: c.Pool.Name}.of(c))
		case !c.Consolidatable:
		case s.vacant(c).After(s.w.Now):
			soon = append(soon, c)
		default:
			ready = append(ready, c)
		}
	}
	byRatio(ready)
	for _, c := range ready {
		if ledger.Take(v1.DisruptionReasonEmpty, []*Candidate{c}) {
			steps = append(steps, &Step{Method: Emptiness, Reason: v1.DisruptionReasonEmpty, Remove: []*Candidate{c}, Before: c.Price})
		}
	}
	return steps, notes, soon
}

// drifted lists the nodes that no longer are what their pool asks for and are to be replaced.
// Those that have not been vacant for long may be about to get the pods that they were opened for.
func (s *survey) drifted(candidates []*Candidate) (out, soon []*Candidate) {
	for _, c := range candidates {
		switch {
		case !c.replaceable():
		case c.Static():
			out = append(out, c)
		case c.idle() && s.vacant(c).After(s.w.Now):
			soon = append(soon, c)
		default:
			out = append(out, c)
		}
	}
	slices.SortFunc(out, byDrift)
	return out, soon
}

// replaceable candidates have drifted, and no pod keeps them from going. A termination grace period overcomes pods that hold their node,
// because then the end of the node is certain.
func (c *Candidate) replaceable() bool {
	return c.Drifted != nil && (c.Held == nil || c.Node.Claim.Spec.TerminationGracePeriod != nil)
}

// byDrift puts nodes first that run nothing which comes back, then those that need the fewest restarts, then those that drifted first.
func byDrift(a, b *Candidate) int {
	return cmp.Or(
		compareBool(b.idle(), a.idle()),
		cmp.Compare(a.Restarts, b.Restarts),
		a.Drifted.LastTransitionTime.Compare(b.Drifted.LastTransitionTime.Time),
		cmp.Compare(a.Name(), b.Name()))
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

// replacing is why nodes are replaced whatever that costs: they have drifted, or are broken.
type replacing struct {
	method Method
	reason v1.DisruptionReason
	closed map[string]bool // nodes that take no pods besides those that the survey closes
}

var drifting = replacing{method: Drift, reason: v1.DisruptionReasonDrifted}

func (r replacing) step(p *part) *Step {
	step := &Step{Method: r.method, Reason: r.reason, Remove: p.remove, Open: p.open, Place: p.place, Before: p.price()}
	for _, o := range p.open {
		step.After += o.Price
		step.Worst += o.Worst
	}
	byName(step.Remove)
	return step
}

// replace proposes to replace as many of some nodes as the budgets allow, whatever the replacements cost. Those that fit the budgets
// are planned together, so that two of them never count on the same room; where some turn out to be stuck, the next ones take their turn.
//
// Such nodes are not asked whether it pays. So what limits the steps is only the budgets, and the question is how
// to use all of them in one pass: a window as large as budgets allow is asked about together; nodes whose pods have
// no place are set aside with the reason, and the window moves on. Each further answer is planned as if the steps
// taken so far were done: their nodes are gone, and nodes that their pods go to are closed, whose free room is
// known only roughly until those are there.
func (s *search) replace(why replacing, candidates []*Candidate) []*Step {
	var steps []*Step
	left := slices.Clone(candidates)
	gone, closed, landed := map[string]bool{}, union(s.survey.closed, why.closed), maps.Clone(s.survey.closed)
	for range s.survey.settings.Trials {
		left = slices.DeleteFunc(left, func(c *Candidate) bool { return landed[c.Name()] }) // pods of those that were taken go there
		window := s.together(s.ledger.Fits(why.reason, left))
		if len(window) == 0 || s.survey.w.ended() {
			break
		}
		left = slices.DeleteFunc(left, func(c *Candidate) bool { return slices.Contains(window, c) })
		take := func(step *Step) {
			if s.taken.with(step.Remove) || s.survey.awaited.upsetBy(step) || !s.ledger.Take(step.Reason, step.Remove) {
				return
			}
			s.taken.take(step.Remove)
			steps = append(steps, step)
			for _, c := range step.Remove {
				gone[c.Name()] = true
			}
			for _, p := range step.Place {
				closed[p.Node], landed[p.Node] = true, true
			}
		}
		question := engine.Question{Gone: gone, Closed: closed}
		answer := s.whatIf.insist(why.reason, window, question)
		s.taken.next()
		for i := range answer.parts {
			take(why.step(&answer.parts[i]))
		}
		for _, c := range window {
			stuck, refused := answer.refused[c]
			if !refused {
				continue
			}
			step := s.goesFirst(why, c, steps, question)
			if step == nil {
				s.hold(why.reason, c, noPlace(stuck))
				continue
			}
			s.taken.next()
			take(step)
		}
	}
	return steps
}

// hold notes why a node stays that was to be replaced.
func (s *search) hold(reason v1.DisruptionReason, c *Candidate, why Refusal) {
	why.Reason = reason
	s.stuck = append(s.stuck, why.of(c))
}
