package disrupt

import (
	"cmp"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// movers splits the candidates of consolidation from those that it must leave, with the reason where it is worth telling.
func movers(candidates []*Candidate) (out []*Candidate, notes []Refusal) {
	for _, c := range candidates {
		if c.Static() || c.Held != nil {
			continue
		}
		why, ok := consolidates(c)
		if ok {
			out = append(out, c)
		} else if why.Code != "" {
			notes = append(notes, why)
		}
	}
	return out, notes
}

// consolidates reports whether consolidation may remove a candidate, and if not why, where that is worth telling.
func consolidates(c *Candidate) (why Refusal, ok bool) {
	no := func(code Code, name string) (Refusal, bool) {
		return Refusal{Code: code, Reason: v1.DisruptionReasonUnderutilized, Name: name}.of(c), false
	}
	if key := c.lacks(); key != "" {
		return no(NoLabel, key)
	}
	d := c.Pool.Spec.Disruption
	switch {
	case c.unconsolidated():
		return no(DoNotConsolidate, v1.DoNotConsolidateAnnotationKey)
	case !c.Priced:
		return no(NotOffered, c.bought.instanceType)
	case d.ConsolidateAfter.Duration == nil:
		return no(ConsolidateNever, c.Pool.Name)
	case c.Empty():
		return Refusal{}, false
	case d.ConsolidationPolicy == v1.ConsolidationPolicyWhenEmpty && len(c.Pods) == 0:
		return no(FeedsBuffer, c.buffersOf())
	case d.ConsolidationPolicy == v1.ConsolidationPolicyWhenEmpty:
		return no(OnlyWhenEmpty, c.Pool.Name)
	}
	return Refusal{}, c.Consolidatable
}

// search looks for the cheapest fleet in one pass.
//
// What a search learns of a node while it asks about others is kept: why it is not consolidated (notes), what its pods leave unpaid of
// its price (wasted). That is what events say, and it has to be what was decided, so nothing is worked out again for telling it.
type search struct {
	survey  *survey
	whatIf  *whatIf
	ledger  *ledger
	notes   map[*Candidate]Refusal
	indexes map[string]*priceIndex
	stuck   []Refusal // drifted nodes whose pods have no place to go
	trials  int
	taken   entanglement           // of the steps of this pass
	wasted  map[*Candidate]float64 // the part of the price, in dollars, that the pods are not worth
	// rejected are moves that are worth their price, and that a pool with policy Balanced does not want.
	rejected []*Step
}

func (s *survey) search() *search {
	return &search{survey: s, whatIf: s.whatIf(), ledger: s.ledger(), notes: map[*Candidate]Refusal{}, indexes: map[string]*priceIndex{}}
}

// A target is the cheapest fleet that a pass found for everything that may move, whatever budgets allow now.
//
// It is both a compass and an estimate. after may be lower than what steps lead to, because steps have to be worth their moves one by one
// and the cheapest fleet needs not be reachable that way; it is what the distance is measured to. saved is what the steps bring.
type target struct {
	before cloud.NanoUSD
	after  cloud.NanoUSD // of the cheapest fleet, whether there are steps that lead all the way to it or not
	steps  []*Step       // those that lead closest to it
	saved  cloud.NanoUSD // by the steps
	gained cloud.NanoUSD // by the steps, as decisions reckon
}

// weigh asks what happens without the nodes and returns the steps that are worth it, best first. base carries what other steps
// of this proposal have claimed already.
//
// Nodes that a pod came to or left a short while ago are closed to it: where something is going on, room that looks free is about to be
// taken.
func (s *search) weigh(remove []*Candidate, base engine.Question) []*Step {
	s.trials++
	base.Closed = union(base.Closed, s.whatIf.gated)
	return s.steps(s.whatIf.ask(remove, base))
}

// steps makes steps of the parts of an answer that are worth it, best first, and notes why the others are not.
func (s *search) steps(answer answer) []*Step {
	for c, stuck := range answer.refused {
		s.note(noPlace(stuck), c)
	}
	var steps []*Step
	for i := range answer.parts {
		step, why := s.judge(&answer.parts[i])
		if step == nil {
			s.note(why, answer.parts[i].remove...)
			continue
		}
		steps = append(steps, step)
	}
	slices.SortStableFunc(steps, func(a, b *Step) int {
		return cmp.Compare(float64(b.Gains())/b.Cost(), float64(a.Gains())/a.Cost())
	})
	return steps
}

// note remembers why some nodes are not consolidated.
func (s *search) note(why Refusal, of ...*Candidate) {
	why.Reason = v1.DisruptionReasonUnderutilized
	for _, c := range of {
		s.notes[c] = why.of(c)
	}
}

// judge applies the price rules to a part and makes it a step, or says why not.
//
// Pools with policy Balanced have a say of their own beside prices: each compares what it would save, as a part of what it costs, with
// what it would have moved, as a part of what it runs.
func (s *search) judge(p *part) (*Step, Refusal) {
	step := &Step{Method: MultiNode, Reason: v1.DisruptionReasonUnderutilized, Remove: p.remove, Place: p.place, Before: s.before(p)}
	if len(p.remove) == 1 {
		step.Method = SingleNode
	}
	if why := s.buy(step, p.open); why.Code != "" {
		return nil, why
	}
	byName(step.Remove)
	if step.Score = s.survey.score(step); !approved(step.Score) {
		s.reject(step)
		return nil, Refusal{Code: Unbalanced}
	}
	return step, Refusal{}
}

// reject notes a move, once in a pass however often it is asked about.
func (s *search) reject(step *Step) {
	if !slices.ContainsFunc(s.rejected, func(other *Step) bool { return other.ID() == step.ID() }) {
		s.rejected = append(s.rejected, step)
	}
}

// buy settles how each opening of a step is bought: all of them together save at least the minimum, what nodes cost
// by themselves included, and whichever of the types that their claims list launch comes to choose, the bill gets
// lower, or there are fewer nodes for no more.
//
// A plan prices what it opens by what launch would most likely pay; a launch takes what there is. So a saving has to hold twice: as
// expected, by the minimum, and at the worst, where no machine that the claim may become, together with the others, may cost more than
// what went. The types of a claim are cut until that is true. Cutting takes choice away, which is what makes a launch succeed; therefore
// what is left to spend is shared among the openings by their price, and all zones are kept unless one alone makes the difference.
//
// Spot is replaced by spot only with much to choose from. Each such move goes to the deepest and cheapest pool of the moment; with few
// types each further move has fewer, until the fleet sits on the one type that is scarcest.
func (s *search) buy(step *Step, open []engine.Opening) (why Refusal) {
	if len(open) == 0 {
		return why
	}
	before := step.Before // as decisions reckon
	for _, c := range step.Remove {
		before += c.Risk
	}
	limit := before - cloud.NanoUSD(float64(before)*s.survey.settings.MinSaving)
	skip := ""
	allSpot := !slices.ContainsFunc(step.Remove, func(c *Candidate) bool { return !c.spot() })
	if allSpot && !s.survey.settings.SpotToSpot {
		skip = v1.CapacityTypeSpot
	}
	ways := make([]way, len(open))
	least := cloud.NanoUSD(0)
	removed := removedPricesOf(step.Remove)
	for i := range open {
		w := s.pricesOf(open[i].Pool).cheapestWay(&open[i], skip, limit-least)
		w = removed.refuse(w, len(open))
		if covered, ok := s.coveredWay(step, open, i); ok && covered.base() < w.base() {
			w = covered
		}
		if len(w.options) == 0 {
			return s.nothingCheaper(skip, 0)
		}
		ways[i], least = w, least+w.base()
	}
	fewer := len(open) < len(step.Remove) // then the same bill is a gain: there are fewer machines to be patched, watched and lost
	if least > before || least == before && !fewer {
		return s.nothingCheaper(skip, 1-float64(least)/float64(max(1, before)))
	}
	if !fewer && len(step.Remove) > 1 && slices.ContainsFunc(step.Remove, (*Candidate).spot) &&
		slices.ContainsFunc(ways, func(w way) bool { return w.capacityType == v1.CapacityTypeSpot }) {
		return Refusal{Code: SpotForSpot}
	}
	single := allSpot && len(step.Remove) == 1
	most := before - 1
	if fewer {
		most = before
	}
	step.Risk = before - step.Before
	for i := range open {
		// What is left to spend is shared out by price, so that every opening keeps a choice of types.
		share := cloud.NanoUSD(float64(most-least) * float64(ways[i].base()) / float64(max(1, least)))
		w := ways[i].within(min(ways[i].base()+share, most))
		need, ok := minValues(open[i].Claim, w.options)
		// a launch may lower them, a saving may not
		if !ok || open[i].Claim.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey] == "true" {
			return Refusal{Code: MinValues}
		}
		if single && w.capacityType == v1.CapacityTypeSpot {
			if len(w.options) < minSpotTypes {
				return Refusal{Code: FewSpotTypes, Have: float64(len(w.options)), Need: minSpotTypes}
			}
			// Whichever of so few is bought, fewer than minSpotTypes are cheaper than that: this move is not followed by another.
			w.options = w.options[:min(len(w.options), max(minSpotTypes, need))]
		}
		price, risk, worst := s.pricesOf(open[i].Pool).sent(w, open[i].Claim, s.survey.w.Terms.SpotBand())
		bought := narrow(open[i], w, price)
		bought.Risk = risk
		step.Open = append(step.Open, bought)
		step.After += price
		step.Worst += worst
		step.Risk -= risk
	}
	if step.Worst > step.Before || step.Worst == step.Before && !fewer { // less risk is no reason to pay more
		return s.nothingCheaper(skip, 1-float64(step.Worst)/float64(max(1, step.Before)))
	}
	if step.Own = s.ownOf(step); step.Gains() < cloud.NanoUSD(float64(step.Before)*s.survey.settings.MinSaving) {
		return s.nothingCheaper(skip, float64(step.Gains())/float64(max(1, step.Before)))
	}
	return why
}

// ownOf is what the nodes that a step makes fewer are reckoned to cost by themselves.
func (s *search) ownOf(step *Step) (own cloud.NanoUSD) {
	for _, c := range step.Remove {
		own += s.survey.w.Terms.OwnPrice(c.Price)
	}
	for i := range step.Open {
		price := step.Open[i].Price
		if step.Open[i].Covered > 0 { // its price is what it adds to the bill
			price = step.Open[i].Floor
		}
		own -= s.survey.w.Terms.OwnPrice(price)
	}
	return max(own, 0)
}

// nothingCheaper says that the cheapest replacement saves too small a part of the price.
func (s *search) nothingCheaper(skip string, saved float64) Refusal {
	if skip != "" {
		return Refusal{Code: NothingButSpot}
	}
	return Refusal{Code: NothingCheaper, Have: saved, Need: s.survey.settings.MinSaving}
}

// pricesOf returns the price index of a pool's catalogue. It is made at the first use in a pass.
func (s *search) pricesOf(pool string) *priceIndex {
	if s.indexes[pool] == nil {
		p := s.survey.w.Pools[pool]
		s.indexes[pool] = newPriceIndex(p.Catalog, p.InterruptionCost(s.survey.w.Terms.InterruptionCost))
	}
	return s.indexes[pool]
}

// removedPrices are the cheapest prices of what is removed, by its kind.
type removedPrices map[purchase]cloud.NanoUSD

func removedPricesOf(remove []*Candidate) removedPrices {
	out := removedPrices{}
	for _, c := range remove {
		if have, ok := out[c.bought]; !ok || c.Price+c.Risk < have {
			out[c.bought] = c.Price + c.Risk
		}
	}
	return out
}

// refuse drops replacements that are what is removed: replacing A, A and B by one B is removing two As and keeping B.
// With one opening, whatever is not cheaper than the cheapest shared type is dropped too.
//
// Without it a plan for two equal nodes that fit into one and a half would be to replace both by their like and a smaller one, moving all
// pods to save what removing one and adding the smaller would save with half of them.
func (r removedPrices) refuse(w way, openings int) way {
	cheapest, shared := cloud.NanoUSD(0), false
	for _, o := range w.options {
		if price, ok := r[purchase{o.it.Name, w.capacityType}]; ok && (!shared || price < cheapest) {
			cheapest, shared = price, true
		}
	}
	if !shared {
		return w
	}
	return w.without(func(o option) bool {
		price, same := r[purchase{o.it.Name, w.capacityType}]
		return same && o.worst >= price || openings == 1 && o.worst >= cheapest
	})
}

// target looks for the cheapest fleet of everything that may move. Removing a node only to open its like is a detour,
// so such nodes are kept and the rest is asked again; and the most wasteful half is tried for itself, because keeping good
// nodes where they are leaves room that a plan from scratch would have to buy.
//
// The fleet planned from nothing is the lower bound of what can be had, but not the best that can be reached: it opens nodes that exist
// already, only elsewhere. Each round keeps the nodes that the last answer would have bought again and asks about the rest; what is left
// after some rounds are the nodes that are wrong, not those that are merely in another place. Halves, the most wasteful first, are asked
// about for the same reason: nodes that stay have room, which costs nothing.
//
// The work is bounded by the pods that are asked about, four times all of them, so that a pass of a large fleet is a constant number of
// plans.
func (s *search) target(order []*Candidate) target {
	goal := target{}
	for _, c := range order {
		goal.before += c.Price
	}
	goal.after = goal.before
	limit := askedPerPod*podsOf(order) + askedAnyway
	asked := map[string]bool{}
	for size := len(order); size > 0; size /= 2 {
		remove := order[:size]
		for range roundsOfTarget {
			key := namesOf(remove)
			if len(remove) == 0 || asked[key] || s.whatIf.work > limit || s.survey.w.ended() {
				break
			}
			asked[key] = true
			s.trials++
			answer := s.whatIf.ask(remove, engine.Question{Closed: s.whatIf.gated, Settings: engine.Settings{FirstFit: size < len(order)}})
			steps := s.steps(answer)
			if found := (target{steps: steps, before: goal.before, saved: savedBy(steps), gained: gainedBy(steps),
				after: goal.after}); found.better(goal) {
				goal = found
			}
			goal.after = min(goal.after, goal.before-max(goal.saved, s.couldSave(answer)))
			remove = withoutSame(remove, answer)
		}
	}
	return goal
}

const (
	// askedPerPod and askedAnyway bound the pods that are asked about for a target: a plan from nothing, one of
	// each half, and as much again for rounds. Small fleets may ask whatever they like.
	askedPerPod, askedAnyway = 4, 1000
	// roundsOfTarget is how often what an answer leaves is asked about: unchanged, without the nodes that the first
	// answer would buy again, and without those that the second would.
	roundsOfTarget = 3
)

// couldSave is what the fleet of an answer costs less, whatever small steps lead to it; without moves from spot to spot where
// the gate forbids them.
//
// The distance to the target must not depend on whether steps to it happen to pay: a fleet whose every step is just too small would
// otherwise look as if it had arrived.
func (s *search) couldSave(a answer) cloud.NanoUSD {
	total := cloud.NanoUSD(0)
	for i := range a.parts {
		p := &a.parts[i]
		dear := slices.ContainsFunc(p.remove, func(c *Candidate) bool { return !c.spot() })
		toSpot := slices.ContainsFunc(p.open, func(o engine.Opening) bool { return o.CapacityType == v1.CapacityTypeSpot })
		if toSpot && !dear && !s.survey.settings.SpotToSpot {
			continue
		}
		total += p.price()
		for j := range p.open {
			total -= p.open[j].Price
		}
	}
	return total
}

// better targets have steps that save more, or nearly as much while fewer pods move.
//
// Two targets that save about the same are distinguished by the pods they move: half a percent of the price is lost
// in what prices do by themselves.
func (t target) better(than target) bool {
	near := than.before / nearlyEqual
	switch {
	case t.gained > than.gained+near:
		return true
	case t.gained < than.gained-near:
		return false
	}
	a, b := movedBy(t.steps), movedBy(than.steps)
	return a < b && len(t.steps) > 0 || a == b && t.gained > than.gained || len(than.steps) == 0 && t.gained > than.gained
}

// nearlyEqual says below which part of the price a saving does not decide between two targets: one in so many.
const nearlyEqual = 200

func savedBy(steps []*Step) cloud.NanoUSD {
	saved := cloud.NanoUSD(0)
	for _, s := range steps {
		saved += s.Saves()
	}
	return saved
}

func gainedBy(steps []*Step) cloud.NanoUSD {
	gained := cloud.NanoUSD(0)
	for _, s := range steps {
		gained += s.Gains()
	}
	return gained
}

func movedBy(steps []*Step) int {
	n := 0
	for _, s := range steps {
		n += s.Pods()
	}
	return n
}

func podsOf(candidates []*Candidate) int {
	n := 0
	for _, c := range candidates {
		n += len(c.Pods) + len(c.Spares)
	}
	return n
}

func namesOf(candidates []*Candidate) string {
	names := make([]byte, 0, 32*len(candidates))
	for _, c := range candidates {
		names = append(append(names, c.Name()...), ',')
	}
	return string(names)
}

// withoutSame leaves out as many nodes of each type as the plan for removing them would open again: the least wasteful
// ones, which stand last.
//
// Which of several equal nodes stay does not matter for the bill, so it is those that waste least: their pods are where they should be.
func withoutSame(remove []*Candidate, answer answer) []*Candidate {
	opened := map[purchase]int{}
	for _, p := range answer.parts {
		for _, o := range p.open {
			opened[purchase{o.Type, o.CapacityType}]++
		}
	}
	kept := slices.Clone(remove)
	for i := len(kept) - 1; i >= 0; i-- {
		if bought := kept[i].bought; opened[bought] > 0 {
			opened[bought]--
			kept = slices.Delete(kept, i, i+1)
		}
	}
	return kept
}

// A purchase is what two nodes have in common that are bought alike. The zone is no part of it: a launch chooses that by itself.
type purchase struct{ instanceType, capacityType string }
