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
	for _, puts := range append([][]Put{s.placed}, s.puts...) {
		for _, p := range puts {
			if t := s.hard(p.Class); !asked[t] {
				asked[t] = true
				s.addStrange(out, t, known)
			}
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
	for bin := len(s.p.Nodes); bin < s.bins; bin++ {
		i := bin - len(s.p.Nodes)
		if len(s.puts[i]) == 0 || s.held[i] >= 0 {
			continue
		}
		s.avoidChoices(strange, bin)
		if s.reserve[i] != nil || !s.isStrange(strange, bin, int(s.target[i])) {
			continue
		}
		s.holding(bin, s.maskOf(bin), s.used(bin), nil)
		s.cutByDomain(bin)
		s.cutByFilter(bin)
		s.cutByArrivals(int(s.tmpl[i]), int(s.target[i]))
		s.cutByHardware(bin)
		for sh := range s.shapes.All() {
			if s.isStrange(strange, bin, sh) {
				s.shapes.Remove(sh)
			}
		}
		if sh := s.cheapestOf(bin, s.maskOf(bin)); sh >= 0 {
			s.retarget(bin, sh)
		}
	}
}

// isStrange reports whether a new bin would be in a strange domain as a machine of some shape, where its pods do not care.
func (s *state) isStrange(strange []bits.Set, bin, sh int) bool {
	for k := range strange {
		of := s.p.Keys[k].Tmpl[s.tmpl[bin-len(s.p.Nodes)]].Shape
		if of != nil && of[sh] >= 0 && strange[k].Has(int(of[sh])) && !s.counted(k, bin) {
			return true
		}
	}
	return false
}

// avoidChoices takes strange domains out of the choices of a new bin.
func (s *state) avoidChoices(strange []bits.Set, bin int) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	for k := range strange {
		of := &s.p.Keys[k].Tmpl[s.tmpl[i]]
		if of.Choice == nil || s.domainOf(k, bin) != openDomain {
			continue
		}
		for d := range strange[k].All() {
			less := bits.Set(s.masks[0])
			copy(less, s.maskOf(bin))
			tmpl.exclude(less, of.Choice[d])
			if !of.Choice[d].Any() || s.maskOf(bin).Equal(less) || !s.sells(tmpl, int(s.target[i]), less) {
				continue
			}
			copy(s.maskOf(bin), less)
			n := s.narrow[i]
			n.From = append(n.From, Domain{k, d})
			s.narrow[i] = n
		}
	}
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

// avoidShapes takes shapes out of s.shapes that are in strange domains, unless too few are left.
func (s *state) avoidShapes(strange []bits.Set, bin int) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	for k := range strange {
		of := &s.p.Keys[k].Tmpl[s.tmpl[i]]
		if of.Shape == nil || !strange[k].Any() || s.counted(k, bin) {
			continue
		}
		before := s.shapes.Clone()
		for sh := range before.All() {
			if d := of.Shape[sh]; d >= 0 && strange[k].Has(int(d)) {
				s.shapes.Remove(sh)
			}
		}
		if !s.shapes.Has(int(s.target[i])) || slices.ContainsFunc(tmpl.Min, func(m MinValues) bool { return tmpl.Catalog.Distinct(m.Key, s.shapes, m.N) < m.N }) {
			s.shapes.Copy(before)
		}
	}
}
