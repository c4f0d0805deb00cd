package disrupt

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// WhyStays says everything that keeps a node where it is now, by the name of its row: first what keeps it whatever
// the reason, then what keeps it from going because it is empty, drifted or dearer than what its pods need. It asks
// what a pass would ask if this were the only node, and knows of earlier passes what m does. Nothing is returned
// for a node that the next pass removes.
//
// That is every brake of package disrupt (docs/disruption.md has the list). What stops the whole loop is not a node's affair: a picture of
// the cluster that is no longer fed, and the second look at a step after its delay.
func WhyStays(w *World, m Memory, node string) []Refusal {
	s := surveyOf(w).search()
	at := slices.IndexFunc(s.survey.rows, func(c *Candidate) bool { return c.Name() == node })
	if at < 0 {
		return []Refusal{{Code: NotOurs, Node: node}}
	}
	c := s.survey.rows[at]
	x := &explanation{survey: s.survey, whatIf: s.whatIf, search: s, memory: &m, of: c}
	if s.survey.busy(c) {
		x.no(Refusal{Code: InStep})
	}
	if until, held := m.held(c, w.Now); held {
		x.no(Refusal{Code: Setback, Until: until})
	}
	for _, block := range []*Refusal{c.Block, c.Held} {
		if block != nil {
			x.out = append(x.out, *block)
		}
	}
	if c.Pool == nil || c.Block != nil && c.Block.Code.Passes() {
		return x.out // there is nothing to be said yet, or any more, of reasons to go
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

// An explanation is what WhyStays has found.
type explanation struct {
	survey *survey
	whatIf *whatIf
	search *search
	memory *Memory
	of     *Candidate
	out    []Refusal
}

func (x *explanation) no(why Refusal) { x.out = append(x.out, why.of(x.of)) }

// budget adds what the budgets of the pool hold back.
func (x *explanation) budget(reason v1.DisruptionReason) {
	pool := x.of.Pool.Name
	switch {
	case x.search.ledger.counts[pool].Err != nil:
		x.no(Refusal{Code: BudgetUnread, Name: pool, Value: x.search.ledger.counts[pool].Err.Error()})
	case x.search.ledger.Spent(pool, reason):
		x.no(Refusal{Code: Budget, Reason: reason, Name: pool, Need: 1})
	}
}

// quiet adds that consolidateAfter is not over.
func (x *explanation) quiet(reason v1.DisruptionReason) {
	if !x.of.Consolidatable {
		until := lifecycle.Consolidatable(x.of.Node.Claim.DeepCopy(), x.of.Pool, x.survey.w.Now)
		x.no(Refusal{Code: Settling, Reason: reason, Name: x.of.Pool.Name, Until: until})
	}
}

// vacated adds that the node has been without pods for too short a time.
func (x *explanation) vacated(reason v1.DisruptionReason) {
	if at := x.survey.vacant(x.of); at.After(x.survey.w.Now) {
		x.no(Refusal{Code: JustVacated, Reason: reason, Until: at})
	}
}

func (x *explanation) whyEmpty() {
	reason, pool := v1.DisruptionReasonEmpty, x.of.Pool
	switch {
	case x.of.Static():
		x.no(Refusal{Code: FixedNodes, Reason: reason, Name: pool.Name})
		return
	case x.of.unconsolidated():
		x.no(Refusal{Code: DoNotConsolidate, Reason: reason, Name: v1.DoNotConsolidateAnnotationKey})
		return
	case pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
		x.no(Refusal{Code: ConsolidateNever, Reason: reason, Name: pool.Name})
		return
	}
	x.quiet(reason)
	x.vacated(reason)
	x.budget(reason)
}

func (x *explanation) whyDrifted() {
	reason := v1.DisruptionReasonDrifted
	if why, held := x.survey.heldByRollout(x.of, reason); held {
		x.no(why)
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

// It asks the question that a pass asks last, about this node alone, and takes away what holds only by chance: which trials were left,
// which steps came first. So a node for which nothing is said here goes in one of the next passes, unless something better is found for
// it.
func (x *explanation) whyDear() {
	reason := v1.DisruptionReasonUnderutilized
	if x.of.Static() {
		x.no(Refusal{Code: FixedNodes, Reason: reason, Name: x.of.Pool.Name})
		return
	}
	if len(x.of.Pods) == 0 {
		x.no(Refusal{Code: FeedsBuffer, Reason: reason, Name: x.of.buffersOf()})
	}
	if why, _ := consolidates(x.of); why.Code != "" {
		if why.Code != FeedsBuffer { // which has been said
			x.out = append(x.out, why)
		}
		return
	}
	if why, held := x.survey.heldByRollout(x.of, reason); held {
		x.no(why)
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
	movers, _ := movers(candidates)
	if perMove := x.toll(movers); found[0].Gains().Dollars() < perMove*found[0].moves() {
		x.no(Refusal{Code: TooManyMoves, Reason: reason, Have: found[0].Gains().Dollars() / found[0].moves(), Need: perMove})
		return
	}
	if until := x.memory.search.waitUntil; until.After(x.survey.w.Now) {
		x.no(Refusal{Code: SearchWaits, Reason: reason, Until: until})
	}
}

// toll is what a move must save now. The last search knows how near the fleet is to its target; without one the target is searched for.
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
