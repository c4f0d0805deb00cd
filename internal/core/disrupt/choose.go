package disrupt

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// mostAtOnce bounds the nodes of one step. All openings of a step must be ready before any of its nodes goes, so a step of the whole
// fleet would wait for its slowest machine.
const mostAtOnce = 100

// A choice collects the consolidation steps of one pass.
//
// Invariant: the steps share no node, none removes a node on which another places pods, and the ledger has room for all of them, now or
// later. Only take adds steps, and it checks this, so the code that finds steps need not.
type choice struct {
	survey   *survey
	whatIf   *whatIf
	search   *search
	goal     target
	toll     toll
	steps    []*Step
	saved    cloud.NanoUSD
	gone     map[string]bool // nodes that the steps remove
	promised map[string]bool // nodes whose room the steps use
}

// pays reports whether a step is worth the pods that it moves.
func (c *choice) pays(step *Step) bool {
	return step.Gains().Dollars() >= c.perMove()*step.moves()
}

// perMove returns what a step must gain now for each pod that it moves, in dollars an hour.
func (c *choice) perMove() float64 { return c.toll.at(c.distance()) }

// distance returns how much dearer than its target the fleet will be after the steps taken so far, as a part of its price. It shrinks
// with each step, so the toll may grow from nothing at the first step to its full amount at the last.
func (c *choice) distance() float64 {
	return float64(c.goal.before-c.goal.after-c.saved) / float64(max(1, c.goal.before))
}

// take adds a step if it is worth its moves and goes together with the steps taken so far, and reports whether it did. It notes a step
// that is not worth its moves. A step that budgets make wait has to pay the full toll (at distance 0), because a better one may be found
// until its turn.
func (c *choice) take(step *Step) bool {
	for _, r := range step.Remove {
		if c.gone[r.Name()] || c.promised[r.Name()] {
			return false
		}
	}
	for _, p := range step.Place {
		if c.gone[p.Node] {
			return false
		}
	}
	if !c.pays(step) {
		c.search.note(Refusal{Code: TooManyMoves, Have: step.Gains().Dollars() / step.moves(), Need: c.perMove()}, step.Remove...)
		return false
	}
	if n := step.restarts(); n > 0 && step.Gains().Dollars() < c.survey.settings.RestartSaving*float64(n) {
		c.search.note(Refusal{Code: TooManyRestarts, Have: step.Gains().Dollars() / float64(n), Need: c.survey.settings.RestartSaving},
			step.Remove...)
		return false
	}
	if !c.search.ledger.Fit(step.Reason, step.Remove) && step.Gains().Dollars() < c.toll.at(0)*step.moves() ||
		!c.search.ledger.Plan(step.Reason, step.Remove) {
		return false
	}
	for _, r := range step.Remove {
		c.gone[r.Name()] = true
	}
	for _, p := range step.Place {
		c.promised[p.Node] = true
	}
	c.steps = append(c.steps, step)
	c.saved += step.Saves()
	return true
}

// eligible reports whether a candidate can still be part of a step. It saves plans: if even the whole price of a node would not pay for
// moving its pods, the engine need not be asked.
func (c *choice) eligible(r *Candidate) bool {
	hopeful := r.Price.Dollars() >= c.perMove()*r.moves() // no step saves more than the price of what goes
	return hopeful && !c.gone[r.Name()] && !c.promised[r.Name()] && c.search.ledger.Left(r.Pool.Name, v1.DisruptionReasonUnderutilized) > 0
}

// allEligible returns a new list of the eligible candidates.
func (c *choice) allEligible(candidates []*Candidate) []*Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(r *Candidate) bool { return !c.eligible(r) })
}

// try asks what the removal of some nodes would save beside the steps taken so far, takes the steps that are worth it, and reports
// whether there were any. Nodes of avoid get no pods, because they are to go as well. It uses the engine's first answer (FirstFit),
// because many such questions are asked, and a longer search hardly ever finds a better answer for a few nodes.
func (c *choice) try(remove []*Candidate, avoid map[string]bool) bool {
	found := false
	for _, step := range c.search.weigh(remove, engine.Question{Gone: c.gone, Closed: union(c.promised, avoid),
		Settings: engine.Settings{FirstFit: true}}) {
		found = c.take(step) || found
	}
	return found
}

// run searches for consolidation steps, and returns them with the target that it found. It changes m: where the next pass goes on, and
// whether the fleet is recovering.
//
// It searches in four widths:
//  1. The steps that lead to the target, the cheapest fleet. Those that cannot be taken leave their nodes doomed.
//  2. Sets of doomed nodes that fit the budgets. No pods are put on doomed nodes, since these go later.
//  3. Sets of all candidates, which finds what the target did not.
//  4. One node at a time, from where the last pass stopped.
//
// If all steps of the target were taken, the other widths are left out: the fleet is about to change, and is judged better afterwards.
func (s *search) run(candidates []*Candidate, m *Memory) (steps []*Step, goal target) {
	order, perPod := s.byWaste(candidates)
	goal = s.target(order)
	c := &choice{survey: s.survey, whatIf: s.whatIf, search: s, goal: goal, toll: s.tollOf(perPod, m),
		gone: map[string]bool{}, promised: map[string]bool{}}
	c.toll.updateRecovering(c.distance())
	m.recovering = c.toll.recovering

	doomed := map[string]bool{}
	for _, step := range goal.steps {
		if len(step.Remove) <= mostAtOnce && c.take(step) {
			continue
		}
		for _, r := range step.Remove {
			doomed[r.Name()] = true
		}
	}
	if len(doomed) == 0 && len(c.steps) > 0 {
		m.resume = ""
	} else {
		c.windows(slices.DeleteFunc(slices.Clone(order), func(r *Candidate) bool { return !doomed[r.Name()] }), doomed)
		c.windows(order, nil)
		m.resume = c.singles(order, m)
	}
	if len(c.steps) > 0 || m.resume == "" {
		m.weighed = 0
	}
	return c.steps, goal
}

// tollOf returns the toll of this pass, in which an average pod costs perPod dollars an hour. Rates are read once for a pass: what the
// pass itself moves does not count against its later steps, because all of them are judged against the same fleet.
func (s *search) tollOf(perPod float64, m *Memory) toll {
	return toll{settings: s.survey.settings, perPod: perPod, rates: m.churn.measure(s.survey.w.Snap, s.survey.w.Now),
		recovering: m.recovering}
}

// windows tries candidates in sets (windows) as large as the budgets allow. If a set gives no step, its front half is tried, and so on:
// candidates are sorted by waste, so the front half is the one more likely to pay. Nodes of avoid get no pods.
//
// Half of the trials are kept for single nodes. Otherwise a large fleet would spend all of them on sets that do not pay.
func (c *choice) windows(candidates []*Candidate, avoid map[string]bool) {
	left := c.allEligible(candidates)
	for len(left) > 1 && c.search.trials < c.survey.settings.Trials/2 && !c.survey.w.ended() { // singles tries sets of one
		window := c.search.ledger.Fits(v1.DisruptionReasonUnderutilized, left)
		window = window[:min(len(window), mostAtOnce)]
		if len(window) < 2 {
			return
		}
		for size := len(window); size > 1 && c.search.trials < c.survey.settings.Trials/2; size /= 2 {
			if c.try(window[:size], avoid) {
				break
			}
		}
		// Candidates before the end of the window that are not in it belong to pools whose budgets are used up: they are dropped too.
		last := window[len(window)-1]
		left = c.allEligible(slices.DeleteFunc(left[slices.Index(left, last)+1:],
			func(r *Candidate) bool { return slices.Contains(window, r) }))
	}
}

// singles tries candidates one at a time, beginning with the one at which the last pass stopped (m.resume). It returns the one at which
// the next pass has to begin, or "" if all have been tried since a pass last found a step. m.weighed counts these; run sets it back to 0.
//
// A count is used, and not the node at which the round began: candidates are sorted by waste, so they change places from pass to pass,
// and that node may be gone. A node may be missed this way, and is tried in the next round.
func (c *choice) singles(order []*Candidate, m *Memory) (resume string) {
	start := max(0, slices.IndexFunc(order, func(r *Candidate) bool { return r.Name() == m.resume }))
	for i := range len(order) - min(m.weighed, len(order)) {
		r := order[(start+i)%len(order)]
		if c.search.trials >= c.survey.settings.Trials || c.survey.w.ended() {
			m.weighed += i
			return r.Name()
		}
		if c.eligible(r) {
			c.try([]*Candidate{r}, nil)
		}
	}
	return ""
}
