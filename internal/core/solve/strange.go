package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A new node whose pods do not care may be launched in any domain of a topology key. If that is one in which a spread of others neither has
// nodes nor could get any, it holds their minimum at zero from then on: kube-scheduler counts every domain of which there is a node. So the
// choice is narrowed to domains that are none too many, where anything is left to choose.

// findStrange finds, by topology key, the domains that must not come into being beside the pods that are placed.
func (s *state) findStrange() []bits.Set {
	out := make([]bits.Set, len(s.p.Keys))
	if len(out) == 0 {
		return nil
	}
	known := s.openedGroups(true)
	asked := map[*touches]bool{}
	for p := range s.puts() {
		if t := s.hard(p.Class); !asked[t] {
			asked[t] = true
			s.addStrange(out, t, known)
		}
	}
	return out
}

// addStrange adds the domains that the spreads of one class do not know.
func (s *state) addStrange(out []bits.Set, t *touches, known []spread.Group) {
	for k := range t.keys {
		to := &t.keys[k]
		for _, g := range to.owned {
			if s.groups[g].Kind != spread.Spread {
				continue
			}
			n := len(s.p.Keys[to.key].Values)
			if out[to.key] == nil {
				out[to.key] = bits.Make(n)
			}
			for d := range n {
				if !known[g].Universe.Has(d) && !to.reach.Has(d) {
					out[to.key].Add(d)
				}
			}
		}
	}
}

// avoid keeps new bins out of strange domains, where they need not be there: of what may be bought, and of what they are filled for.
func (s *state) avoid() {
	strange := s.findStrange()
	if !slices.ContainsFunc(strange, bits.Set.Any) {
		return
	}
	for bin, n := range s.newBins() {
		if len(n.puts) == 0 || n.held != noReservation {
			continue
		}
		s.leaveStrange(strange, bin)
		s.avoidChoices(strange, bin)
		if n.fixed() || !s.isStrange(strange, bin, n.target) {
			continue
		}
		shapes := s.holding(bin, s.maskOf(bin), s.used(bin), nil)
		s.cut(bin, shapes)
		shapes.Only(func(sh int) bool { return !s.isStrange(strange, bin, sh) })
		if sh := s.cheapest(n, s.maskOf(bin), shapes); sh >= 0 {
			s.retarget(bin, sh, n.min)
		}
	}
}

// leaveStrange makes a new bin another machine where what it is filled for is sold in strange domains only, and its pods do not care.
func (s *state) leaveStrange(strange []bits.Set, bin BinID) {
	n := s.node(bin)
	tmpl, less := s.template(n), s.maskOf(bin).Clone()
	for k := range strange {
		if of := s.keyOf(k, n.tmpl); of.Kind == ByChoice && s.domainOf(k, bin) == openDomain {
			for d := range strange[k].All() {
				tmpl.exclude(less, of.Choice[d])
			}
		}
	}
	if n.fixed() || s.sells(tmpl, n.target, less) || !tmpl.open(less[:len(tmpl.Mask)]) {
		return
	}
	shapes := s.holding(bin, less, s.used(bin), nil)
	s.cut(bin, shapes)
	if sh := s.cheapest(n, less, shapes); sh >= 0 {
		s.retarget(bin, sh, n.min)
	}
}

// isStrange reports whether a new bin would be in a strange domain as a machine of some shape, where its pods do not care.
func (s *state) isStrange(strange []bits.Set, bin BinID, sh int) bool {
	for k := range strange {
		of := s.keyOf(k, s.node(bin).tmpl).Shape
		if of != nil && of[sh] >= 0 && strange[k].Has(int(of[sh])) && !s.boundOf(bin)[k] {
			return true
		}
	}
	return false
}

// avoidChoices takes strange domains out of the choices of a new bin.
func (s *state) avoidChoices(strange []bits.Set, bin BinID) {
	n := s.node(bin)
	tmpl := s.template(n)
	for k := range strange {
		of := s.keyOf(k, n.tmpl)
		if of.Kind != ByChoice || s.domainOf(k, bin) != openDomain {
			continue
		}
		for d := range strange[k].All() {
			less := s.spare
			copy(less, s.maskOf(bin))
			tmpl.exclude(less, of.Choice[d])
			if !of.Choice[d].Any() || s.maskOf(bin).Equal(less) || !s.sells(tmpl, n.target, less) || !s.diverseWith(bin, less) {
				continue
			}
			copy(s.maskOf(bin), less)
			to := s.narrowed(n)
			to.From = append(to.From, Domain{k, d})
		}
	}
}

// diverseWith reports whether a new bin meets minValues with these choices left.
func (s *state) diverseWith(bin BinID, mask bits.Set) bool {
	n := s.node(bin)
	if len(s.template(n).Min) == 0 {
		return true
	}
	shapes := s.holding(bin, mask, s.used(bin), nil)
	s.cut(bin, shapes)
	return s.template(n).diverse(shapes, mask, n.lowered())
}

// exclude takes the bits out of mask that decide for a choice: where a segment is not left whole by it.
func (t *Template) exclude(mask, choice bits.Set) {
	for _, g := range t.Segments {
		whole := true
		for at := g.From; at < g.To; at++ {
			whole = whole && choice.Has(at)
		}
		for at := g.From; at < g.To && !whole; at++ {
			if choice.Has(at) {
				mask.Remove(at)
			}
		}
	}
}

// avoidShapes takes out shapes that are in strange domains, unless too few are left.
func (s *state) avoidShapes(strange []bits.Set, bin BinID, shapes bits.Set) {
	n := s.node(bin)
	for k := range strange {
		of := s.keyOf(k, n.tmpl).Shape
		if of == nil || !strange[k].Any() || s.boundOf(bin)[k] {
			continue
		}
		before := shapes.Clone()
		shapes.Only(func(sh int) bool { return of[sh] < 0 || !strange[k].Has(int(of[sh])) })
		if !s.template(n).diverse(shapes, s.maskOf(bin), n.lowered()) || !shapes.Has(n.target) {
			shapes.Copy(before)
		}
	}
}
