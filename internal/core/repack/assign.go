package repack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Some rules keep pods apart on a host in a way that the packer cannot express: a spread that also counts pods which do not carry it, or
// one node for few pods of an application that has pods of many sizes. assign asks the packer without such rules how many pods of each size
// every node should hold. Pods of one size are then equal, so the question is small. Which pods each node gets is decided afterwards
// (seats.go). Pods that find no place at all are placed at the end.
//
// If they need nodes of their own, the packer has filled too few, too large nodes: a rule forces more. Then assign is called once more,
// with the rules that force many nodes as a limit for each node (capHosts). That costs the packer more work, because pods are of more
// sizes.

// A size is pods that are equal to the packer: one of its classes, which stands for several items.
type size struct {
	parts []*part // tied ones first
	tied  int     // number of parts that a rule keeps apart on a host
}

// A part is an item of a size.
type part struct {
	item
	size    int
	left    int   // pods without a place
	owned   []int // host-level groups that keep them apart
	counted []int // host-level groups that count them
}

// An assignment decides which pods of a size go to which node.
type assignment struct {
	q       *question
	meter   *work.Meter
	sizes   []size
	waiting []int // by group: pods that have no place yet
	spills  bool  // nodes were opened for pods that found no place where the packer meant them
}

// assign makes a plan for pods that rules keep apart on a host in a way that the packer cannot express. With capped, it tells the packer
// the rules that force many nodes, and has it search. It returns no idea if there are no such pods or rules, or not all pods find a place.
// over is how many steps too large its machines may be for any pod. spills reports that some pods needed nodes which the packer did not
// mean to open.
func assign(p *problem.Problem, at *solve.Placement, capped bool) (idea *solve.Placement, over int, spills bool) {
	q := newQuestion(p, at)
	q.collect(nil)
	bad := map[problem.ClassID]bool{}
	if len(q.items) == 0 || !q.tie(bad) {
		return nil, 0, false
	}
	var caps []hostCap
	o := pack.Options{Gain: p.Settings.GainPermille, Fast: true, Most: 1, Meter: at.Meter()} // filling nodes costs more than a search gains
	if capped {
		if caps = q.forcing(); len(caps) == 0 {
			return nil, 0, false
		}
		o.Fast, o.Least, o.Most, o.CloseMillionths = false, p.Settings.Least, p.Settings.Most, closeMillionths
	}
	a := &assignment{q: q, meter: at.Meter(), waiting: make([]int, len(p.Groups))}
	a.makeSizes(bad, caps)
	q.makeCells()
	if capped {
		q.capHosts(q.forcing()) // the same groups, now by size
	}
	q.makeLimits()
	answer := pack.Solve(&q.problem, o)
	idea = at.Afresh(q.frozen)
	for _, s := range a.seat(answer.Fleet) {
		bin := q.open(idea, s.pattern())
		for _, p := range s.pods {
			if idea.Put(p.on(bin, 1)) == 0 {
				p.left++
			}
		}
	}
	if !a.placeRest(idea) {
		return nil, 0, false
	}
	return idea, answer.Certificate.Over, a.spills
}

// makeSizes sorts the items into sizes, and makes the question one about sizes, without conflicts. An item with a cap per node that the
// packer can express is a size of its own. Caps of classes in bad are left out. Items of one size are limited by the same caps.
func (a *assignment) makeSizes(bad map[problem.ClassID]bool, caps []hostCap) {
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
		key = identity.Numbers(q.kindKey(key[:0], it), q.needOf(it.class))
		for _, c := range caps {
			key = identity.Flag(key, slices.Contains(c.items, i))
		}
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
		ties := q.at.Ties(it.class, it.variant)
		for _, g := range ties.Owned {
			a.waiting[g] += it.count
		}
		a.sizes[at].parts = append(a.sizes[at].parts, &part{*it, at, it.count, ties.Owned, ties.Counted})
	}
	q.items = items
	q.problem = pack.Problem{Classes: classes}
	for i := range a.sizes {
		s := &a.sizes[i]
		slices.SortStableFunc(s.parts, func(a, b *part) int { return cmp.Compare(min(len(b.owned), 1), min(len(a.owned), 1)) })
		for s.tied < len(s.parts) && len(s.parts[s.tied].owned) > 0 {
			s.tied++
		}
	}
}

// pressure returns how many pods of the part's groups wait for each place that one node has for them; −1 if the part has no pods left.
func (a *assignment) pressure(p *part) int {
	if p.left == 0 {
		return -1
	}
	most := 0
	for _, g := range p.owned {
		most = max(most, a.waiting[g]/max(1, int(a.q.p.Groups[g].MaxSkew)))
	}
	return most
}

// placeRest places the pods that found no place where the packer meant them: on any new node, or else on nodes that it opens for them. It
// returns false if some find none.
func (a *assignment) placeRest(idea *solve.Placement) bool {
	for i := range a.sizes {
		for _, p := range a.sizes[i].parts {
			for bin := range idea.New() {
				if a.put(idea, bin, p); p.left == 0 {
					break
				}
			}
			if !a.openFor(idea, p) {
				return false
			}
		}
	}
	return true
}

// put places pods of a part on a bin, as many as the rules allow, if it is in the domains of their pins. It reports whether it placed any.
func (a *assignment) put(idea *solve.Placement, bin problem.BinID, p *part) bool {
	placed := 0
	if p.left > 0 && idea.Pinned(bin, p.pins) {
		placed = idea.Put(p.on(bin, p.left))
	}
	p.left -= placed
	return placed > 0
}

// openFor opens nodes for the pods that are left of a part, each the cheapest per pod for as many as it may hold. It returns false if
// limits or rules stop it.
func (a *assignment) openFor(idea *solve.Placement, p *part) bool {
	q := a.q
	cell := -1
	for known := 0; p.left > 0; {
		if n := idea.Together(p.owned, p.left); n != known || !q.allowed(idea, cell) {
			cell, known = a.cheapestFor(idea, p.size, n), n
		}
		if cell < 0 {
			return false
		}
		a.spills = true
		bin := q.open(idea, &pack.Pattern{Cell: cell})
		idea.Pin(bin, p.pins)
		if !a.put(idea, bin, p) {
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
func (a *assignment) cheapestFor(idea *solve.Placement, size, n int) int {
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
