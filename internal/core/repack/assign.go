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

// Some rules keep pods of many sizes apart on a host: one node may hold few pods of an application. Pairs of packer classes cannot express
// that. So assign asks the packer without such rules how many pods of each size every node should hold. Pods of one size are then equal, so
// the question is small. Which pods these are is decided while nodes are filled, by the rules: pods with the fewest other places come
// first. Pods that find no place where the packer meant them are placed at the end.

// A size is pods that are equal to the packer: one of its classes, which stands for several items.
type size struct {
	parts []part // tied ones first
	tied  int    // number of parts that a rule keeps apart on a host
	first int    // of the other parts, those before this index have all their pods placed
}

// A part is an item of a size.
type part struct {
	item
	left   int   // pods without a place
	groups []int // host-level groups that keep them apart
}

// An assignment decides which pods of a size go to which node.
type assignment struct {
	q       *question
	sizes   []size
	waiting []int // by group: pods that have no place yet
}

// assign makes a plan for pods that rules keep apart on a host in a way that the packer cannot express. It returns nil if there are no such
// pods, or not all pods find a place. over is how many steps too large its machines may be for any pod.
func assign(p *problem.Problem, at *solve.Placement) (idea *solve.Placement, over int) {
	q := newQuestion(p, at)
	q.collect(nil)
	bad := map[problem.ClassID]bool{}
	if len(q.items) == 0 || !q.tie(bad) {
		return nil, 0
	}
	a := &assignment{q: q, waiting: make([]int, len(p.Groups))}
	a.makeSizes(bad)
	q.makeCells()
	q.makeLimits()
	// The first fleet is good enough: filling nodes costs more than a search would gain.
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

// makeSizes sorts the items into sizes, and makes the question one about sizes, without conflicts. An item with a cap per node that the
// packer can express is a size of its own. Caps of classes in bad are left out.
func (a *assignment) makeSizes(bad map[problem.ClassID]bool) {
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
			key = identity.Number(key, int64(i)) // unique: an item with a cap is merged with no other
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

// sizeKey appends a key that is equal for items with the same needs that may go to the same machines.
func (q *question) sizeKey(key []byte, it *item) []byte {
	key = q.kindKey(key, it)
	return identity.Numbers(key, q.needOf(it.class))
}

// fill puts n pods of a size on a bin, or as many as the rules allow: first tied ones, those with the highest pressure before others.
func (a *assignment) fill(idea *solve.Placement, bin problem.BinID, s *size, n int) {
	tied := s.parts[:s.tied]
	for i := 1; i < len(tied); i++ { // insertion sort: they are nearly in order since the last call
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

// pressure returns how many pods of the part's groups wait for each place that one node has for them; −1 if the part has no pods left.
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

// put places up to n pods of a part on a bin, if it is in the domains of their pins, and returns how many it placed.
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

// placeRest places the pods that found no place where the packer meant them: on any new node, or else on nodes that it opens for them. It
// returns false if some find none.
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

// openFor opens nodes for the pods that are left of a part, each the cheapest per pod for as many as it may hold. It returns false if
// limits or rules stop it.
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

// cheapestFor returns the cell with the lowest price per pod for up to n pods of a size; −1 if limits allow none.
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
