package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"

	"karpenter.sh/karpenter/internal/core/problem"
)

// grow gives a new bin another target that can also hold the pod of a trial, because it is larger or can be in the domain that the pod
// needs, and places the pod there. It returns false and changes nothing if there is no such target.
func (s *state) grow(q *trial, bin problem.BinID) bool {
	n := s.fleet.bins.node(bin)
	m := s.facts.match(q.v, n.tmpl)
	if n.held != problem.NoReservation || !m.OK || !s.facts.tolerates(q.v, n.tmpl) {
		return false
	}
	mask := s.fleet.bins.maskOf(bin).Clone()
	mask.Keep(m.Mask)
	if !s.fleet.census.keepAdmitted(q, mask) {
		return false
	}
	need := s.fleet.bins.used(bin)
	need.Add(q.c.Need)
	shapes := s.fleet.bins.holding(bin, mask, need, m)
	s.fleet.cut(bin, shapes)
	s.fleet.census.cutRefused(q, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, s.fleet.bins.template(n), sh) })
	s.fleet.cutVolumesWith(bin, q.c.Volumes, shapes)
	s.fleet.cutDevices(bin, q.c.Devices, shapes)
	if !shapes.Any() {
		return false
	}
	shapes = shapes.Clone()
	for buy := shapes.Clone(); ; {
		best := s.fleet.stock.cheapest(n, mask, buy)
		if best < 0 {
			return false
		}
		if s.growTo(q, best, mask, shapes) {
			return true
		}
		if len(s.fleet.bins.template(n).Min) == 0 {
			return false // other shapes are tried only for minValues, which may be met in other domains
		}
		buy.Only(func(sh int) bool { return !s.sharesDomains(q, sh, best) })
	}
}

// growTo tries one target for grow. shapes are all that could hold the pods; minValues need them. If the pod is refused, the bin gets its
// old target back.
func (s *state) growTo(q *trial, to int, mask, shapes bits.Set) bool {
	n := s.fleet.bins.node(q.bin)
	old, before := n.target, n.min
	min, ok := s.fleet.stock.minimumAs(n, to, mask, shapes)
	if !ok {
		return false
	}
	s.fleet.retarget(q.bin, to, min)
	if s.fleet.try(q, q.bin).code != 0 {
		s.fleet.retarget(q.bin, old, before)
		return false
	}
	s.fleet.commit(q, 1)
	return true
}

// sharesDomains reports whether two shapes may be in the same domains, as far as a trial has to do with them.
func (s *state) sharesDomains(q *trial, a, b int) bool {
	t := s.fleet.bins.node(q.bin).tmpl
	if !s.facts.p.Templates[t].ShapeMask[a].Equal(s.facts.p.Templates[t].ShapeMask[b]) {
		return false
	}
	for k := range q.keys {
		if of := s.facts.keyOf(q.keys[k].key, t).Shape; of != nil && of[a] != of[b] {
			return false
		}
	}
	return true
}

// cheapest returns the cheapest of some shapes for a new bin that can be bought under mask and that limits allow in place of the present
// target; −1 if there is none.
func (k *stock) cheapest(n *newNode, mask, shapes bits.Set) int {
	k.limits.give(n)
	defer k.limits.take(n)
	prices := k.pricesOf(n.tmpl, mask)
	best := -1
	for sh := range shapes.All() {
		if sh < len(prices) && prices[sh] != 0 && k.limits.allowed(n.tmpl, sh) && (best < 0 || prices[sh] < prices[best]) {
			best = sh
		}
	}
	return best
}
