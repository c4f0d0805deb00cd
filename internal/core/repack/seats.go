package repack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// The packer says how many pods of each size a node holds. Here each node gets its pods. A pod may join a node if the rules about the host
// allow it in any order in which kube-scheduler may bind the pods of the node. A pod that may join none where the packer meant it changes
// places with another pod.

// A seating is the pods of one node that assign is about to open.
type seating struct {
	a    *assignment
	cell int
	room []int64 // that is left
	pods []*part // one for each pod
}

// seat gives each node of a fleet its pods. Parts say how many of their pods got none.
func (a *assignment) seat(fleet []pack.Pattern) (nodes []*seating) {
	for _, pattern := range fleet {
		for range pattern.Nodes {
			s := &seating{a: a, cell: pattern.Cell, room: slices.Clone(a.q.problem.Cells[pattern.Cell].Room)}
			for _, x := range pattern.Items {
				s.fill(&a.sizes[x.Class], x.Count)
			}
			nodes = append(nodes, s)
		}
	}
	for i := range a.sizes {
		for _, p := range a.sizes[i].parts {
			for p.left > 0 && a.makePlace(nodes, p) {
			}
		}
	}
	rank := a.ranks()
	for _, s := range nodes {
		slices.SortStableFunc(s.pods, func(a, b *part) int { return cmp.Compare(rank[a.class], rank[b.class]) })
	}
	return nodes
}

// ranks returns, by class, where its first pod stands in the queue of kube-scheduler.
func (a *assignment) ranks() []int {
	rank := make([]int, len(a.q.p.Classes))
	for at, ci := range slices.Backward(a.q.p.Queue) {
		rank[ci] = at
	}
	return rank
}

// fill adds up to n pods of a size: first tied ones, those with the highest pressure before others.
func (s *seating) fill(of *size, n int) {
	tied := of.parts[:of.tied]
	slices.SortStableFunc(tied, func(p, q *part) int { return cmp.Compare(s.a.pressure(q), s.a.pressure(p)) })
	for _, p := range of.parts {
		for ; n > 0 && p.left > 0 && s.admits(p); n-- {
			s.add(p)
		}
	}
}

// makePlace finds a place for a pod of a part: on a node with room, or in the place of a pod that moves to another node. It reports
// whether there is one.
func (a *assignment) makePlace(nodes []*seating, p *part) bool {
	for _, s := range nodes {
		if s.holds(p) && s.admits(p) {
			s.add(p)
			return true
		}
	}
	for _, s := range nodes {
		for i, other := range s.pods {
			if other == p || a.meter.Cut() {
				continue
			}
			s.remove(i)
			if s.holds(p) && s.admits(p) {
				s.add(p)
				if to := slices.IndexFunc(nodes, func(t *seating) bool { return t.holds(other) && t.admits(other) }); to >= 0 {
					nodes[to].add(other)
					return true
				}
				s.remove(len(s.pods) - 1)
			}
			s.insert(i, other)
		}
	}
	return false
}

// holds reports whether a node of this cell may have a pod of the part, and has room for it.
func (s *seating) holds(p *part) bool {
	s.a.meter.Charge(seatWork)
	c, same := &s.a.q.problem.Classes[p.size], 0
	for _, x := range s.pods {
		if x.size == p.size {
			same++
		}
	}
	return c.Cells.Has(s.cell) && quantity.Vec(c.Need).Fits(s.room) && (c.PerNode == 0 || same < c.PerNode)
}

// seatWork is the work of a look at one node.
const seatWork = 10

// admits reports whether the rules about the host allow a pod of the part beside the pods of the node, in any order.
func (s *seating) admits(p *part) bool {
	for _, g := range p.owned {
		if !s.allows(g, p) {
			return false
		}
	}
	for _, g := range p.counted {
		if !s.allows(g, p) {
			return false
		}
	}
	return true
}

// allows reports whether group g allows one more pod: if a pod of the node carries the rule, the node has no more pods that it counts than
// the rule allows when the last one comes.
func (s *seating) allows(g int, more *part) bool {
	group := &s.a.q.p.Groups[g]
	owners, counted, strangers := 0, 0, 0 // strangers carry the rule, but it does not count them
	note := func(p *part) {
		own, count := slices.Contains(p.owned, g), slices.Contains(p.counted, g)
		if own {
			owners++
		}
		if count {
			counted++
		}
		if own && !count {
			strangers++
		}
	}
	note(more)
	for _, p := range s.pods {
		note(p)
	}
	switch {
	case owners == 0:
		return true
	case group.Kind == spread.Spread:
		return counted <= int(group.MaxSkew)
	default:
		return counted == 0 || counted == 1 && strangers == 0
	}
}

// add seats a pod of the part on the node.
func (s *seating) add(p *part) { s.insert(len(s.pods), p) }

// insert seats a pod of the part before the pod at an index.
func (s *seating) insert(at int, p *part) {
	s.pods = slices.Insert(s.pods, at, p)
	s.take(p, 1)
}

// remove takes the pod at an index off the node.
func (s *seating) remove(at int) {
	s.take(s.pods[at], -1)
	s.pods = slices.Delete(s.pods, at, at+1)
}

// take notes that n pods of the part joined the node.
func (s *seating) take(p *part, n int) {
	for d, u := range s.a.q.problem.Classes[p.size].Need {
		s.room[d] -= u * int64(n)
	}
	p.left -= n
	for _, g := range p.owned {
		s.a.waiting[g] -= n
	}
}

// pattern returns the cell and the sizes of the pods, as the packer would write them.
func (s *seating) pattern() *pack.Pattern {
	out := &pack.Pattern{Cell: s.cell, Nodes: 1}
	for _, p := range s.pods {
		out.Items = append(out.Items, pack.Item{Class: p.size, Count: 1})
	}
	return out
}
