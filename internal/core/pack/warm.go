package pack

import (
	"cmp"
	"slices"
)

// warm offers a known fleet as the first one. Nodes that are no longer possible are dropped and their items packed greedily; without
// such nodes the fleet does not get dearer. Where the budget ends meanwhile there is none: who asked for it does without a memory then.
//
// What was true of a fleet a minute ago is mostly true of it now. Fleets that begin with the last one do not change without need, which
// matters more than price to a user who watches a plan that is not carried out yet: the nodes it names stay the same while one more pod
// arrives.
func (r *run) warm(start []Pattern) {
	if len(start) == 0 {
		return
	}
	p := r.p
	class := make(map[int]int) // class of the problem -> class of the part
	for k, members := range p.member {
		for _, m := range members {
			class[m] = k
		}
	}
	t := r.newPartial()
	var cells []int
	for _, pat := range start {
		l := load{cell: -1}
		for _, it := range pat.Items {
			if k, ok := class[it.Class]; ok && it.Count > 0 {
				l.add(k, it.Count)
			}
		}
		cells = r.cellsFor(&l, pat.Cell, cells[:0])
		n := pat.Nodes
		for _, c := range cells {
			if n > 0 {
				l.cell = c
				n -= t.buy(&l, n)
			}
		}
	}
	r.complete(t, r.worth)
}

// cellsFor lists the cells that can take the contents of a node: its own first, then those that can be had in any number, then the
// others, each by price. Where its own was pruned, the cheapest of the second kind costs no more.
//
// Contents are checked as if they had never been placed: classes may be others by number, limits and conflicts may have changed, and a
// cell may be gone.
func (r *run) cellsFor(l *load, origin int, out []int) []int {
	p := r.p
	need := make([]int64, p.dims)
	for i, k := range l.classes {
		if l.counts[i] > p.limit[k] {
			return out
		}
		for d, u := range p.needs(k) {
			need[d] = addTimes(need[d], u, l.counts[i])
		}
		if p.foes != nil && slices.ContainsFunc(p.foes[k], func(f int) bool { return slices.Contains(l.classes, f) }) {
			return out
		}
	}
	rank := func(c int) int {
		switch cell := &p.cells[c]; {
		case cell.origin == origin:
			return 0
		case cell.unlimited():
			return 1
		default:
			return 2
		}
	}
	for c := range p.cells {
		if len(l.classes) > 0 && fits(need, p.cells[c].room) && !slices.ContainsFunc(l.classes,
			func(k int) bool { return !p.mayUse(k, c) }) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}
