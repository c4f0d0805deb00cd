package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
)

// Afresh is the placement with what is on nodes that exist and on some of the new ones. Domains of pods that are placed next count as
// decided.
func (at *Placement) Afresh(stay []problem.BinID) *Placement {
	old := at.s
	s := old.emptied()
	s.turn, s.pinned = nil, true
	if len(old.left) == 0 {
		s.prices = old.prices
	}
	for _, p := range old.placed {
		s.restore(p, p.Bin, old.domainOf)
	}
	for _, bin := range stay {
		s.restoreBin(old, bin, old.node(bin).puts)
	}
	return &Placement{s: s, left: at.left}
}

// restore commits pods without asking, with the domains that their bin had.
func (s *state) restore(p problem.Put, bin problem.BinID, domain func(key int, bin problem.BinID) int32) {
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
func (s *state) restoreBin(old *state, bin problem.BinID, puts []problem.Put) {
	was := old.node(bin)
	at := s.open(target{tmpl: was.tmpl, shape: was.target, min: was.min})
	copy(s.maskOf(at), old.maskOf(bin))
	n := s.node(at)
	if was.narrow != nil {
		n.narrow = &problem.Narrowed{To: slices.Clip(was.narrow.To), From: slices.Clip(was.narrow.From)}
	}
	if was.held != problem.NoReservation {
		s.holds(n, was.held)
	}
	for _, p := range puts {
		s.restore(p, at, old.domainOf)
	}
}
