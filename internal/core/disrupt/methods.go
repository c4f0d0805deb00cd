package disrupt

import (
	"cmp"
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
)

// empties proposes to remove empty nodes, the dearest first, as far as the ledger lets them go now. Each node is a step of its own, so
// that a node that turns out not to be empty keeps no other from going. notes are about nodes of pools that never consolidate; soon are
// the nodes that have not been vacant for long enough.
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

// drifted lists the nodes that no longer are what their pool asks for, sorted by byDrift. soon are idle ones that have not been vacant
// for long enough: they may be about to get the pods that they were opened for.
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

// replaceable reports whether a candidate has drifted and its pods do not keep it from going. With a termination grace period pods do not
// keep it, because the node ends after that time in any case.
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

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// replacing says why nodes are replaced at any price: they have drifted, or are broken.
type replacing struct {
	method Method
	reason v1.DisruptionReason
	closed map[string]bool // nodes that take no pods, in addition to survey.closed
}

var drifting = replacing{method: Drift, reason: v1.DisruptionReasonDrifted}

// step makes a step of a part, with the prices of its openings as the engine planned them.
func (r replacing) step(p *part) *Step {
	step := &Step{Method: r.method, Reason: r.reason, Remove: p.remove, Open: p.open, Place: p.place, Before: p.price()}
	for _, o := range p.open {
		step.After += o.Price
		step.Worst += o.Worst
	}
	byName(step.Remove)
	return step
}

// replace proposes to replace as many of the candidates as the budgets allow, at any price.
//
// The first candidates that fit the budgets (a window) are asked about together, so that no two of them count on the same room. Nodes
// whose pods have no other place go first, without a replacement, if they may (goesFirst); otherwise they are held with the reason, and
// the next window is asked about. Further answers are planned as if the steps taken so far were done: their nodes are gone, and the
// nodes that their pods go to are closed, because the free room there is known only roughly until the pods have arrived.
func (s *search) replace(why replacing, candidates []*Candidate) []*Step {
	var steps []*Step
	left := slices.Clone(candidates)
	gone, closed, landed := map[string]bool{}, union(s.survey.closed, why.closed), maps.Clone(s.survey.closed)
	for range s.survey.settings.Trials {
		left = slices.DeleteFunc(left, func(c *Candidate) bool { return landed[c.Name()] }) // a node stays if pods of a step go to it
		window := s.together(s.ledger.Fits(why.reason, left))
		if len(window) == 0 || s.survey.w.ended() {
			break
		}
		left = slices.DeleteFunc(left, func(c *Candidate) bool { return slices.Contains(window, c) })
		take := func(step *Step) { // unless it has to wait for the next pass
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

// hold notes why a node stays that should be replaced.
func (s *search) hold(reason v1.DisruptionReason, c *Candidate, why Refusal) {
	why.Reason = reason
	s.stuck = append(s.stuck, why.of(c))
}
