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
	// Steering has the nodes whose taint against new pods has to be set (true) or removed (false).
	Steering Steering
	// Next is when something changes by itself at the latest: a protection ends, a setback is over.
	Next time.Time
	Calm bool // there is nothing to do as long as nothing changes
	Idle bool // nothing changed since a pass that found nothing, so this pass did not look; fields but Calm and Next are empty
}

// by makes Next no later than a time. The zero time changes nothing.
func (p *Proposal) by(at time.Time) {
	if !at.IsZero() && at.Before(p.Next) {
		p.Next = at
	}
}

// Propose plans one pass. It returns what to do, and what to remember.
//
// Broken, empty and drifted nodes come before consolidation. They are going to be gone, so consolidation must not count on their room:
// they are gated, which means that they stay in the plan but get no pods.
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
	// Nodes that other steps of this pass remove, or that the next pass will remove (soon), get no pods.
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

// add puts steps into the proposal. Later methods of the pass do not count on the room of their nodes nor on the room that their pods
// get, and do not remove the nodes that these pods go to.
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

// rest returns a new list of the candidates that no step removes so far.
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

// drift adds the steps of drifted nodes, and returns idle ones that have not been vacant for long enough. It notes the pods of the
// steps as moved. For steps of consolidation, Confirm does that.
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

// consolidate adds the steps towards a cheaper fleet, and the changes of taints (Steering). known is false if it did not search although
// the world has changed since the last search, because that was too short a time ago.
func (p *pass) consolidate() (known bool) {
	movers, notes := moversOf(p.rest(p.candidates))
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
		p.memory.search.report(p.out, p.survey.w.Now)
	}
	p.out.Steering = p.search.steer(p.candidates, p.rest(movers), p.memory.avoided)
	return known
}

// searchAnew searches for steps to a cheaper fleet, and remembers for later passes what it found and which nodes new pods should avoid.
//
// If the search tried everything, was held back by no budget and found no step, the target cannot be reached by steps that pay, however
// far away it is. Then the fleet is no longer recovering.
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
	if len(steps) == 0 && p.memory.resume == "" { // everything was tried
		found.sameUntil, found.waitUntil = p.survey.w.Now.Add(sameFor), p.survey.w.Now.Add(betweenSearches)
		p.memory.recovering = p.memory.recovering && len(found.cramped) > 0
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

// heldBack adds to out, by pool, what the steps of the target that were not taken would save in an hour. The saving of a step is shared
// among pools by the price of their nodes. gone are the nodes that steps remove.
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

// exhausted returns, by pool, the reasons for which nodes could go but the budgets allow none now. Reports name only budgets that hold
// something back: a budget of zero over a pool of which no node would go is left out.
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

// remember sets Calm, and makes the next pass over the same world Idle, if this pass found nothing and neither would another one. That is
// not so if budgets held something back, if the search has not tried everything, or if other steps are under way: these may end without a
// change of the cluster.
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
