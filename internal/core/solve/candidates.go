package solve

import (
	"math"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/work"
)

// A candidate list is the shapes of one template that could hold one pod of a class, as one variant.
type candidates struct {
	known  bool
	shapes []int32
}

// heaviest returns the first tier, from the given one on, whose templates could hold a pod of the class at all, or Tiers.
func (s *state) heaviest(ci, vi, from int) int {
	for t := range s.p.Templates {
		tmpl := &s.p.Templates[t]
		if tmpl.Tier >= from && len(s.candidatesOf(ci, vi, t)) > 0 && !s.exhausted(ci, vi, t) {
			return tmpl.Tier
		}
	}
	return s.p.Tiers
}

// exhausted reports whether the pool's limits allow none of the candidates any more.
func (s *state) exhausted(ci, vi, t int) bool {
	tmpl := &s.p.Templates[t]
	limit := &s.limits[tmpl.Pool]
	if !limit.Limited {
		return false
	}
	for _, sh := range s.candidatesOf(ci, vi, t) {
		if limit.Exceeded(tmpl.Catalog.Capacity[sh]) == -2 {
			return false
		}
	}
	return true
}

// candidatesOf returns the shapes of template t that can hold one pod of the visited class.
func (s *state) candidatesOf(ci, vi, t int) []int32 {
	v := &s.visit
	at := &v.cands[vi*len(s.p.Templates)+t]
	if !at.known {
		at.known = true
		at.shapes = s.findCandidates(&s.p.Classes[ci], &s.p.Classes[ci].Variants[vi], t)
	}
	return at.shapes
}

func (s *state) findCandidates(c *Class, v *Variant, t int) []int32 {
	out := s.suitable(s.visit.arena[len(s.visit.arena):], c, v, t)
	s.visit.arena = s.visit.arena[:len(s.visit.arena)+len(out)]
	if room := len(s.p.Templates[t].Room); cap(out) > 0 && cap(s.visit.arena) < len(s.visit.arena)+room {
		s.visit.arena = make([]int32, 0, 4*cap(s.visit.arena)+4*room)
	}
	return out
}

// suitable appends the shapes of template t that can hold one pod of a class, read as v.
func (s *state) suitable(out []int32, c *Class, v *Variant, t int) []int32 {
	tmpl := &s.p.Templates[t]
	if c.TooMuch != "" || !s.p.Labels.TolTmpl[v.Tol].Has(t) || s.tooLargeFor(c.Need, t) {
		return nil
	}
	m := &s.p.Labels.OnTemplate[v.Reqs][t]
	if !m.OK {
		return nil
	}
	mask := bits.Set(s.masks[0][:len(tmpl.Mask)])
	copy(mask, tmpl.Mask)
	if m.Mask != nil {
		mask.And(m.Mask)
	}
	prices := s.pricesOf(t, s.wide(mask))
	s.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	ordinary := false
	for sh := range tmpl.Shapes.All() {
		if m.Shapes != nil && !m.Shapes.Has(sh) || prices[sh] == 0 || !c.Need.Fits(tmpl.Room[sh]) || !s.fitsHardware(c, tmpl, sh) {
			continue
		}
		out = append(out, int32(sh))
		ordinary = ordinary || !tmpl.Catalog.Exotic.Has(sh)
	}
	if s.visit.any {
		return out
	}
	all := len(out)
	out = s.preferOrdinary(tmpl, out, ordinary)
	s.visit.spared = s.visit.spared || len(out) < all
	return out
}

// preferOrdinary drops exotic machines where an ordinary one would do, as launch does, and large ones by the size policy.
func (s *state) preferOrdinary(tmpl *Template, shapes []int32, ordinary bool) []int32 {
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

// fitsHardware checks ports of daemons and attach limits of a shape.
func (s *state) fitsHardware(c *Class, tmpl *Template, sh int) bool {
	if len(c.Ports) > 0 && len(tmpl.Daemons) > 0 {
		for _, p := range tmpl.Daemons[tmpl.DaemonOf[sh]].Ports {
			if c.Conflict.Has(p) {
				return false
			}
		}
	}
	for i, v := range c.Volumes {
		if v.Driver >= len(tmpl.Drivers) || tmpl.Drivers[v.Driver] == nil {
			continue
		}
		n := int32(0)
		for j := range c.Volumes[:i+1] {
			if c.Volumes[j].Driver == v.Driver {
				n++
			}
		}
		if limit := tmpl.Drivers[v.Driver][sh]; limit >= 0 && n > limit {
			return false
		}
	}
	return true
}
