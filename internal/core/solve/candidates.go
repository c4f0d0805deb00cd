package solve

import (
	"math"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/work"
)

// A candidate list is the shapes of one template that could hold one pod of a class, as one variant.
type candidates struct {
	known  bool
	shapes []int32
}

// heaviest returns the first tier, from the given one on, whose templates could hold a pod of the class at all, or Tiers.
func (s *state) heaviest(r reading, from int) int {
	for i := range s.p.Templates {
		t, tmpl := problem.TemplateID(i), &s.p.Templates[i]
		if tmpl.Tier < from {
			continue
		}
		if shapes := s.candidatesOf(r, t); len(shapes) > 0 && !s.exhausted(t, shapes) {
			return tmpl.Tier
		}
	}
	return s.p.Tiers
}

// candidatesOf returns the shapes of template t that can hold one pod of the visited class.
func (s *state) candidatesOf(r reading, t problem.TemplateID) []int32 {
	v := &s.visit
	at := &v.cands[r.variant*len(s.p.Templates)+int(t)]
	if !at.known {
		at.known = true
		at.shapes = s.findCandidates(r.c, r.v, t)
	}
	return at.shapes
}

func (s *state) findCandidates(c *problem.Class, v *problem.Variant, t problem.TemplateID) []int32 {
	out := s.suitable(s.visit.arena[len(s.visit.arena):], c, v, t)
	s.visit.arena = s.visit.arena[:len(s.visit.arena)+len(out)]
	if room := len(s.p.Templates[t].Room); cap(out) > 0 && cap(s.visit.arena) < len(s.visit.arena)+room {
		s.visit.arena = make([]int32, 0, 4*cap(s.visit.arena)+4*room)
	}
	return out
}

// suitable appends the shapes of template t that can hold one pod of a class, read as v.
func (s *state) suitable(out []int32, c *problem.Class, v *problem.Variant, t problem.TemplateID) []int32 {
	tmpl := &s.p.Templates[t]
	if c.TooMuch != "" || !s.tolerates(v, t) || s.tooLargeFor(c.Need, t) {
		return nil
	}
	m := s.match(v, t)
	if !m.OK {
		return nil
	}
	mask := s.spare
	clear(mask)
	copy(mask, tmpl.Mask)
	mask.Keep(m.Mask)
	prices := s.pricesOf(t, mask)
	s.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	ordinary := false
	for sh := range tmpl.Shapes.All() {
		if m.Shapes != nil && !m.Shapes.Has(sh) || prices[sh] == 0 || !fits(c, tmpl, sh) {
			continue
		}
		out = append(out, int32(sh))
		ordinary = ordinary || !tmpl.Catalog.Exotic.Has(sh)
	}
	if s.visit.lavish {
		return out
	}
	all := len(out)
	out = s.preferOrdinary(tmpl, out, ordinary)
	s.visit.spared = s.visit.spared || len(out) < all
	return out
}

// preferOrdinary drops exotic machines where an ordinary one would do, as launch does, and large ones by the size policy.
func (s *state) preferOrdinary(tmpl *problem.Template, shapes []int32, ordinary bool) []int32 {
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
		least = min(least, s.tooLarge(tmpl, tmpl.Catalog.VCPU[sh]))
	}
	kept := shapes[:0]
	for _, sh := range shapes {
		if s.tooLarge(tmpl, tmpl.Catalog.VCPU[sh]) <= least {
			kept = append(kept, sh)
		}
	}
	return kept
}
