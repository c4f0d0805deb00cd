package disrupt

import (
	"context"
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// mostAtOnce bounds the nodes of one step: its openings must all be ready before any of its nodes goes, so a step of the
// whole fleet would hang on its slowest machine.
const mostAtOnce = 100

// A choice collects the steps of one pass: they share no node, none counts on room that another has promised or removes,
// and together they fit the budgets.
type choice struct {
	*search
	goal     target
	steps    []*Step
	saved    cloud.NanoUSD
	perPod   float64         // what a pod is worth in an hour, on average
	gone     map[string]bool // nodes that the steps remove
	promised map[string]bool // nodes whose room the steps use
}

func newChoice(s *search, goal target, perPod float64) *choice {
	c := &choice{search: s, goal: goal, perPod: perPod, gone: map[string]bool{}, promised: map[string]bool{}}
	s.adrift = c.far() > 2*s.w.Settings.Slack || s.adrift && c.far() > returned*s.w.Settings.Slack
	return c
}

// returned is the part of Slack within which a fleet is near its target again that was so far from it that moving pods cost nothing:
// the work is half done then, and ends closer to the target than what pods that come and go are allowed to do to a fleet.
const returned = 2.0 / 3

// pays tells whether a step is worth the pods that it moves.
func (c *choice) pays(step *Step) bool {
	return step.Gains().Dollars() >= c.toll()*step.moves()
}

// toll is what a step must save in an hour for each pod that it moves: what an average pod costs, in a cluster whose
// pods come and go, and less in a calm one. Where the fleet is far from its target it falls, to nothing at last.
func (c *choice) toll() float64 {
	slack, unrest := c.w.Settings.Slack, c.unrest
	if c.adrift { // what was moved on the way here does not speak against the rest of the way
		slack, unrest = returned*slack, min(1, unrest)
	}
	distance := min(1, max(0, 2-c.far()/slack))
	return distance * unrest * c.w.Settings.Toll * c.perPod
}

// moves is how much the pods mind that a step moves, an ordinary one as much as 1.
func (s *Step) moves() float64 { return s.Cost() - float64(len(s.Remove)) }

func (c *Candidate) moves() float64 { return c.Cost - 1 }

// far is how much dearer the fleet is than its target, as a part of its price.
func (c *choice) far() float64 {
	return float64(c.goal.before-c.goal.after-c.saved) / float64(max(1, c.goal.before))
}

// take adds a step, if it goes together with those that were taken.
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
		c.note(Refusal{Code: TooManyMoves, Have: step.Gains().Dollars() / step.moves(), Need: c.toll()}, step.Remove...)
		return false
	}
	if !c.ledger.Take(step.Reason, step.Remove) {
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

// open tells whether a candidate can still be part of a step.
func (c *choice) open(r *Candidate) bool {
	hopeful := r.Price.Dollars() >= c.toll()*r.moves() // no step saves more than the price of what goes
	return hopeful && !c.gone[r.Name()] && !c.promised[r.Name()] && c.ledger.Left(r.Pool.Name, v1.DisruptionReasonUnderutilized) > 0
}

func (c *choice) openOnes(candidates []*Candidate) []*Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(r *Candidate) bool { return !c.open(r) })
}

// try weighs the removal of some nodes beside what was taken already, takes what is worth it, and tells whether anything was.
// Nodes of avoid get no pods, because they are to go as well. Many such questions are asked, so the engine's first answer has to do: for a
// few nodes it is hardly ever bettered.
func (c *choice) try(ctx context.Context, remove []*Candidate, avoid map[string]bool) bool {
	closed := maps.Clone(c.promised)
	maps.Copy(closed, avoid)
	found := false
	for _, step := range c.weigh(ctx, remove, engine.Question{Gone: maps.Clone(c.gone), Closed: closed, Settings: engine.Settings{FirstFit: true}}) {
		found = c.take(step) || found
	}
	return found
}

// run searches for steps: those of the cheapest fleet that fit, then parts of the way there as large as budgets allow, then
// whatever else is worth it, and at last single nodes from resume on. next is where the next pass goes on, "" if this one
// looked at everything.
func (s *search) run(ctx context.Context, candidates []*Candidate, resume string) (steps []*Step, goal target, next string) {
	order, perPod := s.byWaste(candidates)
	goal = s.target(ctx, order)
	c := newChoice(s, goal, perPod)

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
		return c.steps, goal, ""
	}
	c.windows(ctx, slices.DeleteFunc(slices.Clone(order), func(r *Candidate) bool { return !doomed[r.Name()] }), doomed)
	c.windows(ctx, order, nil)
	return c.steps, goal, c.singles(ctx, order, resume)
}

// windows walks candidates in sets as large as the budgets allow; a set that is worth nothing is tried again by halves.
func (c *choice) windows(ctx context.Context, candidates []*Candidate, avoid map[string]bool) {
	left := c.openOnes(candidates)
	for len(left) > 1 && c.trials < c.w.Settings.Trials/2 && ctx.Err() == nil {
		window := c.ledger.Fits(v1.DisruptionReasonUnderutilized, left)
		window = window[:min(len(window), mostAtOnce)]
		if len(window) < 2 {
			return
		}
		for size := len(window); size > 1 && c.trials < c.w.Settings.Trials/2; size /= 2 {
			if c.try(ctx, window[:size], avoid) {
				break
			}
		}
		last := window[len(window)-1]
		left = c.openOnes(slices.DeleteFunc(left[slices.Index(left, last)+1:], func(r *Candidate) bool { return slices.Contains(window, r) }))
	}
}

// singles weighs candidates one at a time, from the one named resume on, and returns where to go on next time, "" once it has come
// round to where the first of the passes that found nothing began.
func (c *choice) singles(ctx context.Context, order []*Candidate, resume string) string {
	start := max(0, slices.IndexFunc(order, func(r *Candidate) bool { return r.Name() == resume }))
	for i := range len(order) - min(c.looked, len(order)) {
		r := order[(start+i)%len(order)]
		if c.trials >= c.w.Settings.Trials || ctx.Err() != nil {
			c.looked += i
			return r.Name()
		}
		if c.open(r) {
			c.try(ctx, []*Candidate{r}, nil)
		}
	}
	return ""
}
