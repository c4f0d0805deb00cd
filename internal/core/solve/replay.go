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
	s := old.emptied()
	s.turn, s.pinned = nil, true
	if len(old.left) == 0 {
		s.prices = old.prices
	}
	for _, p := range old.placed {
		s.restore(p, p.Bin, old.domainOf)
	}
	for _, bin := range k.frozen {
		s.restoreBin(old, bin, old.node(bin).puts)
	}
	return s
}

// restore commits pods without asking, with the domains that their bin had.
func (s *state) restore(p Put, bin BinID, domain func(key int, bin BinID) int32) {
	q := s.ask(s.read(p.Class, p.Variant))
	q.bin = bin
	for i := range q.keys {
		q.domain[q.keys[i].key] = domain(q.keys[i].key, p.Bin)
	}
	if s.node(bin) != nil {
		copy(q.mask, s.maskOf(bin))
	}
	s.commit(q, p.Count)
}

// restoreBin adds a bin of another state with some or all of its pods.
func (s *state) restoreBin(old *state, bin BinID, puts []Put) {
	was := old.node(bin)
	at := s.open(target{tmpl: was.tmpl, shape: was.target, min: was.min})
	copy(s.maskOf(at), old.maskOf(bin))
	n := s.node(at)
	if was.narrow != nil {
		n.narrow = &Narrowed{To: slices.Clip(was.narrow.To), From: slices.Clip(was.narrow.From)}
	}
	if was.held != noReservation {
		s.holds(n, was.held)
	}
	for _, p := range puts {
		s.restore(p, at, old.domainOf)
	}
}

// build opens one node of a pattern and fills it.
func (k *packing) build(s *state, pattern *pack.Pattern) bool {
	bin := k.openCell(s, pattern)
	for _, x := range pattern.Items {
		it := &k.items[x.Class]
		q := s.ask(s.read(it.class, it.variant))
		for n := x.Count; n > 0; {
			if s.try(q, bin).code != 0 {
				return false
			}
			many := min(n, s.most(q, n))
			s.commit(q, many)
			n -= many
		}
	}
	return true
}

// openCell opens a node of a pattern in the domains of its items. Whoever was to have a reserved machine is in a frozen bin.
func (k *packing) openCell(s *state, pattern *pack.Pattern) BinID {
	cell := &k.cells[pattern.Cell]
	bin := s.open(target{tmpl: cell.tmpl, shape: cell.shape})
	s.template(s.node(bin)).withoutReserved(s.maskOf(bin))
	for _, x := range pattern.Items {
		k.pin(s, bin, &k.items[x.Class])
	}
	return bin
}

// pin gives the bin the domains of an item before its pods come.
func (k *packing) pin(s *state, bin BinID, it *item) {
	for key, d := range it.pins {
		if d < 0 || s.domainOf(key, bin) != openDomain {
			continue
		}
		s.domainsOf(bin)[key] = d
		s.maskOf(bin).And(s.keyOf(key, s.node(bin).tmpl).Choice[d])
	}
}
