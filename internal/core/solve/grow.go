package solve

import "karpenter.sh/karpenter/internal/core/bits"

// grow makes a new bin fit for one more pod by choosing another target, a larger one or one that the pod accepts, and places it there.
func (s *state) grow(q *trial, bin BinID) bool {
	n := s.node(bin)
	m, old, before := s.match(q.v, n.tmpl), n.target, n.min
	if n.held != noReservation || !m.OK || !s.tolerates(q.v, n.tmpl) {
		return false
	}
	need := s.used(bin)
	need.Add(q.c.Need)
	mask := s.maskOf(bin).Clone()
	mask.Keep(m.Mask)
	shapes := s.holding(bin, mask, need, m)
	s.cut(bin, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, s.template(n), sh) })
	s.cutVolumesWith(bin, q.c.Volumes, shapes)
	best := s.cheapest(n, mask, shapes)
	if best < 0 {
		return false
	}
	min, ok := s.minimumAs(n, best, mask, shapes)
	if !ok {
		return false
	}
	s.retarget(bin, best, min)
	if s.try(q, bin).code != 0 {
		s.retarget(bin, old, before)
		return false
	}
	s.commit(q, 1)
	return true
}

// cheapest returns the cheapest of some shapes that a new bin can be bought as under mask within its pool's limits, −1 if there is none.
func (s *state) cheapest(n *newNode, mask, shapes bits.Set) int {
	tmpl := s.template(n)
	limit := s.limits[tmpl.Pool].Clone()
	limit.Give(s.takenBy(n))
	prices := s.pricesOf(n.tmpl, mask)
	best := -1
	for sh := range shapes.All() {
		if sh < len(prices) && prices[sh] != 0 && limit.Fits(tmpl.Catalog.Capacity[sh]) && (best < 0 || prices[sh] < prices[best]) {
			best = sh
		}
	}
	return best
}
