package pack

import (
	"cmp"
	"math"
	"slices"
)

// A partial is a fleet under construction by rounding: nodes bought so far and what is still to place.
//
// Invariant: what the nodes hold and what is in rem together are the items of the part; supply is what the nodes leave.
type partial struct {
	run    *run
	nodes  []nodes
	rem    []int
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

// may reports whether the contents justify the size of their cell.
func (t *partial) may(l *load) bool {
	if l.cell < 0 || !t.run.p.cells[l.cell].large {
		return true
	}
	return slices.ContainsFunc(l.classes, func(k int) bool { return t.run.p.least[k] >= t.run.p.cells[l.cell].over })
}

// buy adds up to n nodes like l, as far as they are useful and can be had. Contents beyond what is left are dropped from the last one.
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

// complete places what is left with the greedy under the given worths and offers the fleet as the best one. When nothing is left it is the
// fleet, and nothing more is bought for it.
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

// roomFor is what room may be worth under given item worths: nothing is ruled out by it.
//
// The greedy passes over cells by what room is worth, and worths of the configuration LP can be higher than those that the room was priced
// by. All prices are raised by the most that any class went up, which makes the ceilings looser and no filling impossible.
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

// round turns the LP's fractions into whole nodes: it buys what is whole, solves the LP for the rest, and when nothing is whole any
// more buys the pattern that is nearest to it. On the way every rest is also completed greedily; the best fleet wins.
//
// This is diving: a decision is made where the LP is surest, and it is asked again with the decision made. Whole nodes cost nothing in
// doubt, since the LP buys them as they are. What remains are fractions of which one is decided at a time, and since each solution of the
// rest begins with the columns of the one before, that takes some turns and not a new search. The greedy completes each rest on the way
// because the best point to stop is not the end: the LP of a rest of five items is as fractional as they come.
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

func restLimit(p *part, rem []int) []int {
	limit := make([]int, len(rem))
	for k := range rem {
		limit[k] = min(rem[k], p.limit[k])
	}
	return limit
}

// restart gives the master the demand that is left, with the patterns it knows cut to it.
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

type amount struct {
	column int
	x      float64
}

func (r *run) buyWhole(m *master, t *partial) int {
	bought := 0
	for _, a := range m.amounts() {
		if n := int(math.Floor(a.x + 1e-4)); n > 0 {
			bought += t.buy(&m.loads[a.column], n)
		}
	}
	return bought
}

// buyNearest buys one node of the pattern with the largest fraction.
func (r *run) buyNearest(m *master, t *partial) bool {
	for _, a := range m.amounts() {
		if t.buy(&m.loads[a.column], 1) > 0 {
			return true
		}
	}
	return false
}
