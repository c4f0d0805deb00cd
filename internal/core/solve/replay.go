package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
)

// replay places everything once more, through the same rules: what is on existing nodes and on frozen bins as before, the
// rest as the packer says. It returns nil when a rule refuses what the packer meant.
func (k *packing) replay(fleet []pack.Pattern) *state {
	old := k.s
	s := newState(old.p)
	s.worth, s.touch, s.pinned = old.worth, old.touch, true
	for _, p := range old.placed {
		s.restore(p, p.Bin, nil)
	}
	for _, bin := range k.frozen {
		s.restoreBin(old, bin)
	}
	for _, pattern := range fleet {
		for range pattern.Nodes {
			if !k.build(s, &pattern) {
				return nil
			}
		}
	}
	s.pinned = false
	s.trials += old.trials
	return s
}

// restore commits pods without asking, with the domains that their bin had.
func (s *state) restore(p Put, bin int, domain func(key int) int32) {
	t := s.touchesOf(p.Class, p.Variant)
	for i := range t.keys {
		key := t.keys[i].key
		if domain == nil {
			s.choice[key] = s.domainOf(key, bin)
		} else {
			s.choice[key] = domain(key)
		}
	}
	if bin >= len(s.p.Nodes) {
		copy(s.masks[0], s.maskOf(bin))
	}
	s.commit(p.Class, p.Variant, bin, p.Count)
}

// restoreBin adds a bin of another state with all its pods.
func (s *state) restoreBin(old *state, bin int) {
	i := bin - len(s.p.Nodes)
	at := s.add(target{tmpl: int(old.tmpl[i]), shape: int(old.target[i]), low: old.low[i], reserve: old.reserve[i]})
	copy(s.maskOf(at), old.maskOf(bin))
	j := at - len(s.p.Nodes)
	if s.held[j] = old.held[i]; s.held[j] >= 0 {
		s.left[s.held[j]]--
	}
	for _, p := range old.puts[i] {
		s.restore(p, at, func(key int) int32 { return old.domain[key][i] })
	}
}

// build opens one node of a pattern and fills it.
func (k *packing) build(s *state, pattern *pack.Pattern) bool {
	cell := &k.cells[pattern.Cell]
	bin := s.add(target{tmpl: cell.tmpl, shape: cell.shape})
	i := bin - len(s.p.Nodes)
	for _, x := range pattern.Items {
		k.pin(s, bin, i, cell, &k.items[x.Class])
	}
	for _, x := range pattern.Items {
		it := &k.items[x.Class]
		c := &s.p.Classes[it.class]
		t := s.touchesOf(it.class, it.variant)
		for n := x.Count; n > 0; {
			if s.try(c, &c.Variants[it.variant], t, bin).code != 0 {
				return false
			}
			many := min(n, s.most(c, t, bin, n))
			s.commit(it.class, it.variant, bin, many)
			n -= many
		}
	}
	if cat := s.p.Templates[cell.tmpl].Catalog; len(cat.Left) > 0 {
		for o := range cat.Offers { // whoever was to have a reserved machine is in a frozen bin
			if cat.Offers[o].Reservation >= 0 {
				s.maskOf(bin).Remove(o)
			}
		}
	}
	return true
}

// pin gives the bin the domains of an item before its pods come.
func (k *packing) pin(s *state, bin, i int, cell *packCell, it *item) {
	for key, d := range it.pins {
		if d < 0 || s.domain[key][i] != openDomain {
			continue
		}
		of := &s.p.Keys[key].Tmpl[cell.tmpl]
		s.domain[key][i] = d
		s.maskOf(bin)[:len(of.Choice[d])].And(of.Choice[d])
	}
}

// improve asks the packer for a cheaper fleet, and for a bound where its question is the whole one. It returns the better of the two
// placements.
func (s *state) improve(r *Result) *state {
	k := s.repack()
	if k == nil {
		return s
	}
	answer := pack.Solve(&k.problem, s.packOptions())
	s.trials += answer.Trials
	r.Memory.Fleet = answer.Memory
	if len(k.frozen) == 0 && !k.pinned && k.plain() {
		r.Volume, r.Config = answer.VolumeBound, answer.ConfigBound
		r.Proof = Proof{Problem: &k.problem, Size: s.packSize(), Certificate: answer.Certificate}
	}
	if slices.ContainsFunc(answer.Left, func(n int) bool { return n > 0 }) {
		return s
	}
	better := k.replay(answer.Fleet)
	if better == nil {
		return s
	}
	return better
}

// plain reports whether the packer's own bound holds for every plan: no item could be read another way at the same level, and
// no pool is limited, reserved or bound to minValues.
func (k *packing) plain() bool {
	s := k.s
	for t := range s.p.Templates {
		if tmpl := &s.p.Templates[t]; s.limits[tmpl.Pool].Limited || len(tmpl.Min) > 0 || len(tmpl.Catalog.Left) > 0 {
			return false
		}
	}
	loose := &packing{s: s, loose: true}
	for i := range k.items {
		if len(loose.readings(&k.items[i])) > 1 || k.takesExotic(i) {
			return false
		}
	}
	return true
}

// takesExotic reports whether an item runs on exotic machines, in whose room others may ride along.
func (k *packing) takesExotic(i int) bool {
	for c := range k.cells {
		if cell := &k.cells[c]; k.s.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) {
			if k.problem.Classes[i].Cells.Has(c) {
				return true
			}
		}
	}
	return false
}
