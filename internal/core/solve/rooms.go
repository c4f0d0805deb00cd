package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A roomTable remembers, for each template, what its shapes have of each resource, so that many pods that are too large are
// refused and explained without looking at every shape.
type roomTable struct {
	most   []quantity.Vec // [template] the most that any shape has of each resource; made when first needed
	sorted [][][]int64    // [template][resource] what the shapes have, ascending; made when first needed
}

// tooLargeFor reports whether no shape of a template has enough of some resource.
func (s *state) tooLargeFor(need quantity.Vec, t int) bool {
	if s.rooms.most == nil {
		s.rooms.most = make([]quantity.Vec, len(s.p.Templates))
	}
	if s.rooms.most[t] == nil {
		most := make(quantity.Vec, s.p.Resources)
		for sh := range s.p.Templates[t].Shapes.All() {
			most.Max(s.p.Templates[t].Room[sh])
		}
		s.rooms.most[t] = most
	}
	return !need.Fits(s.rooms.most[t])
}

// shortOf returns how many shapes of a template have less than need of each resource.
func (s *state) shortOf(need quantity.Vec, t int) []int {
	if s.rooms.sorted == nil {
		s.rooms.sorted = make([][][]int64, len(s.p.Templates))
	}
	if s.rooms.sorted[t] == nil {
		columns := make([][]int64, s.p.Resources)
		for sh := range s.p.Templates[t].Shapes.All() {
			for r, x := range s.p.Templates[t].Room[sh] {
				columns[r] = append(columns[r], x)
			}
		}
		for _, c := range columns {
			slices.Sort(c)
		}
		s.rooms.sorted[t] = columns
	}
	out := make([]int, len(need))
	for r, x := range need {
		out[r], _ = slices.BinarySearch(s.rooms.sorted[t][r], x)
	}
	return out
}

// fitting reports whether any shape of a template has enough of everything.
func (s *state) fitting(need quantity.Vec, t int) bool {
	if s.tooLargeFor(need, t) {
		return false
	}
	for sh := range s.p.Templates[t].Shapes.All() {
		if need.Fits(s.p.Templates[t].Room[sh]) {
			return true
		}
	}
	return false
}

// equipped returns how many shapes of a template have the ports and attachments that a class needs.
func (s *state) equipped(c *Class, t int) int {
	tmpl := &s.p.Templates[t]
	if len(c.Ports)+len(c.Volumes) == 0 {
		return tmpl.Shapes.Count()
	}
	n := 0
	for sh := range tmpl.Shapes.All() {
		if s.fitsHardware(c, tmpl, sh) {
			n++
		}
	}
	return n
}

// sold returns how many shapes of a template can be bought under the choices that a variant leaves.
func (s *state) sold(m *Match, t int) int {
	tmpl := &s.p.Templates[t]
	if m.Mask == nil {
		return tmpl.Shapes.Count() // what the pool lists can be bought somehow
	}
	mask := s.wide(tmpl.Mask).Clone()
	mask[:len(m.Mask)].And(m.Mask)
	n := 0
	for sh := range tmpl.Shapes.All() {
		if s.sells(tmpl, sh, mask) {
			n++
		}
	}
	return n
}

// matching returns how many shapes of a template agree with a variant's requirements.
func matching(m *Match, shapes bits.Set) int {
	if m.Shapes == nil {
		return shapes.Count()
	}
	both := shapes.Clone()
	both.And(m.Shapes)
	return both.Count()
}
