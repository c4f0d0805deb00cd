package disrupt

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// WhyStays returns everything that keeps a node (the name of its row) where it is now: first what keeps it from going for any reason,
// then what keeps it from going because it is empty, drifted or too dear. It asks what a pass would ask if this were the only node, and
// knows of earlier passes what m remembers. It returns nothing for a node that the next pass removes.
//
// docs/disruption.md lists all of these. What stops the whole loop is not covered: a snapshot that is no longer updated, and the second
// look at a step after its delay.
func WhyStays(w *World, m Memory, node string) []Refusal {
	s := surveyOf(w).search()
	at := slices.IndexFunc(s.survey.rows, func(c *Candidate) bool { return c.Name() == node })
	if at < 0 {
		return []Refusal{{Code: NotOurs, Node: node}}
	}
	c := s.survey.rows[at]
	x := &explanation{survey: s.survey, whatIf: s.whatIf, search: s, memory: &m, of: c}
	if s.survey.busy(c) {
		x.add(Refusal{Code: InStep})
	}
	if until, held := m.held(c, w.Now); held {
		x.add(Refusal{Code: Setback, Until: until})
	}
	for _, block := range []*Refusal{c.Block, c.Held} {
		if block != nil {
			x.out = append(x.out, *block)
		}
	}
	if c.Pool == nil || c.Block != nil && c.Block.Code.Passes() {
		return x.out // the node is not ready to be judged yet, or is going already
	}
	switch {
	case c.Drifted != nil:
		x.whyDrifted()
	case c.Empty():
		x.whyEmpty()
	default:
		x.whyDear()
	}
	return x.out
}

// An explanation collects what WhyStays finds about one node.
type explanation struct {
	survey *survey
	whatIf *whatIf
	search *search
	memory *Memory
	of     *Candidate
	out    []Refusal
}

// add adds a refusal of the node.
func (x *explanation) add(why Refusal) { x.out = append(x.out, why.of(x.of)) }

// budget adds a refusal if a budget of the pool does not parse or lets no node go for the reason now.
func (x *explanation) budget(reason v1.DisruptionReason) {
	pool := x.of.Pool.Name
	switch {
	case x.search.ledger.counts[pool].Err != nil:
		x.add(Refusal{Code: BudgetUnread, Name: pool, Value: x.search.ledger.counts[pool].Err.Error()})
	case x.search.ledger.Spent(pool, reason):
		x.add(Refusal{Code: Budget, Reason: reason, Name: pool, Need: 1})
	}
}

// quiet adds a refusal if a pod came or went less than consolidateAfter ago.
func (x *explanation) quiet(reason v1.DisruptionReason) {
	if !x.of.Consolidatable {
		until := lifecycle.Consolidatable(x.of.Node.Claim.DeepCopy(), x.of.Pool, x.survey.w.Now)
		x.add(Refusal{Code: Settling, Reason: reason, Name: x.of.Pool.Name, Until: until})
	}
}

// vacated adds a refusal if the node has been vacant for less than leastVacancy.
func (x *explanation) vacated(reason v1.DisruptionReason) {
	if at := x.survey.vacant(x.of); at.After(x.survey.w.Now) {
		x.add(Refusal{Code: JustVacated, Reason: reason, Until: at})
	}
}

// whyEmpty adds what keeps an empty node. Nothing else is asked if it may never go because it is empty.
func (x *explanation) whyEmpty() {
	reason, pool := v1.DisruptionReasonEmpty, x.of.Pool
	switch {
	case x.of.Static():
		x.add(Refusal{Code: FixedNodes, Reason: reason, Name: pool.Name})
		return
	case x.of.unconsolidated():
		x.add(Refusal{Code: DoNotConsolidate, Reason: reason, Name: v1.DoNotConsolidateAnnotationKey})
		return
	case pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
		x.add(Refusal{Code: ConsolidateNever, Reason: reason, Name: pool.Name})
		return
	}
	x.quiet(reason)
	x.vacated(reason)
	x.budget(reason)
}

// whyDrifted adds what keeps a drifted node, and asks the engine for a replacement.
func (x *explanation) whyDrifted() {
	reason := v1.DisruptionReasonDrifted
	if why, held := x.survey.heldByRollout(x.of, reason); held {
		x.add(why)
	}
	if x.of.idle() && !x.of.Static() {
		x.vacated(reason)
	}
	x.budget(reason)
	if x.of.Static() {
		x.search.replaceStatic(drifting, []*Candidate{x.of})
	} else {
		answer := x.whatIf.insist(reason, []*Candidate{x.of}, engine.Question{Closed: x.survey.closed})
		for c, stuck := range answer.refused {
			x.search.hold(reason, c, noPlace(stuck))
		}
	}
	x.out = append(x.out, x.search.stuck...)
}

// whyDear adds what keeps consolidation from removing the node. It asks the engine about this node alone, as the last width of a search
// does (choice.singles), without regard to trials and to other steps of a pass. So a node for which it finds nothing goes in one of the
// next passes, unless a better step is found.
func (x *explanation) whyDear() {
	reason := v1.DisruptionReasonUnderutilized
	if x.of.Static() {
		x.add(Refusal{Code: FixedNodes, Reason: reason, Name: x.of.Pool.Name})
		return
	}
	if len(x.of.Pods) == 0 {
		x.add(Refusal{Code: FeedsBuffer, Reason: reason, Name: x.of.buffersOf()})
	}
	if why, _ := consolidates(x.of); why.Code != "" {
		if why.Code != FeedsBuffer { // which was added above
			x.out = append(x.out, why)
		}
		return
	}
	if why, held := x.survey.heldByRollout(x.of, reason); held {
		x.add(why)
	}
	x.quiet(reason)
	x.budget(reason)
	candidates := x.survey.candidates()
	steps, _, soon := x.survey.empties(candidates, x.survey.ledger())
	for _, step := range steps {
		x.whatIf.gate(step.Remove)
	}
	x.whatIf.gate(soon)
	found := x.search.weigh([]*Candidate{x.of}, engine.Question{})
	if len(found) == 0 {
		if why, noted := x.search.notes[x.of]; noted {
			x.out = append(x.out, why)
		}
		return
	}
	movers, _ := moversOf(candidates)
	if perMove := x.toll(movers); found[0].Gains().Dollars() < perMove*found[0].moves() {
		x.add(Refusal{Code: TooManyMoves, Reason: reason, Have: found[0].Gains().Dollars() / found[0].moves(), Need: perMove})
		return
	}
	if until := x.memory.search.waitUntil; until.After(x.survey.w.Now) {
		x.add(Refusal{Code: SearchWaits, Reason: reason, Until: until})
	}
}

// toll returns what a step must gain now for each pod that it moves, in dollars an hour. It uses the target of the last search; without
// one it searches for the target.
func (x *explanation) toll(movers []*Candidate) float64 {
	order, perPod := x.search.byWaste(movers)
	before, target := x.memory.search.before, x.memory.search.target
	if before == 0 {
		goal := x.search.target(order)
		before, target = goal.before, goal.after
	}
	t := x.search.tollOf(perPod, x.memory)
	return t.at(float64(before-target) / float64(max(1, before)))
}
