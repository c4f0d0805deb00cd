package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/work"
)

// grow makes a new bin fit for one more pod of class ci by choosing another target, a larger one or one that it accepts, and places it there.
func (s *state) grow(ci, vi, bin int) bool {
	c := &s.p.Classes[ci]
	i := bin - len(s.p.Nodes)
	t, old := int(s.tmpl[i]), int(s.target[i])
	tmpl := &s.p.Templates[t]
	m := &s.p.Labels.OnTemplate[c.Variants[vi].Reqs][t]
	if s.held[i] >= 0 || s.reserve[i] != nil || !m.OK || !s.p.Labels.TolTmpl[c.Variants[vi].Tol].Has(t) {
		return false
	}
	need := s.used(bin)
	need.Add(c.Need)
	mask := s.maskOf(bin).Clone()
	if m.Mask != nil {
		mask[:len(m.Mask)].And(m.Mask)
	}
	s.holding(bin, mask, need, m)
	s.cutByArrivals(t, old)
	for sh := range s.shapes.All() {
		if !s.sameDomains(bin, t, sh) || !s.sameCounts(bin, sh) || tmpl.DaemonOf != nil && !s.fitsHardware(c, tmpl, sh) {
			s.shapes.Remove(sh)
		}
	}
	best := s.cheapestOf(bin, mask)
	if best < 0 {
		return false
	}
	s.retarget(bin, best)
	if v := s.try(c, &c.Variants[vi], s.touchesOf(ci, vi), bin); v.code != 0 {
		s.retarget(bin, old)
		return false
	}
	s.commit(ci, vi, bin, 1)
	return true
}

// cheapestOf returns the cheapest of s.shapes that a new bin can be bought as under mask within its pool's limits, −1 if there is none.
func (s *state) cheapestOf(bin int, mask bits.Set) int {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	limit := s.limits[tmpl.Pool].Clone()
	limit.Give(tmpl.Catalog.Capacity[s.target[i]])
	prices := s.pricesOf(int(s.tmpl[i]), mask)
	best := -1
	for sh := range s.shapes.All() {
		if sh >= len(prices) || prices[sh] == 0 || limit.Exceeded(tmpl.Catalog.Capacity[sh]) != -2 {
			continue
		}
		if best < 0 || prices[sh] < prices[best] {
			best = sh
		}
	}
	return best
}

// retarget changes the shape that a bin is filled for.
func (s *state) retarget(bin, sh int) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	s.limits[tmpl.Pool].Give(tmpl.Catalog.Capacity[s.target[i]])
	s.limits[tmpl.Pool].Take(tmpl.Catalog.Capacity[sh])
	room := s.roomOf(bin)
	room.Sub(tmpl.Room[s.target[i]])
	room.Add(tmpl.Room[sh])
	s.target[i] = int32(sh)
	for k := range s.domain {
		if of := s.p.Keys[k].Tmpl[s.tmpl[i]].Shape; of != nil && !s.counted(k, bin) {
			s.domain[k][i] = of[sh]
		}
	}
	s.alive.Add(bin)
}

// sameDomains reports whether a shape is in the domains in which the pods of a bin were counted.
func (s *state) sameDomains(bin, t, sh int) bool {
	for k := range s.p.Keys {
		if of := &s.p.Keys[k].Tmpl[t]; of.Shape != nil && of.Shape[sh] != s.domainOf(k, bin) && s.counted(k, bin) {
			return false
		}
	}
	return true
}

// sameCounts reports whether spreads count the pods of a bin on a shape as they do on its target.
func (s *state) sameCounts(bin, sh int) bool {
	i := bin - len(s.p.Nodes)
	for _, p := range s.puts[i] {
		for _, g := range s.p.Classes[p.Class].Groups {
			if group := &s.groups[g]; len(group.Filter) > 0 && s.countsAs(group, bin, sh) != s.countsAs(group, bin, int(s.target[i])) {
				return false
			}
		}
	}
	return true
}

// used returns what the pods of a new bin use.
func (s *state) used(bin int) quantity.Vec {
	i := bin - len(s.p.Nodes)
	u := append(quantity.Vec(nil), s.p.Templates[s.tmpl[i]].Room[s.target[i]]...)
	u.Sub(s.roomOf(bin))
	return u
}

// holding sets s.shapes to the shapes that can hold need, allow mask and satisfy every pod of the bin, and more if given.
func (s *state) holding(bin int, mask bits.Set, need quantity.Vec, more *Match) {
	i := bin - len(s.p.Nodes)
	t := int(s.tmpl[i])
	s.fillHolding(t, mask, need)
	for _, put := range s.puts[i] {
		m := &s.p.Labels.OnTemplate[s.p.Classes[put.Class].Variants[put.Variant].Reqs][t]
		if m.Shapes != nil {
			s.shapes[:len(m.Shapes)].And(m.Shapes)
		}
	}
	if more != nil && more.Shapes != nil {
		s.shapes[:len(more.Shapes)].And(more.Shapes)
	}
}

// fillHolding sets s.shapes to the shapes of template t that can hold need and be bought under mask.
func (s *state) fillHolding(t int, mask bits.Set, need quantity.Vec) {
	tmpl := &s.p.Templates[t]
	s.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	clear(s.shapes)
	for sh := tmpl.Shapes.Next(0); sh >= 0; sh = tmpl.Shapes.Next(sh + 1) {
		if need.Fits(tmpl.Room[sh]) && s.sells(tmpl, sh, mask) {
			s.shapes.Add(sh)
		}
	}
}

// sells reports whether a shape can be bought under mask.
func (s *state) sells(tmpl *Template, sh int, mask bits.Set) bool {
	if len(tmpl.Segments) == 1 {
		return tmpl.ShapeMask[sh].Meets(mask)
	}
	both := s.both[:len(tmpl.Mask)]
	copy(both, mask)
	both.And(tmpl.ShapeMask[sh])
	return tmpl.open(both)
}
