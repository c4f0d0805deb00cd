package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
)

// Run places the pods of p as cheaply as it can, and proves a lower bound on the cost of any plan. It changes nothing in p but its meter.
// It gives the same result for the same problem, unless the meter cuts it short.
//
// Each step below may put a cheaper plan into r (Placement.Take). over is how many steps too large the machines of these plans may be.
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
	idea, over, spills := assign(p, at, false)
	at.Take(r, idea)
	if spills {
		again, capped, _ := assign(p, at, true)
		at.Take(r, again)
		over = max(over, capped)
	}
	from, part := at, work.Units(1)
	if q := askChoosing(p, at); q != nil {
		before := r.Cost
		idea, chosen := q.improve(r, choosingPart)
		at.Take(r, idea)
		if over = max(over, chosen); r.Cost < before { // its zones are better: go on from there, with a small part of the search
			from, part = idea, choosingPart
		}
	}
	if p.Settings.Commitments != nil { // a plan made without them may be cheaper: then Take keeps that one
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
	if best := reorder(p, at, r); best != nil { // now other pods may be on existing nodes, and the bound was for the ones that were not
		at, r.Volume, r.Config, r.Proof = best, 0, 0, problem.Proof{}
	}
	if (r.Proof.Problem == nil || tooHigh(r)) && !p.Settings.Unproven && !at.Arrives() {
		bound(p, at, r, over)
	}
	return r
}

// leavesAny reports whether the result leaves pods without a place.
func leavesAny(r *problem.Result) bool {
	return slices.ContainsFunc(r.Left, func(n int) bool { return n > 0 })
}

// improve asks the packer for a cheaper fleet and replays it. It returns nil if the packer leaves items without a place or a rule refuses
// the answer. over is how many steps too large its machines may be for any pod. part divides the work: 1 is the whole search.
//
// If the packer's question is the whole question, improve also writes the packer's bound to r.
func (q *question) improve(r *problem.Result, part work.Units) (idea *solve.Placement, over int) {
	o := q.options()
	if stays := q.at.Cost(q.frozen); stays > 0 && stays < r.Cost && !leavesAny(r) {
		o = partOf(o, r.Cost-stays, r.Cost)
	}
	o.Least, o.Most = o.Least/part, o.Most/part
	whole := q.exact && !q.rows.on && !q.rows.blind && q.plain() // the packer's bound holds for every plan
	proves := !q.p.Settings.Unproven
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

// prove writes the packer's bounds and their proof to r.
func (q *question) prove(r *problem.Result, answer *pack.Result) {
	r.Volume, r.Config = q.rows.withoutFixed(answer.VolumeBound), q.rows.withoutFixed(answer.ConfigBound)
	r.Proof = problem.Proof{Problem: &q.problem, Certificate: answer.Certificate}
}

// plain reports whether plans cannot do anything that the question does not allow: each item has one reading, no domain has cheaper lists
// of its own, and no pool has limits, reservations or minValues.
func (q *question) plain() bool {
	if !q.unlimited() {
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

// unlimited reports whether no pool has limits, minValues or reservations.
func (q *question) unlimited() bool {
	return !slices.ContainsFunc(q.p.Templates, func(t problem.Template) bool {
		return limited(q.p, &t) || len(t.Min) > 0 || len(t.Catalog.Left) > 0
	})
}

// closeMillionths is how close to the bound, in millionths of it, a fleet has to be for the search to end.
const closeMillionths = 1500

// exactWork is the work for branch and price in whole nodes. The packer does it for few pods only.
const exactWork = work.Second / 12

const (
	// A question in which the packer chooses domains gets one part in choosingPart of the search.
	choosingPart = 5
	// A question without commitments gets one part in blindPart of the search.
	blindPart = 4
	// mostChoosing is the most pods for which domains are chosen. Of many pods few can choose, and the question takes long.
	mostChoosing = 64
)

// options returns the options of a question about the whole plan.
func (q *question) options() pack.Options {
	set := &q.p.Settings
	return pack.Options{Meter: q.at.Meter(), Least: set.Least, Most: set.Most, Gain: set.GainPermille,
		CloseMillionths: closeMillionths, Memory: set.Memory.Fleet, Known: set.Memory.Known}
}

// leastPart is the smallest part of a plan's cost for which partOf scales options.
const leastPart = 1e-3

// partOf returns the options of a question about a part of a plan, which costs price of whole. It gets that part of the work. It may be
// farther from its own bound, as far as the whole plan may be from its bound. Price tells the packer that a fleet of this price is known.
func partOf(o pack.Options, price, whole int64) pack.Options {
	part := max(float64(price)/float64(whole), leastPart)
	o.Price = price
	o.CloseMillionths = int64(float64(o.CloseMillionths) / part)
	o.Least, o.Most = work.Units(float64(o.Least)*part), work.Units(float64(o.Most)*part)
	return o
}

// replay places all pods again, through the same rules: those on existing nodes and frozen new nodes as before, the others as the packer
// says. It returns nil if a rule refuses a pod, or if the fleet has an exotic machine that no item needs.
//
// Pods whose domain the packer chose are placed last, when every domain has the pods that every plan puts there. Then the rules decide
// which domain takes one more. A pod that they refuse there gets another place when the idea is taken (Placement.Take).
func (q *question) replay(fleet []pack.Pattern) *solve.Placement {
	idea := q.at.Afresh(q.frozen)
	var free []problem.Put
	for _, pattern := range fleet {
		if pattern.Cell >= len(q.cells) { // a machine that stays (rows.go), not a new node
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

// wastes reports whether a pattern is an exotic machine (as with GPUs) for items that all fit ordinary ones.
func (q *question) wastes(pattern *pack.Pattern) bool {
	cell := &q.cells[pattern.Cell]
	return q.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) &&
		!slices.ContainsFunc(pattern.Items, func(x pack.Item) bool { return q.exotic.Has(x.Class) })
}

// open opens a new node for a pattern, and pins it to the domains of its items and of its cell. It never opens a reserved machine: pods
// that are to have one are on frozen nodes.
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
