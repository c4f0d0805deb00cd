package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
)

// Afresh returns a new placement with the pods on existing nodes and on those new nodes that stay. Pods that are placed next are put into
// domains that were decided before, so spreads and affinities are not asked about these until AskDomains.
func (at *Placement) Afresh(stay []problem.BinID) *Placement {
	old := at.s
	s := old.emptied()
	s.turn, s.fleet.census.pinned = nil, true
	if len(old.fleet.stock.left) == 0 {
		s.fleet.stock.prices = old.fleet.stock.prices
	}
	for _, p := range old.fleet.bins.placed {
		s.restore(p, p.Bin, old.fleet.bins.domainOf)
	}
	for _, bin := range stay {
		s.restoreBin(old, bin, old.fleet.bins.node(bin).puts)
	}
	return &Placement{s: s, left: at.left}
}

// restore commits pods of another state on a bin of this one without asking the rules. domain returns the domains of their bin there,
// p.Bin.
func (s *state) restore(p problem.Put, bin problem.BinID, domain func(key int, bin problem.BinID) int32) {
	q := s.ask(s.read(p.Class, p.Variant))
	q.bin = bin
	for i := range q.keys {
		q.domain[q.keys[i].key] = domain(q.keys[i].key, p.Bin)
	}
	if s.fleet.bins.node(bin) != nil {
		copy(q.mask, s.fleet.bins.maskOf(bin))
	}
	s.fleet.commit(q, p.Count)
}

// restoreBin adds a new bin of another state, as it was there, with some or all of its pods.
func (s *state) restoreBin(old *state, bin problem.BinID, puts []problem.Put) {
	was := old.fleet.bins.node(bin)
	at := s.fleet.addBin(target{tmpl: was.tmpl, shape: was.target, min: was.min})
	copy(s.fleet.bins.maskOf(at), old.fleet.bins.maskOf(bin))
	n := s.fleet.bins.node(at)
	if was.narrow != nil {
		n.narrow = &problem.Narrowed{To: slices.Clip(was.narrow.To), From: slices.Clip(was.narrow.From)}
	}
	if was.held != problem.NoReservation {
		s.fleet.stock.takeReserved(n, was.held)
	}
	for _, p := range puts {
		s.restore(p, at, old.fleet.bins.domainOf)
	}
}
