package pack

import (
	"cmp"
	"math"
	"slices"
)

// A partial is a fleet under construction: the nodes that are bought so far, and the items that are still to place.
//
// Invariant: the items on the nodes and in rem together are the items of the part; supply is what the nodes leave of stock and limits.
type partial struct {
	run    *run
	nodes  []nodes
	rem    []int // per class: items still to place
	supply *supply
	total  int // items in rem
}

func (r *run) newPartial() *partial {
	return &partial{run: r, rem: slices.Clone(r.p.count), supply: r.p.newSupply(), total: r.p.total}
}

func (t *partial) clone() *partial {
	s := *t.supply
	s.stock, s.room = slices.Clone(s.stock), slices.Clone(s.room)
	return &partial{t.run, slices.Clone(t.nodes), slices.Clone(t.rem), &s, t.total}
}

// may reports whether the contents justify the size of their cell: it is open, or one of the classes fits no cell of fewer steps.
func (t *partial) may(l *load) bool {
	if l.cell < 0 || !t.run.p.cells[l.cell].large {
		return true
	}
	return slices.ContainsFunc(l.classes, func(k int) bool { return t.run.p.least[k] >= t.run.p.cells[l.cell].over })
}

// buy adds up to n nodes with the contents of l, as far as items are left and stock and limits allow, and returns how many it added.
// Contents beyond the items that are left are dropped; so the last nodes may hold less than l.
func (t *partial) buy(l *load, n int) int {
	n = t.supply.most(l.cell, n)
	bought := 0
	for bought < n {
		m := n - bought
		own := load{cell: l.cell}
		for i, k := range l.classes {
			if c := min(l.counts[i], t.rem[k]); c > 0 {
				own.classes, own.counts = append(own.classes, k), append(own.counts, c)
				m = min(m, t.rem[k]/c)
			}
		}
		if len(own.classes) == 0 || !t.may(&own) {
			break
		}
		for i, k := range own.classes {
			t.rem[k] -= own.counts[i] * m
			t.total -= own.counts[i] * m
		}
		t.supply.take(l.cell, m)
		t.nodes = append(t.nodes, nodes{own, m})
		bought += m
	}
	return bought
}

// complete places the items that are left with the greedy, under the given worths, and keeps the fleet as r.best if it is better. It does
// not change t. If no items are left, the nodes of t are the fleet.
func (r *run) complete(t *partial, worth []float64) {
	if t.total == 0 {
		if f := (&fleet{nodes: t.nodes, left: t.rem, price: r.p.priceOf(t.nodes)}); f.better(r.best) {
			r.best = f
		}
		return
	}
	for _, g := range guides()[:fastGuides] {
		s := t.clone()
		r.greedy.fill.guide = g
		f := r.greedy.run(s.rem, s.supply, worth, r.roomFor(worth), r.b)
		if f == nil {
			return
		}
		f.nodes = slices.Concat(s.nodes, f.nodes)
		f.price = r.p.priceOf(f.nodes)
		if f.better(r.best) {
			r.best = f
		}
	}
}

// roomFor returns prices of room that are high enough for the given item worths: the prices of the run, raised by the largest factor by
// which an item is worth more than in the run's pricing.
//
// The greedy skips cells whose room is not worth enough. Worths of the configuration LP can be above those that belong to the prices of
// room, and with these prices unchanged it would skip the cells that hold such items.
func (r *run) roomFor(worth []float64) *unitWorth {
	p := r.p
	w := &unitWorth{dims: p.dims, limit: make([]float64, len(p.limits))}
	most := 1.0
	for k, v := range worth {
		if r.worth[k] > 0 {
			most = max(most, v/r.worth[k])
		}
	}
	for _, u := range r.unit.price {
		w.price = append(w.price, float64(u*most))
	}
	for _, u := range r.unit.cells {
		w.cells = append(w.cells, float64(u*most))
	}
	return w
}

// round turns the LP's fractions into whole nodes (diving). It buys the whole nodes of the solution, solves the LP for the rest, and so on.
// If no number is whole, it buys one node of the pattern with the largest fraction. The best fleet on the way becomes r.best.
//
// Each LP begins with the columns of the one before, so it takes a few turns only. The greedy completes the fleet after every purchase,
// because rounding is worst at the end: the LP for a rest of five items buys nothing but small fractions.
func (r *run) round(m *master) {
	t := r.newPartial()
	worth := slices.Clone(m.worth)
	for t.total > 0 && !r.b.over {
		if r.buyWhole(m, t) == 0 && !r.buyNearest(m, t) {
			break
		}
		r.complete(t, worth)
		if t.total == 0 || r.b.over || r.good() {
			return
		}
		m.restart(t)
		m.generate(restLimit(r.p, t.rem), 30)
		if cost := float64(r.p.priceOf(t.nodes))/1e9 + m.lp.Value(); cost*1e9 >= float64(r.best.price)*(1-1e-9) && r.best.lost == 0 {
			return // the rest cannot make it cheaper any more
		}
	}
}

// restLimit returns how many items of each class a node may hold when only rem are left.
func restLimit(p *part, rem []int) []int {
	limit := make([]int, len(rem))
	for k := range rem {
		limit[k] = min(rem[k], p.limit[k])
	}
	return limit
}

// restart sets the LP up for the items that t has left, under the supply that it has left. Known patterns are cut to these items; a pattern
// that holds none of them, or no longer justifies its cell, is dropped (cell −1).
func (m *master) restart(t *partial) {
	for i := range m.loads {
		l := &m.loads[i]
		cut := load{cell: l.cell}
		for j, k := range l.classes {
			if n := min(l.counts[j], t.rem[k]); n > 0 {
				cut.classes, cut.counts = append(cut.classes, k), append(cut.counts, n)
			}
		}
		if len(cut.classes) == 0 || !t.may(&cut) {
			cut.cell = -1
		}
		m.loads[i] = cut
	}
	m.start(t.rem, t.supply)
}

// amounts lists the patterns in the basis with their fractions, the largest first.
func (m *master) amounts() []amount {
	var out []amount
	for j, x := range m.lp.Basic() {
		if m.loads[j].cell >= 0 && x > 1e-6 {
			out = append(out, amount{j, x})
		}
	}
	slices.SortFunc(out, func(a, b amount) int {
		return cmp.Or(cmp.Compare(b.x, a.x), cmp.Compare(a.column, b.column))
	})
	return out
}

// An amount is how many nodes, in fractions, an LP buys of one of its patterns.
type amount struct {
	column int // for master: column of its LP; for branching: index in its pool
	x      float64
}

// buyWhole buys the whole nodes of the LP's solution, and returns how many it bought. A number up to 1e-4 below a whole one counts as it.
func (r *run) buyWhole(m *master, t *partial) int {
	bought := 0
	for _, a := range m.amounts() {
		if n := int(math.Floor(a.x + 1e-4)); n > 0 {
			bought += t.buy(&m.loads[a.column], n)
		}
	}
	return bought
}

// buyNearest buys one node of the pattern with the largest fraction that can be bought. It returns false if none can.
func (r *run) buyNearest(m *master, t *partial) bool {
	for _, a := range m.amounts() {
		if t.buy(&m.loads[a.column], 1) > 0 {
			return true
		}
	}
	return false
}
