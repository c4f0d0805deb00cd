package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
)

// replay places everything once more, through the same rules: what is on existing nodes and on frozen bins as before, the
// rest as the packer says. It returns nil when a rule refuses what the packer meant.
func (k *packing) replay(fleet []pack.Pattern) *state {
	s := k.afresh()
	for _, pattern := range fleet {
		for range pattern.Nodes {
			if !k.build(s, &pattern) {
				return nil
			}
		}
	}
	s.pinned = false
	return s
}

// afresh is a placement of what is on existing nodes and on frozen bins, as before.
func (k *packing) afresh() *state {
	old := k.s
	s := newState(old.p)
	s.worth, s.touch, s.meter, s.pinned = old.worth, old.touch, old.meter, true
	if len(old.left) == 0 {
		s.prices = old.prices
	}
	for _, p := range old.placed {
		s.restore(p, p.Bin, nil)
	}
	for _, bin := range k.frozen {
		s.restoreBin(old, bin, old.puts[bin-len(s.p.Nodes)])
	}
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

// restoreBin adds a bin of another state with some or all of its pods.
func (s *state) restoreBin(old *state, bin int, puts []Put) {
	i := bin - len(s.p.Nodes)
	at := s.add(target{tmpl: int(old.tmpl[i]), shape: int(old.target[i]), low: old.low[i], reserve: old.reserve[i]})
	copy(s.maskOf(at), old.maskOf(bin))
	j := at - len(s.p.Nodes)
	if n, ok := old.narrow[i]; ok {
		s.narrow[j] = Narrowed{To: slices.Clip(n.To), From: slices.Clip(n.From)}
	}
	if s.held[j] = old.held[i]; s.held[j] >= 0 {
		s.left[s.held[j]]--
	}
	for _, p := range puts {
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
	k.keepReserved(s, bin)
	return true
}

// keepReserved takes reserved offers out of a bin's choices: whoever was to have a reserved machine is in a frozen bin.
func (k *packing) keepReserved(s *state, bin int) {
	if cat := s.p.Templates[s.tmpl[bin-len(s.p.Nodes)]].Catalog; len(cat.Left) > 0 {
		for o := range cat.Offers {
			if cat.Offers[o].Reservation >= 0 {
				s.maskOf(bin).Remove(o)
			}
		}
	}
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
