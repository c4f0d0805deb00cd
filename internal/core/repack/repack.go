package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
)

// Run places the pods of p, as cheaply as it can, and says how far that may be from the cheapest. It does not modify p, but for its meter,
// and gives the same result for the same problem, unless the meter cuts it short.
func Run(p *problem.Problem) *problem.Result {
	at, r := solve.Place(p)
	if p.Settings.FirstFit || r.Partial || !at.Movable() {
		return r
	}
	if len(r.Bins) == 0 { // no node can be cheaper, but in another order fewer pods may be left over
		if !leavesAny(r) {
			return r
		}
		if best := reorder(p, at, r); best != nil {
			at = best
		}
		if len(r.Bins) == 0 {
			return r
		}
	}
	idea, assigned := assign(p, at)
	at.Take(r, idea)
	over, from, part := assigned, at, work.Units(1)
	if q := askChoosing(p, at); q != nil {
		before := r.Cost
		idea, chosen := q.improve(r, choosingPart)
		at.Take(r, idea)
		if over = max(over, chosen); r.Cost < before {
			from, part = idea, choosingPart
		}
	}
	if p.Settings.Commitments != nil { // of the plan with commitments and the one without the cheaper counts
		if q := askBlind(p, from); q != nil {
			idea, _ := q.improve(r, blindPart)
			at.Take(r, idea)
		}
	}
	if q := ask(p, from); q != nil {
		idea, improved := q.improve(r, part)
		at.Take(r, idea)
		over = max(over, improved)
	}
	if best := reorder(p, at, r); best != nil { // a bound is about the pods that existing nodes do not take: other ones now
		at, r.Volume, r.Config, r.Proof = best, 0, 0, problem.Proof{}
	}
	if (r.Proof.Problem == nil || tooHigh(r)) && !p.Settings.Unproven && !at.Arrives() {
		bound(p, at, r, over)
	}
	return r
}

func leavesAny(r *problem.Result) bool {
	return slices.ContainsFunc(r.Left, func(n int) bool { return n > 0 })
}

// improve asks the packer for a cheaper fleet, with one of so many parts of the search, and for a bound where the
// question is the whole one. It returns nil where there is none, and how many steps too large a machine of it may
// be for anybody.
func (q *question) improve(r *problem.Result, part work.Units) (idea *solve.Placement, over int) {
	o := q.options()
	if stays := q.at.Cost(q.frozen); stays > 0 && stays < r.Cost && !leavesAny(r) {
		o = partOf(o, r.Cost-stays, r.Cost)
	}
	o.Least, o.Most = o.Least/part, o.Most/part
	// the packer's question is all of our question
	whole, proves := q.exact && !q.rows.on && !q.rows.blind && q.plain(), !q.p.Settings.Unproven
	switch {
	case q.rows.on:
		o = q.rows.beside(o, r.Cost)
	case whole && proves:
		o.Exact = exactWork
	case proves:
		o.Exact = exactWork / 2 // for cheaper fleets; the rest is for the bound, which is a question of its own
	}
	answer := pack.Solve(&q.problem, o)
	r.Memory.Fleet, r.Memory.Known = answer.Memory, answer.Known
	if whole {
		q.prove(r, answer)
	}
	if slices.ContainsFunc(answer.Left, func(n int) bool { return n > 0 }) {
		return nil, 0
	}
	return q.replay(answer.Fleet), answer.Certificate.Over
}

// prove writes down what the packer proved.
func (q *question) prove(r *problem.Result, answer *pack.Result) {
	r.Volume, r.Config = q.rows.withoutFixed(answer.VolumeBound), q.rows.withoutFixed(answer.ConfigBound)
	r.Proof = problem.Proof{Problem: &q.problem, Certificate: answer.Certificate}
}

// plain reports whether the packer's own bound holds for every plan: no item could be read another way at the same level, and
// no pool is limited, reserved or bound to minValues.
func (q *question) plain() bool {
	if !q.free() {
		return false
	}
	loose := &question{p: q.p, at: q.at, loose: true}
	for i := range q.items {
		it := &q.items[i]
		if len(loose.readings(it)) > 1 {
			return false
		}
		for t := range q.p.Templates {
			t := problem.TemplateID(t)
			for _, w := range q.wantsOf(it, t) {
				if len(q.narrowed(it, t, w)) > 0 {
					return false
				}
			}
		}
	}
	return true
}

// free reports whether every pool may buy as much as it likes of whatever it sells.
func (q *question) free() bool {
	return !slices.ContainsFunc(q.p.Templates, func(t problem.Template) bool {
		return q.limited(&t) || len(t.Min) > 0 || len(t.Catalog.Left) > 0
	})
}

// closeMillionths is how close to the bound a fleet has to be for the search to end.
const closeMillionths = 1500

// exactWork is how much may be spent on whole nodes, where few pods make that worth it.
const exactWork = work.Second / 12

const (
	// choosingPart is the part of the search that choosing domains may take, one of so many.
	choosingPart = 5
	// blindPart is the part of the search that a plan without commitments may take, one of so many.
	blindPart = 4
	// mostChoosing is up to how many pods domains are chosen for. Of many pods those that may be in any domain are
	// few, and the work is not.
	mostChoosing = 64
)

// options are what the packer may spend.
func (q *question) options() pack.Options {
	set := &q.p.Settings
	return pack.Options{Meter: q.at.Meter(), Least: set.Least, Most: set.Most, Gain: set.GainPermille,
		CloseMillionths: closeMillionths, Memory: set.Memory.Fleet, Known: set.Memory.Known}
}

// leastPart is the smallest part of a plan that differs from nothing.
const leastPart = 1e-3

// partOf are the options of a question about a part of a plan, which costs so much of it: it has that part of the
// work, and is close enough to its bound where the plan is. A fleet that is known to be close enough is not looked
// for again.
func partOf(o pack.Options, price, whole int64) pack.Options {
	part := max(float64(price)/float64(whole), leastPart)
	o.Price = price
	o.CloseMillionths = int64(float64(o.CloseMillionths) / part)
	o.Least, o.Most = work.Units(float64(o.Least)*part), work.Units(float64(o.Most)*part)
	return o
}

// replay places everything once more, through the same rules: what is on existing nodes and on frozen bins as before, the
// rest as the packer says. It returns nil when a rule refuses what the packer meant.
//
// Pods whose domain the packer chose come last, once every domain has what any plan puts there: then the rules say
// which of them may have one more. Whom they refuse there gets another place (Take).
func (q *question) replay(fleet []pack.Pattern) *solve.Placement {
	idea := q.at.Afresh(q.frozen)
	var free []problem.Put
	for _, pattern := range fleet {
		if pattern.Cell >= len(q.cells) { // machines that stay
			continue
		}
		if q.wastes(&pattern) {
			return nil
		}
		for range pattern.Nodes {
			bin := q.open(idea, &pattern)
			for _, x := range pattern.Items {
				it := &q.items[x.Class]
				if put := it.on(bin, x.Count); q.chooses && it.together > 0 {
					free = append(free, put)
				} else if idea.Put(put) < x.Count {
					return nil
				}
			}
		}
	}
	idea.AskDomains()
	for _, put := range free {
		put.Count -= idea.Put(put)
		idea.Leave(put)
	}
	return idea
}

// wastes reports whether a pattern is an exotic machine for items that fit ordinary ones.
func (q *question) wastes(pattern *pack.Pattern) bool {
	cell := &q.cells[pattern.Cell]
	return q.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) &&
		!slices.ContainsFunc(pattern.Items, func(x pack.Item) bool { return q.exotic.Has(x.Class) })
}

// open opens a node of a pattern in the domains of its items and of its cell. A pod that was to have a reserved
// machine is in a frozen bin.
func (q *question) open(idea *solve.Placement, pattern *pack.Pattern) problem.BinID {
	cell := &q.cells[pattern.Cell]
	bin := idea.Open(cell.tmpl, cell.shape)
	if d := cell.discounted; d != nil {
		idea.Only(bin, d.shapes, d.offers)
	}
	for _, x := range pattern.Items {
		idea.Pin(bin, q.items[x.Class].pins)
	}
	idea.Pin(bin, cell.pins)
	return bin
}
