package repack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Where one node may hold few pods of an application whose pods are of many sizes, the packer cannot be told so in pairs of classes.
// It is asked as if there were no such rule: then all pods of one size are equal, so the question is small and its answer good, and it
// says how many pods of each size every node should hold. Which ones those are is decided as nodes are filled, by the rules
// themselves: those that have the fewest places to go come first, and pods without a place where the packer meant it is placed at last.

// A size is pods that are equal to the packer: one of its items, which stands for several of our items.
type size struct {
	parts []part
	tied  int // so many parts at the front are held apart on a host
	first int // parts before it have their places, once the tied ones have been asked
}

// A part is an item, and what is left of it.
type part struct {
	item
	left   int
	groups []int // host-level groups that hold them apart
}

// An assignment decides which pods of a size go to which node.
type assignment struct {
	q       *question
	sizes   []size
	waiting []int // by group: pods that have no place yet
}

// assign packs pods that are held apart on a host by what cannot be told the packer, or returns nil where there are none or they find
// no place. It says how many steps too large a machine may be for anybody.
func assign(p *problem.Problem, at *solve.Placement) (idea *solve.Placement, over int) {
	q := newQuestion(p, at)
	q.collect(nil)
	bad := map[problem.ClassID]bool{}
	if len(q.items) == 0 || !q.tie(bad) {
		return nil, 0
	}
	a := &assignment{q: q, waiting: make([]int, len(p.Groups))}
	a.sort(bad)
	q.makeCells()
	q.makeLimits()
	// The first fleet will do: what a search would gain is less than filling its nodes costs.
	answer := pack.Solve(&q.problem, pack.Options{Gain: p.Settings.GainPermille, Fast: true, Most: 1, Meter: at.Meter()})
	idea = at.Afresh(q.frozen)
	for _, pattern := range answer.Fleet {
		for range pattern.Nodes {
			bin := q.open(idea, &pattern)
			for _, x := range pattern.Items {
				a.fill(idea, bin, &a.sizes[x.Class], x.Count)
			}
		}
	}
	if !a.placeRest(idea) {
		return nil, 0
	}
	return idea, answer.Certificate.Over
}

// sort makes one item of all that are equal to the packer, once it knows nothing of ties among several of them.
func (a *assignment) sort(bad map[problem.ClassID]bool) {
	q := a.q
	known := map[string]int{}
	var key []byte
	var items []item
	var classes []pack.Class
	for i := range q.items {
		it := &q.items[i]
		most := q.problem.Classes[i].PerNode
		if bad[it.class] || most >= it.count {
			most = 0
		}
		key = q.sizeKey(key[:0], it)
		if key = identity.Flag(key, most > 0); most > 0 {
			key = identity.Number(key, int64(i)) // a cap of its own
		}
		at, ok := known[string(key)]
		if !ok {
			at = len(items)
			known[string(key)] = at
			items = append(items, *it)
			items[at].count = 0
			classes = append(classes, pack.Class{PerNode: most})
			a.sizes = append(a.sizes, size{})
		}
		items[at].count += it.count
		groups := q.at.Ties(it.class, it.variant).Owned
		for _, g := range groups {
			a.waiting[g] += it.count
		}
		a.sizes[at].parts = append(a.sizes[at].parts, part{*it, it.count, groups})
	}
	q.items = items
	q.problem = pack.Problem{Classes: classes}
	for i := range a.sizes {
		s := &a.sizes[i]
		slices.SortStableFunc(s.parts, func(a, b part) int { return cmp.Compare(min(len(b.groups), 1), min(len(a.groups), 1)) })
		for s.tied < len(s.parts) && len(s.parts[s.tied].groups) > 0 {
			s.tied++
		}
		s.first = s.tied
	}
}

// sizeKey identifies items that are equal to the packer: they need as much and may go to the same machines.
func (q *question) sizeKey(key []byte, it *item) []byte {
	key = q.kindKey(key, it)
	return identity.Numbers(key, q.needOf(it.class))
}

// fill puts n pods of a size on a bin, or as many as may be there: those that have the fewest other places first.
func (a *assignment) fill(idea *solve.Placement, bin problem.BinID, s *size, n int) {
	tied := s.parts[:s.tied]
	for i := 1; i < len(tied); i++ { // nearly in order since the last time
		for j := i; j > 0 && a.pressure(&tied[j]) > a.pressure(&tied[j-1]); j-- {
			tied[j], tied[j-1] = tied[j-1], tied[j]
		}
	}
	for i := 0; i < len(tied) && n > 0; i++ {
		n -= a.put(idea, bin, &tied[i], n)
	}
	for i := s.first; i < len(s.parts) && n > 0; i++ {
		n -= a.put(idea, bin, &s.parts[i], n)
		if s.parts[i].left == 0 && i == s.first {
			s.first++
		}
	}
}

// pressure is how many pods of the part's groups wait for each place that a node has for them.
func (a *assignment) pressure(p *part) int {
	if p.left == 0 {
		return -1
	}
	most := 0
	for _, g := range p.groups {
		most = max(most, a.waiting[g]/max(1, int(a.q.p.Groups[g].MaxSkew)))
	}
	return most
}

// put places up to n pods of a part on a bin and returns how many.
func (a *assignment) put(idea *solve.Placement, bin problem.BinID, p *part, n int) int {
	placed := 0
	if n = min(n, p.left); n > 0 && idea.Pinned(bin, p.pins) {
		placed = idea.Put(p.on(bin, n))
	}
	p.left -= placed
	for _, g := range p.groups {
		a.waiting[g] -= placed
	}
	return placed
}

// placeRest places the pods that found no place where the packer meant them: on any new node, else on those that are opened for them. It
// reports whether all have one.
func (a *assignment) placeRest(idea *solve.Placement) bool {
	for i := range a.sizes {
		for j := range a.sizes[i].parts {
			p := &a.sizes[i].parts[j]
			for bin := range idea.New() {
				if a.put(idea, bin, p, p.left); p.left == 0 {
					break
				}
			}
			if !a.openFor(idea, i, p) {
				return false
			}
		}
	}
	return true
}

// openFor opens nodes for what is left of a part, each the cheapest for as many pods as it may hold.
func (a *assignment) openFor(idea *solve.Placement, size int, p *part) bool {
	q := a.q
	cell := -1
	for known := 0; p.left > 0; {
		if n := idea.Together(p.groups, p.left); n != known || !q.allowed(idea, cell) {
			cell, known = a.cheapestFor(idea, size, p, n), n
		}
		if cell < 0 {
			return false
		}
		bin := q.open(idea, &pack.Pattern{Cell: cell})
		idea.Pin(bin, p.pins)
		if a.put(idea, bin, p, p.left) == 0 {
			return false
		}
	}
	return true
}

// allowed reports whether limits allow one more node of a cell.
func (q *question) allowed(idea *solve.Placement, cell int) bool {
	return idea.Allows(q.cells[cell].tmpl, q.cells[cell].shape)
}

// cheapestFor returns the cell with the lowest price for each of n pods of a part, as far as it has room for them; −1 if there is none.
func (a *assignment) cheapestFor(idea *solve.Placement, size int, p *part, n int) int {
	q := a.q
	best, price, holds := -1, int64(0), int64(0)
	for c := range q.cells {
		if !q.problem.Classes[size].Cells.Has(c) || !q.allowed(idea, c) {
			continue
		}
		room := quantity.Vec(q.problem.Cells[c].Room)
		if m := int64(quantity.Vec(q.problem.Classes[size].Need).Times(room, n)); best < 0 ||
			quantity.RatioLess(q.problem.Cells[c].Price, m, price, holds) {
			best, price, holds = c, q.problem.Cells[c].Price, m
		}
	}
	return best
}
