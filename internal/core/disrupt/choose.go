package disrupt

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// mostAtOnce bounds the nodes of one step: its openings must all be ready before any of its nodes goes, so a step of the
// whole fleet would hang on its slowest machine.
const mostAtOnce = 100

// A choice collects the steps of one pass: they share no node, none counts on room that another has promised or removes,
// and together they fit what budgets let be planned for.
//
// Invariant: the steps taken are disjoint in what they remove, none removes what another places pods on, and the ledger has room for all
// of them, each at its turn. take is the only place that adds one, and it checks exactly that; whatever finds steps needs not care.
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

// perMove is what each pod that a step moves must save now, in dollars an hour.
func (c *choice) perMove() float64 { return c.toll.at(c.distance()) }

// distance is how much dearer the fleet is than its target, as a part of its price.
//
// It shrinks as steps are taken: each one makes the next a little harder to justify, and the last ones of a pass have to pay the full
// toll, though the first were free.
func (c *choice) distance() float64 {
	return float64(c.goal.before-c.goal.after-c.saved) / float64(max(1, c.goal.before))
}

// take adds a step, if it goes together with those that were taken. A step that can only wait for its turn has to
// pay the full toll, however far the target is: a better one may be found until then.
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

// open reports whether a candidate can still be part of a step.
//
// It is asked before a question is, which costs a plan: if even the whole price of a node would not pay for moving its pods now, no answer
// can.
func (c *choice) open(r *Candidate) bool {
	hopeful := r.Price.Dollars() >= c.perMove()*r.moves() // no step saves more than the price of what goes
	return hopeful && !c.gone[r.Name()] && !c.promised[r.Name()] && c.search.ledger.Left(r.Pool.Name, v1.DisruptionReasonUnderutilized) > 0
}

func (c *choice) openOnes(candidates []*Candidate) []*Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(r *Candidate) bool { return !c.open(r) })
}

// try weighs the removal of some nodes beside what was taken already, takes what is worth it, and reports whether anything was.
// Nodes of avoid get no pods, because they are to go as well. Many such questions are asked, so the engine's first answer has to do: for a
// few nodes it is hardly ever bettered.
func (c *choice) try(remove []*Candidate, avoid map[string]bool) bool {
	found := false
	for _, step := range c.search.weigh(remove, engine.Question{Gone: c.gone, Closed: union(c.promised, avoid),
		Settings: engine.Settings{FirstFit: true}}) {
		found = c.take(step) || found
	}
	return found
}

// run searches for steps: those of the cheapest fleet that fit, then parts of the way there as large as budgets allow, then
// whatever else is worth it, and at last single nodes from where the last pass stopped.
//
// It is a search in four widths. The target says how cheap the fleet could be at all; its steps are taken as they are where budgets allow.
// Where they do not, because one step of the target is larger than what may go at a time, a part of it is looked for: the same doomed
// nodes, in sets that fit, kept off each other so that none is emptied onto a node that goes tomorrow. Then sets of all nodes, which finds
// what the target did not see. And at last one node at a time, which finds little in a fleet that is nearly right, but all that there is,
// given time: where a pass stops, the next one goes on.
//
// A pass that took all steps of its target and left none doomed needs none of the other widths: the fleet is going to be another one, and
// whatever it still lacks is seen better then.
func (s *search) run(candidates []*Candidate, m *Memory) (steps []*Step, goal target) {
	order, perPod := s.byWaste(candidates)
	goal = s.target(order)
	c := &choice{survey: s.survey, whatIf: s.whatIf, search: s, goal: goal, toll: s.tollOf(perPod, m),
		gone: map[string]bool{}, promised: map[string]bool{}}
	c.toll.look(c.distance())
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

// tollOf is the toll in this world, of pods that cost so much each.
//
// Rates are read once for a pass. What the pass itself moves does not speak against its later steps, because those were weighed against
// the same fleet.
func (s *search) tollOf(perPod float64, m *Memory) toll {
	return toll{settings: s.survey.settings, perPod: perPod, rates: m.churn.rates(s.survey.w.Snap, s.survey.w.Now),
		recovering: m.recovering}
}

// windows walks candidates in sets as large as the budgets allow; a set that is worth nothing is tried again by halves.
//
// Halving what does not pay finds the part that does, if the dearest come first: order is by waste, so the front half of a window is the
// half more likely to be worth it. Half of all trials are kept for single nodes, or a large fleet would spend all of them on sets that it
// cannot move.
func (c *choice) windows(candidates []*Candidate, avoid map[string]bool) {
	left := c.openOnes(candidates)
	for len(left) > 1 && c.search.trials < c.survey.settings.Trials/2 && !c.survey.w.ended() { // a set of one is the affair of singles
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
		// What lies before the end of the window and is not in it belongs to pools whose budgets are used up.
		last := window[len(window)-1]
		left = c.openOnes(slices.DeleteFunc(left[slices.Index(left, last)+1:],
			func(r *Candidate) bool { return slices.Contains(window, r) }))
	}
}

// singles weighs candidates one at a time, from the one on that the last pass stopped at, and returns where to go on next time, "" once it
// has come round to where the first of the passes that found nothing began.
//
// How far it has come is counted and not read off the node at which it began: order is by waste, so nodes change places from pass to pass,
// and the one at which it began may be gone. A node may be missed that way, and is met in the next round.
func (c *choice) singles(order []*Candidate, m *Memory) (resume string) {
	start := max(0, slices.IndexFunc(order, func(r *Candidate) bool { return r.Name() == m.resume }))
	for i := range len(order) - min(m.weighed, len(order)) {
		r := order[(start+i)%len(order)]
		if c.search.trials >= c.survey.settings.Trials || c.survey.w.ended() {
			m.weighed += i
			return r.Name()
		}
		if c.open(r) {
			c.try([]*Candidate{r}, nil)
		}
	}
	return ""
}
