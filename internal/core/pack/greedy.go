package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A group of equal nodes in a fleet under construction.
type nodes struct {
	load
	n int
}

// A fleet of a part: nodes, and what has no place.
type fleet struct {
	nodes []nodes
	left  []int
	lost  int // sum of left
	price int64
}

func (p *part) priceOf(ns []nodes) int64 {
	var sum int64
	for _, n := range ns {
		sum += p.cells[n.cell].price * int64(n.n)
	}
	return sum
}

// better reports whether f holds more, or as much for less money.
func (f *fleet) better(g *fleet) bool {
	if g == nil || f.lost != g.lost {
		return g == nil || f.lost < g.lost
	}
	return f.price < g.price
}

// A supply says how many nodes of each cell can still be had.
//
// Stock and limits are the only things that nodes of different cells have to share, and they only ever get less while a fleet is built: a
// cell that cannot be had once is out for the rest of a run. The search gives nodes back by taking a negative number.
type supply struct {
	p     *part
	stock []int   // per cell; meaningless where the cell has no stock limit
	room  []int64 // per limit
}

func (p *part) newSupply() *supply {
	s := &supply{p: p, stock: make([]int, len(p.cells)), room: slices.Clone(p.limits)}
	for i := range p.cells {
		s.stock[i] = p.cells[i].stock
	}
	return s
}

// most says how many nodes of cell c can be had, at most n.
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
// To fill all cells at every step would be most of the work. But a cell's best filling only gets worse as items run out, so the ratio it
// had when it was last filled is a ceiling: cells are gone through in the order of their ceilings, and as soon as one has been filled for
// more than the next one's ceiling, no other cell can win. Most steps fill one or two cells of a thousand.
//
// Invariant: last[c] is never below what any filling of c brings with the items in rem, but for what the guide's samples leave out.
type greedy struct {
	p     *part
	fill  *filler
	order []candidate
	last  []float64 // per cell: worth per price of its latest filling, which get worse as items run out; before, no filling is worth more
	first []float64 // per cell: worth per price of its first filling in the last whole run, or what no filling was worth more than
	fresh []bool    // per cell: it was not filled in this whole run
	rem   []int
	best  load
}

type candidate struct {
	cell  int
	ratio float64 // no filling is worth more per price
}

func newGreedy(p *part) *greedy {
	return &greedy{p: p, fill: newFiller(p), rem: make([]int, p.classes()),
		last: make([]float64, len(p.cells)), first: make([]float64, len(p.cells)), fresh: make([]bool, len(p.cells))}
}

// run packs count items per class with what supply offers. v is what an item is worth, w what room is worth; they decide which
// cells are looked at and when a filling is good enough. It returns nil when the budget ends it.
func (g *greedy) run(count []int, s *supply, v []float64, w *unitWorth, b *budget) *fleet {
	copy(g.rem, count)
	g.fill.value(v)
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

// ceiling is a ratio of worth to price that no filling of a cell exceeds: items bring no more than the best of them, and most cells
// are best for none. Where classes are few, filling the cell says more and takes no longer.
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

// pack packs g.rem, of which only the given classes (nil: all) have items. What has no place stays in g.rem.
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

// candidates lists the cells that can be had, the most promising first: what fills a cell is worth no more than its room, and no
// more than all that is left.
//
// Two ceilings hold at once, and the lower one counts: contents are worth no more than the room at its prices, and no more than everything
// that is left for this cell. The first tells large cells from small ones at the beginning; the second tells them apart at the end, when
// nothing is left to fill a large one with.
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

// pick fills the promising cells and keeps the filling that is worth most per price.
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

// forced reports whether a cell may be opened for items of which so many are left by class, and the class without
// which it may not (-1: none).
//
// Of the classes that justify the cell the most precious one is forced: it would be the first to be put there anyway, and one item of it
// is enough for the others to come along.
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

// repeat says how many nodes may be filled like the best one.
//
// After a node is filled the same filling is the best one again, as long as there are items for it: thousands of equal pods take a handful
// of steps.
func (g *greedy) repeat(s *supply) int {
	n := math.MaxInt
	for i, k := range g.best.classes {
		n = min(n, g.rem[k]/g.best.counts[i])
	}
	return s.most(g.best.cell, n)
}
