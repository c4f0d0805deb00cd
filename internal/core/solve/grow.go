package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"

	"karpenter.sh/karpenter/internal/core/problem"
)

// grow makes a new bin fit for one more pod by choosing another target, a larger one, or one which may be where the pod
// has to be, and places it there.
func (s *state) grow(q *trial, bin problem.BinID) bool {
	n := s.node(bin)
	m := s.match(q.v, n.tmpl)
	if n.held != problem.NoReservation || !m.OK || !s.tolerates(q.v, n.tmpl) {
		return false
	}
	mask := s.maskOf(bin).Clone()
	mask.Keep(m.Mask)
	if !s.keepAdmitted(q, mask) {
		return false
	}
	need := s.used(bin)
	need.Add(q.c.Need)
	shapes := s.holding(bin, mask, need, m)
	s.cut(bin, shapes)
	s.cutRefused(q, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, s.template(n), sh) })
	s.cutVolumesWith(bin, q.c.Volumes, shapes)
	s.cutDevices(bin, q.c.Devices, shapes)
	if !shapes.Any() {
		return false
	}
	shapes = shapes.Clone()
	for buy := shapes.Clone(); ; {
		best := s.cheapest(n, mask, buy)
		if best < 0 {
			return false
		}
		if s.growTo(q, best, mask, shapes) {
			return true
		}
		if len(s.template(n).Min) == 0 {
			return false // nothing else was chosen for the sake of others
		}
		buy.Only(func(sh int) bool { return !s.sharesDomains(q, sh, best) })
	}
}

// growTo is grow for one target of shapes that could hold the pods.
func (s *state) growTo(q *trial, to int, mask, shapes bits.Set) bool {
	n := s.node(q.bin)
	old, before := n.target, n.min
	min, ok := s.minimumAs(n, to, mask, shapes)
	if !ok {
		return false
	}
	s.retarget(q.bin, to, min)
	if s.try(q, q.bin).code != 0 {
		s.retarget(q.bin, old, before)
		return false
	}
	s.commit(q, 1)
	return true
}

// sharesDomains reports whether two shapes may be in the same domains, as far as a trial has to do with them.
func (s *state) sharesDomains(q *trial, a, b int) bool {
	t := s.node(q.bin).tmpl
	if !s.p.Templates[t].ShapeMask[a].Equal(s.p.Templates[t].ShapeMask[b]) {
		return false
	}
	for k := range q.keys {
		if of := s.keyOf(q.keys[k].key, t).Shape; of != nil && of[a] != of[b] {
			return false
		}
	}
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
