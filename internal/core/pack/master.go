package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/work"
)

// A master is the configuration LP with the patterns found so far: the cheapest mix of patterns, in fractions, that holds every item.
//
// Column generation searches every cell for contents that are worth more than the node costs at the current prices of the LP. Such a column
// makes the mix cheaper; if no cell has one, the mix is optimal. Greedy fillings are tried first, because they are quick. Only when they
// find nothing, the exact knapsack searches; only it can show that there is nothing, which a bound needs.
//
// Rows, in this order: one for each class, for each cell in m.stock, and for each limit. The LP counts in dollars; worths, costs and bounds
// of this package are in nano-dollars.
type master struct {
	r       *run
	lp      *lp.Simplex
	loads   []load // per column of lp: its pattern; cell −1 for "left out"
	known   map[string]bool
	stock   []int      // cells with a stock row
	worth   []float64  // per class, at the current prices
	unit    *unitWorth // only limit is used
	bestY   []float64  // per class: worths that prove the best bound
	bestLim []float64  // per limit: the same
	bound   float64    // the best bound
	sack    *knapsack
	deep    int  // questions that the knapsack may ask per cell when it divides (divide.go); 0 for none
	deepest int  // the most that deep may become
	shallow bool // generate ended because deep would have to be more than deepest
	fill    *filler
}

const (
	leftOut       = 1e7  // dollars for an item without a place: no fleet costs that much per item
	maxStockRows  = 64   // stock rows, at most; patterns of other cells in short stock are not added
	gapGoal       = 1e-4 // relative distance between LP value and bound that ends column generation
	searchNodes   = 400  // search nodes of the knapsack per cell
	searchDeep    = 100  // master.deep, once the knapsack finds nothing although LP value and bound are still apart
	searchDeeper  = 8    // the factor by which deep grows after that
	searchDeepest = searchDeep * searchDeeper * searchDeeper * searchDeeper
	columnsAtOnce = 6 // columns that one turn adds, at most
)

// newMaster returns the configuration LP of a part for count items per class.
func newMaster(r *run, count []int) *master {
	p := r.p
	m := &master{r: r, known: make(map[string]bool), worth: make([]float64, p.classes()), sack: newKnapsack(p), fill: newFiller(p),
		unit: &unitWorth{dims: p.dims, limit: make([]float64, len(p.limits))}}
	for i := range p.cells {
		if p.cells[i].stock > 0 && len(m.stock) < maxStockRows {
			m.stock = append(m.stock, i)
		}
	}
	m.start(count, p.newSupply())
	return m
}

// start sets up the LP for the given demand and supply, with the patterns in m.loads as columns.
//
// The first basis has one column per class: a pattern that holds it alone. If no unlimited cell holds the class, the column is "left out",
// at a price that no fleet reaches for one item. So the LP leaves items out only if it has no other way.
func (m *master) start(count []int, from *supply) {
	p := m.r.p
	rows := make([]lp.Row, p.classes(), p.classes()+len(m.stock)+len(p.limits))
	first := make([]lp.Column, p.classes())
	old := m.loads
	m.loads = nil
	clear(m.known)
	for k, n := range count {
		rows[k].Bound = float64(n) + tieBreak(k)
		l, col := m.alone(k)
		first[k] = col
		m.loads = append(m.loads, l)
	}
	for _, c := range m.stock {
		rows = append(rows, lp.Row{Bound: float64(from.stock[c]), Limits: true})
	}
	for _, most := range from.room {
		rows = append(rows, lp.Row{Bound: float64(max(most, 0)), Limits: true})
	}
	m.lp = lp.NewSimplex(rows, first)
	for i := range old {
		if old[i].cell >= 0 {
			m.addLoad(&old[i])
		}
	}
}

// tieBreak returns a small addition to the demand of class k, different for neighbouring classes. Without it, equal demands make degenerate
// vertices, at which the simplex pivots for long without progress. Bounds are computed from the true counts.
func tieBreak(k int) float64 { return 1e-6 * float64(k%17+1) }

// alone returns a pattern with class k only, on the unlimited cell that is cheapest per item, and its column. If no such cell holds the
// class, it returns the column "left out".
func (m *master) alone(k int) (load, lp.Column) {
	p := m.r.p
	best, low := -1, math.Inf(1)
	for c := range p.cells {
		cell := &p.cells[c]
		if !cell.unlimited() || !p.mayUse(k, c) || cell.large && p.least[k] < cell.over {
			continue
		}
		if n := holds(p.needs(k), cell.room, p.limit[k]); n > 0 && float64(cell.price)/float64(n) < low {
			best, low = c, float64(cell.price)/float64(n)
		}
	}
	if best < 0 {
		return load{cell: -1}, lp.Column{Rows: []int{k}, Vals: []float64{1}, Cost: leftOut}
	}
	n := holds(p.needs(k), p.cells[best].room, p.limit[k])
	return load{best, []int{k}, []int{n}}, lp.Column{Rows: []int{k}, Vals: []float64{float64(n)}, Cost: float64(p.cells[best].price) / 1e9}
}

// addLoad adds a column for a pattern. It returns false if the LP has the pattern already, or if the cell is in short stock without a row.
func (m *master) addLoad(l *load) bool {
	p := m.r.p
	key, pairs := patternKey(l)
	if m.known[key] {
		return false
	}
	m.known[key] = true
	cell := &p.cells[l.cell]
	col := lp.Column{Cost: float64(cell.price) / 1e9}
	own := load{cell: l.cell}
	for _, x := range pairs {
		own.classes, own.counts = append(own.classes, x[0]), append(own.counts, x[1])
		col.Rows, col.Vals = append(col.Rows, x[0]), append(col.Vals, float64(x[1]))
	}
	if cell.stock > 0 {
		i := slices.Index(m.stock, l.cell)
		if i < 0 {
			return false
		}
		col.Rows, col.Vals = append(col.Rows, p.classes()+i), append(col.Vals, 1)
	}
	for i, u := range cell.use {
		if u > 0 {
			col.Rows, col.Vals = append(col.Rows, p.classes()+len(m.stock)+i), append(col.Vals, float64(u))
		}
	}
	m.lp.Add(col)
	m.loads = append(m.loads, own)
	return true
}

// patternKey returns a key of the pattern, equal for equal contents in any order, and its pairs of class and count in the order of classes.
func patternKey(l *load) (string, [][2]int) {
	pairs := make([][2]int, len(l.classes))
	for i, k := range l.classes {
		pairs[i] = [2]int{k, l.counts[i]}
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
	key := appendInt(nil, l.cell)
	for _, x := range pairs {
		key = appendInt(appendInt(key, x[0]), x[1])
	}
	return string(key), pairs
}

func appendInt(b []byte, n int) []byte {
	return append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

// readPrices sets worths of items and limits to the LP's row prices, in nano-dollars. Rows that limit have prices of 0 or below.
func (m *master) readPrices() {
	p := m.r.p
	for k := range m.worth {
		m.worth[k] = max(m.lp.Price(k), 0) * 1e9
	}
	for l := range p.limits {
		m.unit.limit[l] = max(-m.lp.Price(p.classes()+len(m.stock)+l), 0) * 1e9
	}
}

// costWithStock returns unit.cost of cell c plus the price of its stock row, in nano-dollars. A pattern whose contents are worth more makes
// the mix cheaper. (A row that limits has a price of 0 or below, in dollars.)
func (m *master) costWithStock(c int) float64 {
	cost := m.unit.cost(&m.r.p.cells[c])
	if m.r.p.cells[c].stock > 0 {
		if i := slices.Index(m.stock, c); i >= 0 {
			cost += float64(max(-m.lp.Price(m.r.p.classes()+i), 0) * 1e9)
		}
	}
	return cost
}

// generate adds columns until the bound is near the value of the LP (isNear), nothing is found, or the budget ends. limit is how many items
// of each class a pattern may hold. rounds is the most turns; if it is negative, generate goes on to the end and proves bounds (m.bound).
//
// If nodes hold many kinds of items in several dimensions, a knapsack that gives up early may find nothing and yet not show that there is
// nothing. Then generate raises m.deep, so that the knapsack divides its question (divide.go). That costs work only in the few cells where
// it gives up. Lowering deep again, or stopping at the first contents found, took longer in tests. If another LP has proven a bound that is
// near, deeper knapsacks are not needed.
func (m *master) generate(limit []int, rounds int) {
	began := m.r.b.spent()
	for turn := 0; rounds < 0 || turn < rounds; turn++ {
		m.lp.Optimize(func() bool {
			m.r.b.charge(m.lp.Steps.Take())
			return m.r.b.spend()
		})
		m.r.b.charge(m.lp.Steps.Take())
		m.readPrices()
		if m.r.b.over || rounds < 0 && m.cannotFinish(turn, began) {
			return
		}
		if m.r.b.does(quickColumns) && m.quickColumns(limit, turn) > 0 {
			continue
		}
		added := m.exactColumns(limit, rounds < 0)
		if rounds < 0 && m.isNear(m.bound) || m.r.b.over {
			return
		}
		if added > 0 {
			continue
		}
		if rounds >= 0 || m.isNear(m.r.bound()) {
			return
		}
		if m.deep >= m.deepest {
			m.shallow = true
			return
		}
		m.deep = max(searchDeep, m.deep*searchDeeper)
	}
}

// isNear reports whether the LP's value is near a bound: within gapGoal, or within half of the distance at which the search may end
// (run.close). A better bound would change nothing then.
func (m *master) isNear(bound float64) bool {
	return m.lp.Value()*1e9 <= bound*max(1+gapGoal, (1+m.r.close)/2)
}

// turnsPerRow is about how many turns column generation takes per class, if each took as much work as the first ones, which take less.
const turnsPerRow = 2.5

// cannotFinish reports whether the rest of the budget is too small to finish column generation, judged by the work of the turns so far. It
// says no during the first turns. An unfinished column generation is worth little, because it has neither the best patterns nor a good
// bound, so its work is better left to the search, which can use any amount.
func (m *master) cannotFinish(turn int, began work.Units) bool {
	rows := m.r.p.classes()
	left, limited := m.r.b.left()
	if !limited || !m.r.b.does(foresight) || turn < max(rows/10, 3) {
		return false
	}
	each := (m.r.b.spent() - began) / work.Units(turn)
	return float64(each)*(turnsPerRow*float64(rows)-float64(turn)) > float64(left)
}

// An offer is a pattern that may become a column, and what offers are sorted by.
type offer struct {
	load  load
	ratio float64 // in master: worth per cost; in branching: the most by which the worth exceeds the cost
}

// quickColumns fills every cell greedily by the current worths, adds the best fillings that are worth more than they cost, and returns how
// many it added. The preference for large items differs from turn to turn, because with the same one it would find the same patterns again.
func (m *master) quickColumns(limit []int, turn int) int {
	p := m.r.p
	var offers []offer
	m.fill.guide.bonus = []float64{0, 0.3, 2}[turn%3]
	m.fill.setWorth(m.worth)
	m.fill.begin(limit, nil)
	for c := range p.cells {
		price := m.costWithStock(c)
		forced, ok := p.forced(c, limit, m.worth)
		if !ok || !m.r.b.spend() {
			continue
		}
		l := m.fill.fill(c, limit, forced, nil)
		m.r.b.charge(m.fill.steps.Take())
		if worth := l.worth(m.worth); worth > float64(price*(1+1e-7))+1 {
			offers = append(offers, offer{l.clone(), worth / max(price, 1)})
		}
	}
	return m.addBest(offers)
}

// addBest adds the best offers that the LP does not have yet, up to columnsAtOnce, and returns how many it added.
func (m *master) addBest(offers []offer) int {
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(b.ratio, a.ratio) })
	added := 0
	for i := range offers {
		if m.addLoad(&offers[i].load) {
			if added++; added == columnsAtOnce {
				break
			}
		}
	}
	return added
}

// exactColumns searches every cell with the knapsack, adds the best contents as columns, and returns how many it added. With prove it also
// improves the bound.
//
// Let z be the most by which the contents of any cell exceed its cost, as a factor. Then all worths divided by z satisfy the inequality of
// the package comment for every pattern, so their sum is a bound at every turn, not only at the end (Farley's bound). Cells in short stock
// are left out of z, because one rare machine with contents worth three times its price would lower all worths. Instead, the surplus of
// their contents, times the stock, is taken off the bound.
func (m *master) exactColumns(limit []int, prove bool) int {
	p := m.r.p
	var offers []offer
	excess := 1.0
	var short []shortCell
	for c := range p.cells {
		if !m.r.b.spend() {
			return 0
		}
		cell := &p.cells[c]
		cost := m.unit.cost(cell)
		price := m.costWithStock(c)
		upper, found := m.searchCell(c, limit, price*(1+gapGoal/4))
		m.r.b.charge(m.sack.steps.Take())
		if found != nil {
			worth := found.worth(m.worth)
			offers = append(offers, offer{found.clone(), worth / max(price, 1)})
		}
		if cell.stock > 0 {
			short = append(short, shortCell{upper, cost, float64(cell.stock)})
		} else if cost > 0 {
			excess = max(excess, upper/cost)
		} else if upper > 0 {
			excess = math.Inf(1)
		}
	}
	if prove {
		m.improveBound(excess, short)
	}
	return m.addBest(offers)
}

// searchCell returns a value that no contents of cell c exceed, and the best contents that it found worth more than floor, or nil. A large
// cell is searched once for each class that justifies it.
func (m *master) searchCell(c int, limit []int, floor float64) (float64, *load) {
	p := m.r.p
	m.sack.deep = m.deep
	if !p.cells[c].large {
		upper := m.sack.search(c, m.worth, limit, floor, -1, searchNodes)
		if len(m.sack.found.classes) == 0 {
			return upper, nil
		}
		return upper, &m.sack.found
	}
	upper := 0.0
	var best *load
	for k, least := range p.least {
		if least < p.cells[c].over || limit[k] == 0 || !p.mayUse(k, c) {
			continue
		}
		upper = max(upper, m.sack.search(c, m.worth, limit, floor, k, searchNodes))
		if len(m.sack.found.classes) > 0 {
			if l := m.sack.found.clone(); best == nil || l.worth(m.worth) > best.worth(m.worth) {
				best = &l
			}
		}
	}
	return upper, best
}

// A shortCell is a cell in limited stock: what one node of it may hold, what it costs, how many there are.
type shortCell struct{ upper, cost, stock float64 }

// improveBound computes the bound that the current worths prove when they are divided by excess, and keeps it if it is the best so far.
func (m *master) improveBound(excess float64, short []shortCell) {
	if math.IsInf(excess, 1) {
		return
	}
	var sum float64
	for k, n := range m.r.p.count {
		sum += float64(m.worth[k] * float64(n))
	}
	sum /= excess
	for _, s := range short {
		sum -= float64(max(s.upper/excess-s.cost, 0) * s.stock)
	}
	for l, most := range m.r.p.limits {
		sum -= float64(m.unit.limit[l] * float64(most))
	}
	if sum <= m.bound {
		return
	}
	m.bound = sum
	m.bestY = m.bestY[:0]
	for _, w := range m.worth {
		m.bestY = append(m.bestY, w/excess)
	}
	m.bestLim = append(m.bestLim[:0], m.unit.limit...)
}
