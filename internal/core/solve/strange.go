package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A new node whose pods do not care may be launched in any domain of a topology key. If that is one in which a
// spread of others neither has nodes nor could get any, it holds their minimum at zero from then on: kube-scheduler
// counts every domain of which there is a node. So the choice is narrowed to domains that are none too many, where
// anything is left to choose.

// A stranger is what must not come into being beside the pods that are placed.
type stranger struct {
	domains []bits.Set // by topology key
	spreads []stray
}

// A stray is a spread with a filter that some placed pod has: a node that passes the filter must not be where the spread has no domain.
type stray struct {
	group int
	known bits.Set // the domains that it has, or that the pod may get
}

// findStrange finds what must not come into being.
func (s *state) findStrange() stranger {
	out := stranger{domains: make([]bits.Set, len(s.p.Keys))}
	if len(out.domains) == 0 {
		return out
	}
	known := s.openedGroups(true)
	asked := map[*touches]bool{}
	for p := range s.puts() {
		if t := s.hard(p.Class); !asked[t] {
			asked[t] = true
			s.addStrange(&out, t, known)
		}
	}
	return out
}

// addStrange adds the domains that the spreads of one class do not know.
func (s *state) addStrange(out *stranger, t *touches, known []spread.Group) {
	for k := range t.keys {
		to := &t.keys[k]
		for _, g := range to.owned {
			if s.groups[g].Kind != spread.Spread {
				continue
			}
			n := len(s.p.Keys[to.key].Values)
			if out.domains[to.key] == nil {
				out.domains[to.key] = bits.Make(n)
			}
			mine := bits.Make(n)
			for d := range n {
				if known[g].Universe.Has(d) || to.reach.Has(d) {
					mine.Add(d)
				} else {
					out.domains[to.key].Add(d)
				}
			}
			if len(s.groups[g].Filter) > 0 {
				out.spreads = append(out.spreads, stray{g, mine})
			}
		}
	}
}

// avoid keeps new bins out of strange domains, where they need not be there: of what may be bought, and of what they are filled for.
func (s *state) avoid() {
	strange := s.findStrange().domains
	if !slices.ContainsFunc(strange, bits.Set.Any) {
		return
	}
	for bin, n := range s.newBins() {
		if len(n.puts) == 0 || n.held != problem.NoReservation {
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

// leaveStrange makes a new bin another machine if the shape for which it is filled is sold in strange domains only,
// and its pods do not care.
func (s *state) leaveStrange(strange []bits.Set, bin problem.BinID) {
	n := s.node(bin)
	tmpl, less := s.template(n), s.maskOf(bin).Clone()
	for k := range strange {
		if of := s.keyOf(k, n.tmpl); of.Kind == problem.ByChoice && s.domainOf(k, bin) == problem.OpenDomain {
			for d := range strange[k].All() {
				tmpl.Exclude(less, of.Choice[d])
			}
		}
	}
	if n.fixed() || s.sells(tmpl, n.target, less) || !tmpl.SellsAny(less[:len(tmpl.Mask)]) {
		return
	}
	shapes := s.holding(bin, less, s.used(bin), nil)
	s.cut(bin, shapes)
	if sh := s.cheapest(n, less, shapes); sh >= 0 {
		s.retarget(bin, sh, n.min)
	}
}

// isStrange reports whether a new bin would be in a strange domain as a machine of some shape, where its pods do not care.
func (s *state) isStrange(strange []bits.Set, bin problem.BinID, sh int) bool {
	for k := range strange {
		of := s.keyOf(k, s.node(bin).tmpl).Shape
		if of != nil && of[sh] >= 0 && strange[k].Has(int(of[sh])) && !s.boundOf(bin)[k] {
			return true
		}
	}
	return false
}

// avoidChoices takes strange domains out of the choices of a new bin.
func (s *state) avoidChoices(strange []bits.Set, bin problem.BinID) {
	n := s.node(bin)
	tmpl := s.template(n)
	for k := range strange {
		of := s.keyOf(k, n.tmpl)
		if of.Kind != problem.ByChoice || s.domainOf(k, bin) != problem.OpenDomain {
			continue
		}
		for d := range strange[k].All() {
			less := s.spare
			copy(less, s.maskOf(bin))
			tmpl.Exclude(less, of.Choice[d])
			if !of.Choice[d].Any() || s.maskOf(bin).Equal(less) || !s.sells(tmpl, n.target, less) || !s.diverseWith(bin, less) {
				continue
			}
			copy(s.maskOf(bin), less)
			to := s.narrowed(n)
			to.From = append(to.From, problem.Domain{Key: k, Value: d})
		}
	}
}

// diverseWith reports whether a new bin meets minValues with these choices left.
func (s *state) diverseWith(bin problem.BinID, mask bits.Set) bool {
	n := s.node(bin)
	if len(s.template(n).Min) == 0 {
		return true
	}
	shapes := s.holding(bin, mask, s.used(bin), nil)
	s.cut(bin, shapes)
	return s.template(n).MeetsMinValues(shapes, mask, n.lowered())
}

// avoidShapes takes out shapes that are in strange domains, or that make the bin's own domain one of a spread that
// has it not, unless too few are left.
func (s *state) avoidShapes(strange *stranger, bin problem.BinID, shapes bits.Set) {
	n := s.node(bin)
	for k, domains := range strange.domains {
		of := s.keyOf(k, n.tmpl).Shape
		if of == nil || !domains.Any() || s.boundOf(bin)[k] {
			continue
		}
		s.onlyDiverse(bin, shapes, func(sh int) bool { return of[sh] < 0 || !domains.Has(int(of[sh])) })
	}
	for _, x := range strange.spreads {
		group := &s.groups[x.group]
		foreign := func(d int32) bool { return !x.known.Has(int(d)) }
		if !s.countsAs(group, bin, n.target) && slices.ContainsFunc(s.mayBeIn(group.Key, bin, nil), foreign) {
			s.onlyDiverse(bin, shapes, func(sh int) bool { return !s.countsAs(group, bin, sh) })
		}
	}
}

// onlyDiverse keeps the shapes of a new bin that are wanted, unless too few are left.
func (s *state) onlyDiverse(bin problem.BinID, shapes bits.Set, wanted func(sh int) bool) {
	n := s.node(bin)
	before := shapes.Clone()
	shapes.Only(wanted)
	if !s.template(n).MeetsMinValues(shapes, s.maskOf(bin), n.lowered()) || !shapes.Has(n.target) {
		shapes.Copy(before)
	}
}
