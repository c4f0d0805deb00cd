package pack

import (
	"cmp"
	"slices"
)

// warm makes a known fleet the first best one. Nodes that are no longer possible are dropped, and their items are packed greedily. If the
// budget ends first, r.best stays nil, and Memory.answer gives up.
//
// A fleet that begins with the last one does not change without need: the nodes of a plan that is not carried out yet stay the same when
// one more pod arrives.
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

// cellsFor appends to out the cells that can hold the contents l: first the cell with the index origin in the problem, then unlimited
// cells, then the others, each by price. If origin was pruned, an unlimited cell that costs no more takes its place.
//
// The contents are checked from scratch, because numbers, limits per node, conflicts and cells may have changed.
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
