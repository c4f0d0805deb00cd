package disrupt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A Proposal is the outcome of one pass.
type Proposal struct {
	Steps    []*Step
	Blocks   []Refusal // nodes that may not be removed
	Notes    []Refusal // nodes that could be removed, but are better kept
	Rejected []*Step   // moves that pools with policy Balanced do not want, to be counted
	Eligible map[Method]int
	Counts   map[string]*PoolCount
	Budgets  map[string][]v1.DisruptionReason // pools whose budgets allow nothing now, although there is something to do
	// Before is what everything that may move costs, Target what the cheapest fleet found for it would, and HeldBack
	// the part of the difference that budgets hold back now, by pool.
	Before, Target cloud.NanoUSD
	HeldBack       map[string]cloud.NanoUSD
	// Steering says where the taint that keeps new pods off a node is not as it should be.
	Steering Steering
	// Next is when something changes by itself at the latest: a protection ends, a setback is over.
	Next time.Time
	Calm bool // there is nothing to do as long as nothing changes
	Idle bool // nothing changed since a pass that found nothing; the other fields are empty
}

// by makes Next no later than a time, zero for none.
func (p *Proposal) by(at time.Time) {
	if !at.IsZero() && at.Before(p.Next) {
		p.Next = at
	}
}

// Propose plans one pass. It returns what to do, and what to remember.
//
// What goes by itself comes before what is searched for. A node that is empty or drifts is going to be gone, so consolidation must not
// count on its room, nor ask whether it could be replaced: it is gated, which leaves it standing but gives it nothing.
func Propose(w *World, m Memory) (*Proposal, Memory) {
	if m.pass.same(w) {
		return &Proposal{Calm: true, Idle: true, Next: m.pass.until}, m
	}
	s := surveyOf(w).search()
	p := &pass{survey: s.survey, whatIf: s.whatIf, search: s, memory: m, gone: map[*Candidate]bool{},
		lands: map[string]bool{}, out: &Proposal{
			Blocks: s.survey.blocks(), Eligible: map[Method]int{}, Counts: s.ledger.counts, HeldBack: map[string]cloud.NanoUSD{},
			Next: w.Now.Add(sameFor),
		}}
	candidates := s.survey.candidates()
	p.memory.forget(candidates, w.Now)
	p.candidates = p.rested(candidates)
	p.repair()
	soon := p.empty()
	soon = append(soon, p.drift()...)
	slices.SortFunc(p.search.stuck, func(a, b Refusal) int { return cmp.Compare(a.Node, b.Node) })
	p.out.Blocks = append(p.out.Blocks, p.search.stuck...)
	for _, c := range soon {
		p.out.by(s.survey.vacant(c))
	}
	// Nodes that other steps of this pass remove, or those of the next, are no room for anybody.
	s.whatIf.gate(slices.Collect(maps.Keys(p.gone)))
	s.whatIf.gate(soon)
	known := p.consolidate()
	p.out.Rejected = s.rejected
	for c, why := range s.notes {
		if !p.gone[c] {
			p.out.Notes = append(p.out.Notes, why)
		}
	}
	slices.SortStableFunc(p.out.Notes, func(a, b Refusal) int { return cmp.Compare(a.Node, b.Node) })
	p.out.Budgets = p.exhausted()
	p.remember(known)
	return p.out, p.memory
}

// A pass is a proposal in the making.
type pass struct {
	survey     *survey
	whatIf     *whatIf
	search     *search
	candidates []*Candidate
	gone       map[*Candidate]bool // removed by the steps so far
	lands      map[string]bool     // nodes that pods of these steps go to
	out        *Proposal
	memory     Memory
}

// rested leaves out nodes whose last step failed a short while ago.
func (p *pass) rested(candidates []*Candidate) []*Candidate {
	return slices.DeleteFunc(candidates, func(c *Candidate) bool {
		until, held := p.memory.held(c, p.survey.w.Now)
		if held {
			p.out.by(until)
		}
		return held
	})
}

// add takes steps. Those that are planned after them count neither on the room of what goes nor on that where its
// pods go, and leave the nodes there that these go to.
func (p *pass) add(steps []*Step) {
	for _, step := range steps {
		for _, c := range step.Remove {
			p.gone[c], p.survey.closed[c.Name()] = true, true
		}
		p.whatIf.kept = append(p.whatIf.kept, step.Place...)
		for _, place := range step.Place {
			p.lands[place.Node] = true
		}
	}
	p.out.Steps = append(p.out.Steps, steps...)
}

// rest are the candidates that no step removes so far.
func (p *pass) rest(of []*Candidate) []*Candidate {
	return slices.DeleteFunc(slices.Clone(of), func(c *Candidate) bool { return p.gone[c] })
}

// empty adds the steps of empty nodes, and returns those that have not been vacant for long enough.
func (p *pass) empty() (soon []*Candidate) {
	steps, notes, soon := p.survey.empties(p.candidates, p.search.ledger)
	for _, c := range p.candidates {
		if c.Empty() && c.Consolidatable && !c.Static() && c.Held == nil {
			p.out.Eligible[Emptiness]++
		}
	}
	p.out.Notes = append(p.out.Notes, notes...)
	p.add(steps)
	return soon
}

// drift adds the steps of drifted nodes, and returns those that have not been vacant for long enough.
func (p *pass) drift() (soon []*Candidate) {
	drift, soon := p.survey.drifted(p.rest(p.candidates))
	drift = p.withoutHeldRollouts(p.withoutRecurring(drift))
	static := slices.DeleteFunc(slices.Clone(drift), func(c *Candidate) bool { return !c.Static() })
	drift = slices.DeleteFunc(drift, (*Candidate).Static)
	p.out.Eligible[Drift] = len(drift)
	steps := append(p.search.replace(drifting, drift), p.search.replaceStatic(drifting, static)...)
	for _, step := range steps {
		p.memory.churn = p.memory.churn.leaves(step, p.survey.w.Now)
	}
	p.add(steps)
	return soon
}

// repair adds the steps of broken nodes. Nodes with a fault that is not due yet make the next pass come in time.
func (p *pass) repair() {
	broken, stay := p.survey.broken()
	p.out.Blocks = append(stay, p.out.Blocks...)
	broken = p.rested(broken)
	p.out.Eligible[Repair] = len(broken)
	for _, c := range p.survey.rows {
		if c.Fault != nil && c.Fault.Due.After(p.survey.w.Now) {
			p.out.by(c.Fault.Due)
		}
	}
	if len(broken) == 0 {
		return
	}
	p.whatIf.gate(broken)
	steps := p.search.repairs(broken)
	for _, step := range steps {
		p.memory.churn = p.memory.churn.leaves(step, p.survey.w.Now)
	}
	p.add(steps)
	// A step has a copy of its candidate, with more pods.
	for _, c := range p.candidates {
		if p.survey.closed[c.Name()] && slices.ContainsFunc(steps, func(s *Step) bool { return s.removes(c) }) {
			p.gone[c] = true
		}
	}
}

// consolidate adds the steps towards a cheaper fleet, and reports whether it is known that there are no others.
func (p *pass) consolidate() (known bool) {
	movers, notes := movers(p.rest(p.candidates))
	movers = slices.DeleteFunc(movers, func(c *Candidate) bool { return c.Drifted != nil || p.lands[c.Name()] })
	movers = slices.DeleteFunc(movers, func(c *Candidate) bool { return p.survey.w.Rollouts[c.Pool.Name].Still })
	p.out.Eligible[MultiNode], p.out.Eligible[SingleNode] = len(movers), len(movers)
	p.out.Notes = append(p.out.Notes, notes...)
	known = true
	if len(movers) == 0 || len(p.whatIf.openable) == 0 {
		p.memory.resume, p.memory.weighed = "", 0
	} else {
		world := p.search.fingerprint(movers)
		switch p.memory.search.verdict(world, p.search.ledger, p.survey.w.Now) {
		case searchAnew:
			p.add(p.searchAnew(movers, world))
		case waitFirst:
			known = false
		}
		p.memory.search.tell(p.out, p.survey.w.Now)
	}
	p.out.Steering = p.search.steer(p.candidates, p.rest(movers), p.memory.avoided)
	return known
}

// searchAnew searches for a cheaper fleet and remembers what it learned of it.
//
// That a fleet is recovering ends here when it is as good as it can get: a search that has been everywhere, was held back by no budget and
// found nothing is proof that the target cannot be reached by steps that pay, however far away it is.
func (p *pass) searchAnew(movers []*Candidate, world fingerprint) []*Step {
	found := lastSearch{world: world, cramped: p.search.ledger.cramped(v1.DisruptionReasonUnderutilized),
		heldBack: map[string]cloud.NanoUSD{}}
	steps, goal := p.search.run(movers, &p.memory)
	taken := maps.Clone(p.gone)
	for _, step := range steps {
		for _, c := range step.Remove {
			taken[c] = true
		}
	}
	found.before, found.target = goal.before, goal.after
	heldBack(found.heldBack, goal, taken)
	if len(steps) == 0 && p.memory.resume == "" {
		found.sameUntil, found.waitUntil = p.survey.w.Now.Add(sameFor), p.survey.w.Now.Add(betweenSearches)
		p.memory.recovering = p.memory.recovering && len(found.cramped) > 0 // no way leads nearer
	}
	part := mostAvoided
	if p.memory.recovering {
		part = mostLeft
	}
	p.memory.avoided = avoid(slices.DeleteFunc(slices.Clone(movers), func(c *Candidate) bool { return taken[c] }),
		p.search.wasted, goal, part)
	p.memory.search = found
	return steps
}

// heldBack shares out what the target would save beyond the steps that fit.
//
// It is shared among pools by the price of the nodes that would have gone: what the user who set a budget pays for it in an hour.
func heldBack(out map[string]cloud.NanoUSD, goal target, gone map[*Candidate]bool) {
	for _, step := range goal.steps {
		if slices.ContainsFunc(step.Remove, func(c *Candidate) bool { return gone[c] }) {
			continue
		}
		for _, c := range step.Remove {
			out[c.Pool.Name] += cloud.NanoUSD(float64(step.Saves()) * float64(c.Price) / float64(max(1, step.Before)))
		}
	}
}

// exhausted names the pools that have something to do for a reason whose budget allows nothing.
//
// Reports name only budgets that keep something from happening. A budget of zero over a pool in which nothing wants to go holds
// nothing back.
func (p *pass) exhausted() map[string][]v1.DisruptionReason {
	out := map[string][]v1.DisruptionReason{}
	for _, c := range p.rest(p.candidates) {
		reason := v1.DisruptionReasonUnderutilized
		switch {
		case c.due(p.survey):
			reason = v1.DisruptionReasonUnhealthy
		case c.Drifted != nil:
			reason = v1.DisruptionReasonDrifted
		case !c.Consolidatable:
			continue
		case c.Empty():
			reason = v1.DisruptionReasonEmpty
		}
		pool := c.Pool.Name
		if p.search.ledger.Spent(pool, reason) && p.search.ledger.counts[pool].Nodes > 0 && !slices.Contains(out[pool], reason) {
			out[pool] = append(out[pool], reason)
			slices.Sort(out[pool])
		}
	}
	return out
}

// remember notes that there was nothing to do, unless the pass was constrained by budgets, not finished, or not shown nodes whose
// steps are still open: those end without a change of the cluster.
//
// Calm is a promise: a pass over the same world finds the same nothing. So everything that could make the next one differ without a change
// of the world forbids it, most of all a search that has not been everywhere yet.
func (p *pass) remember(known bool) {
	for _, b := range p.out.Blocks {
		p.out.by(b.Until)
	}
	p.memory.pass = lastPass{}
	if len(p.out.Steps)+len(p.out.Steering)+len(p.out.Budgets) > 0 || !known || p.memory.resume != "" ||
		len(p.survey.w.Busy)+len(p.survey.w.Landing) > 0 {
		return
	}
	p.out.Calm = true
	p.memory.pass = lastPass{news: p.survey.w.Snap.News(), catalogs: catalogsOf(p.survey.w), until: p.out.Next,
		surge: p.survey.w.SurgeTurn}
}
