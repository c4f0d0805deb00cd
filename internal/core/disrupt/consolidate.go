package disrupt

import (
	"cmp"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// moversOf returns the candidates that consolidation may remove (movers), and a refusal for each of the others for which consolidates
// gives one. Nodes of static pools and nodes that are held by their pods are in neither list.
func moversOf(candidates []*Candidate) (out []*Candidate, notes []Refusal) {
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

// consolidates reports whether consolidation may remove a candidate, and if not, why. why is zero although ok is false for an empty node,
// which another method removes, and for a node on which pods came or went within consolidateAfter.
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
// It keeps what it learns about nodes on the way: why a node is not consolidated (notes), and how much of its price is wasted. Events
// report these, so that they say what was decided, and not what a second calculation finds.
type search struct {
	survey  *survey
	whatIf  *whatIf
	ledger  *ledger
	notes   map[*Candidate]Refusal
	indexes map[string]*priceIndex
	stuck   []Refusal              // nodes that should be replaced and have to stay, see hold
	trials  int                    // questions asked so far
	taken   entanglement           // of the steps of this pass
	wasted  map[*Candidate]float64 // the part of the price, in dollars, that the pods are not worth
	// rejected are moves that are worth their price, and that a pool with policy Balanced does not want.
	rejected []*Step
}

func (s *survey) search() *search {
	return &search{survey: s, whatIf: s.whatIf(), ledger: s.ledger(), notes: map[*Candidate]Refusal{}, indexes: map[string]*priceIndex{}}
}

// A target is the cheapest fleet that a pass found for everything that may move, without regard to budgets.
//
// The steps may not lead all the way to it: each step has to save money by itself, and the cheapest fleet may not be reachable that way.
// So before - saved, where the steps lead, may be more than after. The distance from the target is measured to after.
type target struct {
	before cloud.NanoUSD // price of everything that may move
	after  cloud.NanoUSD // price of the cheapest fleet
	steps  []*Step       // the steps that lead closest to it
	saved  cloud.NanoUSD // sum of Saves of the steps
	gained cloud.NanoUSD // sum of Gains of the steps
}

// weigh asks the engine what happens without some nodes, and returns the steps of the answer that are worth it, best first. base holds
// what other steps of this proposal have claimed already. Gated nodes get no pods: they go themselves, or pods came or went there a
// short while ago, so that their free room may be about to be taken.
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

// judge makes a step of a part of an answer if the price rules (buy) and the pools with policy Balanced (score) accept it. Otherwise it
// returns nil and the reason. It keeps a step that only these pools refuse, to be counted (rejected).
func (s *search) judge(p *part) (*Step, Refusal) {
	step := &Step{Method: MultiNode, Reason: v1.DisruptionReasonUnderutilized, Remove: p.remove, Place: p.place, Before: s.leastSaved(p)}
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

// reject notes a step that pools with policy Balanced do not want, once in a pass even if it is found again.
func (s *search) reject(step *Step) {
	if !slices.ContainsFunc(s.rejected, func(other *Step) bool { return other.ID() == step.ID() }) {
		s.rejected = append(s.rejected, step)
	}
}

// buy decides how each opening of a step is bought, and sets the openings and prices of the step. It returns a refusal if no way of
// buying saves enough, and the zero Refusal otherwise.
//
// A launch may choose any type that the claim lists, so a saving is checked twice. At the expected price the step must gain the minimum
// (MinSaving). At the worst price the bill must fall, or be equal with fewer nodes. The types of each claim are cut until that is true.
// A launch needs a choice of types to succeed, so what may be spent is shared among the openings by their price, and all zones are kept
// unless one zone alone makes the difference.
//
// Spot is replaced by spot only if there are many types to choose from. Otherwise each such move would leave fewer types for the next
// one, until the fleet is on the scarcest type.
func (s *search) buy(step *Step, open []engine.Opening) (why Refusal) {
	if len(open) == 0 {
		return why
	}
	before := step.Before // with the cost of interruptions
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
	fewer := len(open) < len(step.Remove) // then an equal bill is allowed: there are fewer machines to patch, to watch and to lose
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

// ownOf returns the own prices (Terms.OwnPrice: what a node costs beside its bill) of the removed nodes less those of the opened ones, at
// least 0.
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

// nothingCheaper is the refusal if the cheapest replacement saves too small a part of the price (saved). skip is the capacity type that
// was left out, "" for none; then the refusal says that only spot would be cheaper.
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

// removedPrices has, for each kind of purchase, the lowest price of a removed node of that kind, with its risk.
type removedPrices map[purchase]cloud.NanoUSD

// removedPricesOf collects the prices of the nodes of a step.
func removedPricesOf(remove []*Candidate) removedPrices {
	out := removedPrices{}
	for _, c := range remove {
		if have, ok := out[c.bought]; !ok || c.Price+c.Risk < have {
			out[c.bought] = c.Price + c.Risk
		}
	}
	return out
}

// refuse drops replacements of the same type and capacity type as a removed node that are not cheaper: to replace A, A and B by one B is
// to remove two As and keep B. With one opening, it also drops every type that is not cheaper than the cheapest such type.
//
// Example: the pods of two equal nodes need one and a half of them. Without this rule both would be replaced, by an equal node and a
// smaller one. To remove only one and open the smaller one saves as much and moves half of the pods.
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

// target looks for the cheapest fleet of everything that may move. order lists the candidates, the most wasteful first.
//
// It first asks to replace all nodes at once. Such a plan opens nodes that are like nodes that exist. So each further round keeps these
// nodes and asks about the rest, until only the nodes of the wrong kind are left. Then the same is done for the most wasteful half of the
// nodes, for half of these, and so on: nodes that stay have free room, which costs nothing.
//
// The work is bounded by the number of pods asked about (about four times all of them), so that a pass of a large fleet makes a constant
// number of full plans.
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
	// askedPerPod and askedAnyway bound the pods that are asked about for a target. All nodes and then each half are about twice the
	// pods; further rounds may take as much again. askedAnyway lets small fleets ask more.
	askedPerPod, askedAnyway = 4, 1000
	// roundsOfTarget is how many rounds are asked about one set: all of it, without the nodes that the first answer would buy again, and
	// without those that the second would.
	roundsOfTarget = 3
)

// couldSave returns how much less the fleet of an answer costs, even if no step that leads there is worth it. Parts that only move from
// spot to spot are left out where the feature gate forbids these moves.
//
// The distance to the target is measured by it. If only steps that pay counted, a fleet in which every step is just too small would
// look as if it had reached its target.
func (s *search) couldSave(a answer) cloud.NanoUSD {
	total := cloud.NanoUSD(0)
	for i := range a.parts {
		p := &a.parts[i]
		otherThanSpot := slices.ContainsFunc(p.remove, func(c *Candidate) bool { return !c.spot() })
		toSpot := slices.ContainsFunc(p.open, func(o engine.Opening) bool { return o.CapacityType == v1.CapacityTypeSpot })
		if toSpot && !otherThanSpot && !s.survey.settings.SpotToSpot {
			continue
		}
		total += p.price()
		for j := range p.open {
			total -= p.open[j].Price
		}
	}
	return total
}

// better reports whether the steps of t gain clearly more than those of than. If the gains are nearly equal, the steps that move fewer
// pods are better; if these are equal too, or than has no steps, the larger gain decides.
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

// nearlyEqual is the divisor of the price below which a difference of gains counts as nearly equal: half a percent, since prices change
// by as much without us.
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

// podsOf counts the pods and spares that have to be placed if the candidates go.
func podsOf(candidates []*Candidate) int {
	n := 0
	for _, c := range candidates {
		n += len(c.Pods) + len(c.Spares)
	}
	return n
}

// namesOf makes a map key of a list of candidates.
func namesOf(candidates []*Candidate) string {
	names := make([]byte, 0, 32*len(candidates))
	for _, c := range candidates {
		names = append(append(names, c.Name()...), ',')
	}
	return string(names)
}

// withoutSame returns the nodes of remove without as many of each type as the answer would open again. Of equal nodes the least wasteful,
// which are last in remove, are left out, because their pods are where they should be. The bill is the same for each choice.
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

// A purchase is what nodes that are bought alike have in common. The zone is not part of it, because a launch chooses it.
type purchase struct{ instanceType, capacityType string }
