package solve

import (
	"math"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/work"
)

// Candidates are the shapes of one template that could hold one pod of a class, read as one variant.
type candidates struct {
	known  bool // shapes was worked out
	shapes []int32
}

// heaviestTier returns the first tier, from the given one on, with a template that could hold a pod of the reading within limits. If there
// is none, it returns Tiers, one more than the last tier.
func (op *opener) heaviestTier(r reading, from int) int {
	for i := range op.facts.p.Templates {
		t, tmpl := problem.TemplateID(i), &op.facts.p.Templates[i]
		if tmpl.Tier < from {
			continue
		}
		if shapes := op.candidatesOf(r, t); len(shapes) > 0 && !op.fleet.stock.exhausted(t, shapes) {
			return tmpl.Tier
		}
	}
	return op.facts.p.Tiers
}

// candidatesOf returns the shapes of template t that can hold one pod of the visited class. It remembers them for the rest of the visit.
func (op *opener) candidatesOf(r reading, t problem.TemplateID) []int32 {
	v := &op.visit
	at := &v.cands[r.variant*len(op.facts.p.Templates)+int(t)]
	if !at.known {
		at.known = true
		at.shapes = op.findCandidates(r.c, r.v, t)
	}
	return at.shapes
}

// findCandidates works out candidatesOf. The result is a part of the visit's arena, a slice that all lists of a visit share, so that lists
// need no memory of their own. If little of the arena is left, it begins a larger one; lists that were returned keep the old one.
func (op *opener) findCandidates(c *problem.Class, v *problem.Variant, t problem.TemplateID) []int32 {
	out, heldBack := op.fleet.stock.suitable(op.visit.arena[len(op.visit.arena):], c, v, t, op.visit.anyMachine)
	op.visit.heldBack = op.visit.heldBack || heldBack
	op.visit.arena = op.visit.arena[:len(op.visit.arena)+len(out)]
	if room := len(op.facts.p.Templates[t].Room); cap(out) > 0 && cap(op.visit.arena) < len(op.visit.arena)+room {
		op.visit.arena = make([]int32, 0, 4*cap(op.visit.arena)+4*room)
	}
	return out
}

// suitable returns the shapes of template t that can be bought now and can hold one pod of a class, read as v; out is empty and lends its
// memory. Without anyMachine it leaves out exotic and large machines where others would do; heldBack reports whether it left out any.
// Limits are not asked.
func (k *stock) suitable(out []int32, c *problem.Class, v *problem.Variant, t problem.TemplateID, anyMachine bool) (
	shapes []int32, heldBack bool) {
	tmpl := &k.facts.p.Templates[t]
	if c.TooMuch != "" || !k.facts.tolerates(v, t) || k.facts.tooLargeFor(c.Need, t) {
		return nil, false
	}
	m := k.facts.match(v, t)
	if !m.OK {
		return nil, false
	}
	mask := k.facts.spare
	clear(mask)
	copy(mask, tmpl.Mask)
	mask.Keep(m.Mask)
	prices := k.pricesOf(t, mask)
	k.facts.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	ordinary := false
	for sh := range tmpl.Shapes.All() {
		if m.Shapes != nil && !m.Shapes.Has(sh) || prices[sh] == 0 || !fits(c, tmpl, sh) {
			continue
		}
		out = append(out, int32(sh))
		ordinary = ordinary || !tmpl.Catalog.Exotic.Has(sh)
	}
	if anyMachine {
		return out, false
	}
	all := len(out)
	out = k.facts.preferOrdinary(tmpl, out, ordinary)
	return out, len(out) < all
}

// preferOrdinary drops exotic machines if there is an ordinary one, as a launch does. Of the rest it keeps those that are the fewest steps
// too large (see sizeSteps). It cuts shapes in place.
func (f *facts) preferOrdinary(tmpl *problem.Template, shapes []int32, ordinary bool) []int32 {
	if ordinary {
		kept := shapes[:0]
		for _, sh := range shapes {
			if !tmpl.Catalog.Exotic.Has(int(sh)) {
				kept = append(kept, sh)
			}
		}
		shapes = kept
	}
	least := math.MaxInt
	for _, sh := range shapes {
		least = min(least, f.sizeSteps(tmpl, tmpl.Catalog.VCPU[sh]))
	}
	kept := shapes[:0]
	for _, sh := range shapes {
		if f.sizeSteps(tmpl, tmpl.Catalog.VCPU[sh]) <= least {
			kept = append(kept, sh)
		}
	}
	return kept
}
