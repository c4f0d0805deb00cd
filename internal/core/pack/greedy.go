package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A nodes is n nodes with equal contents.
type nodes struct {
	load
	n int
}

// A fleet of a part: its nodes, and the items without a place.
type fleet struct {
	nodes []nodes
	left  []int // per class: items without a place
	lost  int   // sum of left
	price int64
}

// priceOf returns what some nodes cost.
func (p *part) priceOf(ns []nodes) int64 {
	var sum int64
	for _, n := range ns {
		sum += p.cells[n.cell].price * int64(n.n)
	}
	return sum
}

// better reports whether f leaves fewer items without a place than g, or as many at a lower price. Every fleet is better than nil.
func (f *fleet) better(g *fleet) bool {
	if g == nil || f.lost != g.lost {
		return g == nil || f.lost < g.lost
	}
	return f.price < g.price
}

// A supply says how many nodes of each cell can still be bought, given stock and limits.
//
// Stock and limits only shrink while a fleet is built, so a cell that is sold out stays so for the rest of a greedy run. The search gives
// nodes back: it takes a negative number.
type supply struct {
	p     *part
	stock []int   // per cell; meaningless where the cell has no stock limit
	room  []int64 // per limit
}

// newSupply returns the whole supply of a part.
func (p *part) newSupply() *supply {
	s := &supply{p: p, stock: make([]int, len(p.cells)), room: slices.Clone(p.limits)}
	for i := range p.cells {
		s.stock[i] = p.cells[i].stock
	}
	return s
}

// most returns how many nodes of cell c can be bought, at most n.
func (s *supply) most(c, n int) int {
	cell := &s.p.cells[c]
	if cell.stock > 0 {
		n = min(n, s.stock[c])
	}
	for l, u := range cell.use {
		if u > 0 {
			n = int(min(int64(n), s.room[l]/u))
		}
	}
	return max(n, 0)
}

// take takes n nodes of cell c from the supply, or gives them back if n is negative.
func (s *supply) take(c, n int) {
	s.stock[c] -= n
	for l, u := range s.p.cells[c].use {
		s.room[l] -= u * int64(n)
	}
}

// A greedy builds fleets node by node.
//
// It is the classical greedy of covering problems: open the node whose contents are worth most per dollar, take its items away, go on.
// With worths from an LP its ratios are near one everywhere, and the first nodes it opens are those that the LP would open too; it goes
// wrong only towards the end, when what is left fits nothing well.
//
// To fill all cells at every step would be most of the work. But a cell's best filling only gets worse as items run out, so its ratio of
// worth to price from the last filling is an upper bound. pick tries cells in descending order of that bound, and stops when the best
// filling so far has a higher ratio than the next cell's bound. Most steps fill one or two cells of a thousand.
//
// Invariant: last[c] is at least the ratio of any filling of c with the items in rem, except for items that the guide's samples left out.
type greedy struct {
	p     *part
	fill  *filler
	order []candidate
	last  []float64 // per cell: worth per price of its latest filling; before its first filling, its ceiling
	first []float64 // per cell: worth per price of its first filling in the last call of run; its ceiling if it was never filled
	fresh []bool    // per cell: it was not yet filled in this call of run
	rem   []int     // per class: items still to place
	best  load
}

type candidate struct {
	cell  int
	ratio float64 // upper bound on the worth per price of a filling
}

func newGreedy(p *part) *greedy {
	return &greedy{p: p, fill: newFiller(p), rem: make([]int, p.classes()),
		last: make([]float64, len(p.cells)), first: make([]float64, len(p.cells)), fresh: make([]bool, len(p.cells))}
}

// run packs count items per class into nodes from the supply. v is the worth of an item of each class, w that of room: they decide which
// cells are tried and when a filling is good enough. run returns nil if the budget ends it.
func (g *greedy) run(count []int, s *supply, v []float64, w *unitWorth, b *budget) *fleet {
	copy(g.rem, count)
	g.fill.setWorth(v)
	b.charge(len(count) * 60)
	if len(count) > treeClasses {
		b.charge(len(count) * len(g.p.cells) * (g.p.dims + 3))
	}
	for c := range g.last {
		g.last[c] = g.ceiling(c, v, w)
		g.first[c], g.fresh[c] = g.last[c], true
	}
	out := g.pack(nil, s, v, w, b)
	clear(g.fresh)
	if out == nil {
		return nil
	}
	out.left = slices.Clone(g.rem)
	return out
}

// ceiling returns an upper bound on the worth per price of a filling of cell c, from the class that is worth most for its room. It returns
// infinity if classes are few, because there filling the cell takes no longer.
//
// Let m be the largest ratio, over the classes that fit, of what an item is worth to what its room is worth at the cell's prices. Contents
// P are worth Σ v_k·P_k ≤ m·Σ_k (price of a_k)·P_k ≤ m·(price of the room), because together they fit into it. That takes one pass over
// the classes for each cell, instead of one for each item that a filling places.
func (g *greedy) ceiling(c int, v []float64, w *unitWorth) float64 {
	p, cell := g.p, &g.p.cells[c]
	cost := w.cost(cell)
	if cost <= 0 || p.classes() <= treeClasses {
		return math.Inf(1)
	}
	top := make([]float64, p.dims)
	w.top(p, c, top)
	value := func(need []int64) float64 {
		var sum float64
		for d, u := range need {
			sum += float64(top[d] * float64(u))
		}
		return sum
	}
	most := 0.0
	for k, n := range g.rem {
		if n > 0 && v[k] > most*value(p.needs(k)) && cell.open.Has(p.group[k]) && fits(p.needs(k), cell.room) {
			most = v[k] / value(p.needs(k))
		}
	}
	return most * value(cell.room) / cost * (1 + 1e-9)
}

// pack builds a fleet for the items in g.rem, node by node. Items without a place stay in g.rem. classes lists the classes that have items;
// nil stands for all. pack returns nil if the budget ends it.
func (g *greedy) pack(classes []int, s *supply, v []float64, w *unitWorth, b *budget) *fleet {
	out := &fleet{}
	g.fill.begin(g.rem, classes)
	for {
		g.candidates(s, v, w)
		b.charge(len(g.p.cells)*(3*g.p.dims+25) + 4*len(g.fill.live))
		if !g.pick(v, w, b) {
			break
		}
		n := g.repeat(s)
		s.take(g.best.cell, n)
		for i, k := range g.best.classes {
			g.rem[k] -= n * g.best.counts[i]
			g.fill.used(k, g.rem[k])
		}
		out.nodes = append(out.nodes, nodes{g.best.clone(), n})
	}
	if b.over {
		return nil
	}
	for _, k := range g.fill.live {
		out.lost += g.rem[k]
	}
	out.price = g.p.priceOf(out.nodes)
	return out
}

// candidates sets g.order to the cells that can be bought, in descending order of an upper bound on their worth per price.
//
// The bound is the lowest of three: the ratio of the last filling (g.last), the worth of the cell's room, and the worth of all items that
// are left for the cell. The worth of room ranks cells at the beginning. The worth of the items matters at the end, when too few are left
// to fill a large cell.
func (g *greedy) candidates(s *supply, v []float64, w *unitWorth) {
	p := g.p
	g.order = g.order[:0]
	byGroup := make([]float64, p.groups)
	waiting := bits.Make(p.groups) // groups with items left, even if they are worth nothing
	for _, k := range g.fill.live {
		if n := g.rem[k]; n > 0 {
			byGroup[p.group[k]] += float64(v[k] * float64(n))
			waiting.Add(p.group[k])
		}
	}
	if !waiting.Any() {
		return
	}
	top := make([]float64, p.dims)
	for c := range p.cells {
		cell := &p.cells[c]
		if s.most(c, 1) == 0 {
			continue
		}
		w.top(p, c, top)
		var room, left float64
		for d, r := range cell.room {
			room += float64(top[d] * float64(r))
		}
		for i := range cell.open.All() {
			left += byGroup[i]
		}
		if !waiting.Meets(cell.open) {
			continue
		}
		ratio := math.Inf(1)
		if cost := w.cost(cell); cost > 0 {
			ratio = min(room, left) / cost
		}
		g.order = append(g.order, candidate{c, min(ratio, g.last[c])})
	}
	slices.SortStableFunc(g.order, func(a, b candidate) int { return cmp.Compare(b.ratio, a.ratio) })
}

// pick fills cells in the order of candidates, and sets g.best to the filling with the most worth per price. It returns false if no cell
// can be filled or the budget is over.
func (g *greedy) pick(v []float64, w *unitWorth, b *budget) bool {
	best := -1.0
	for _, c := range g.order {
		if c.ratio <= best && best > 0 {
			break
		}
		forced, ok := g.p.forced(c.cell, g.rem, v)
		if !ok {
			continue
		}
		if !b.spend() {
			return false
		}
		l := g.fill.fill(c.cell, g.rem, forced, w)
		b.charge(g.fill.steps.Take())
		worth := l.worth(v)
		if len(l.classes) == 0 {
			continue
		}
		ratio := math.Inf(1)
		if price := g.p.cells[c.cell].price; price > 0 {
			ratio = worth / float64(price)
		}
		if g.fresh[c.cell] {
			g.first[c.cell], g.fresh[c.cell] = ratio, false
		}
		g.last[c.cell] = ratio
		if ratio > best {
			best = ratio
			g.best.reset(c.cell)
			g.best.classes = append(g.best.classes, l.classes...)
			g.best.counts = append(g.best.counts, l.counts...)
		}
	}
	return best >= 0
}

// forced reports whether a node of cell c may be opened, given the items left by class. A large cell may be opened only for a class that
// fits no cell of fewer steps (Cell.Over). forced returns such a class, and one of its items must be on the node; -1 if the cell is open.
//
// If several classes justify the cell, forced returns the one whose items are worth most, because these would be placed first anyway.
func (p *part) forced(c int, left []int, worth []float64) (class int, ok bool) {
	cell := &p.cells[c]
	if !cell.large {
		return -1, true
	}
	best := -1
	for k, least := range p.least {
		if least >= cell.over && left[k] > 0 && p.mayUse(k, c) && fits(p.needs(k), cell.room) && (best < 0 || worth[k] > worth[best]) {
			best = k
		}
	}
	return best, best >= 0
}

// repeat returns how many nodes can be filled like the best one.
//
// The same filling stays the best one as long as there are items for it, so thousands of equal pods take a handful of steps.
func (g *greedy) repeat(s *supply) int {
	n := math.MaxInt
	for i, k := range g.best.classes {
		n = min(n, g.rem[k]/g.best.counts[i])
	}
	return s.most(g.best.cell, n)
}
