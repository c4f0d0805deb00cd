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
// Columns are found by asking every cell for contents that are worth more than the node costs at the current prices: such a column makes
// the mix cheaper, and if no cell has any, the mix is optimal. Greedy fillings answer that quickly and are asked first. Only when they
// find nothing does the exact knapsack look, and it alone can say that there is nothing, which is what a bound needs.
//
// Prices of a mix that is far from its best are wild: one class worth everything, another nothing. So columns are taken from different
// cells, a few at a time, and a turn that brings only bad columns still calms the prices for the next.
type master struct {
	r       *run
	lp      *lp.Simplex
	loads   []load // per column of lp; cell −1 for "left out"
	known   map[string]bool
	stock   []int // cells with a stock row
	worth   []float64
	unit    *unitWorth // of limits only
	bestY   []float64  // worths that prove the best bound
	bestLim []float64
	bound   float64
	sack    *knapsack
	deep    int  // questions of the knapsack's division per cell, 0 for none, and
	deepest int  // the most that may become
	shallow bool // more would be needed
	fill    *filler
}

const (
	leftOut       = 1e7 // dollars for an item without a place: no fleet costs that much per item
	maxStockRows  = 64
	gapGoal       = 1e-4 // relative distance between LP value and bound that ends column generation
	searchNodes   = 400  // looks of the knapsack per cell
	searchDeep    = 100  // questions of its division, once looks find nothing although LP and bound have not met
	searchDeeper  = 8    // times that, again and again
	searchDeepest = searchDeep * searchDeeper * searchDeeper * searchDeeper
	columnsAtOnce = 6
)

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

// start sets up the LP for the given demand and supply: one pattern per class that holds it alone is the first basis.
//
// Every row needs a column to begin with. A class that no unlimited cell holds begins with "left out", at a price that no fleet reaches
// for one item: the LP avoids it whenever there is any other way, and where it does not, it says which items have no place.
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

// tieBreak is a small addition to the demand of a class that keeps ties, and with them idle pivots, away. It differs among neighbouring
// classes. Bounds are computed from the true counts.
//
// Demands of equal numbers make vertices at which many bases meet, and a simplex can walk among them for long without getting anywhere. A
// millionth more or less of an item puts them apart; what it does to the value is less than a proof takes off for rounding.
func tieBreak(k int) float64 { return 1e-6 * float64(k%17+1) }

// alone is a pattern with class k only, on the unlimited cell that is cheapest for it, or the expensive way out.
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

// addLoad makes a column of a pattern, unless it is known.
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

// patternKey identifies a pattern, and lists classes and counts in the order of classes.
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

// readPrices takes the LP's row prices as worths of items.
func (m *master) readPrices() {
	p := m.r.p
	for k := range m.worth {
		m.worth[k] = max(m.lp.Price(k), 0) * 1e9
	}
	for l := range p.limits {
		m.unit.limit[l] = max(-m.lp.Price(p.classes()+len(m.stock)+l), 0) * 1e9
	}
}

// price is what a node of cell c costs the master: limits and stock included.
func (m *master) price(c int) float64 {
	cost := m.unit.cost(&m.r.p.cells[c])
	if m.r.p.cells[c].stock > 0 {
		if i := slices.Index(m.stock, c); i >= 0 {
			cost += float64(max(-m.lp.Price(m.r.p.classes()+i), 0) * 1e9)
		}
	}
	return cost
}

// generate adds columns until the bound meets the value of the LP, nothing is found any more or the budget ends. limit is how many
// items of each class a pattern may hold. rounds < 0 means to the end, with proofs of the bound.
//
// The bound rises and falls from turn to turn, because it comes from prices that jump; the best one is kept. The
// end is where LP and bound meet, or half as far from each other as the search is allowed to be from the bound:
// what a better bound would then show, is not of interest for.
//
// Where nodes hold many kinds of items in several dimensions, a knapsack that gives up early finds nothing and yet
// cannot say that there is nothing. Then it is divided (divide.go), and asked more and more, for such cells are
// few: the others end as early as before. To ask less again once it has found something, or to let it end with the
// first that it finds, took longer. Where another LP has proven what this one is about to, all that could be better
// by then is this one's own proof, and is not needed. Small parts are proven in whole nodes afterwards, and do
// without.
func (m *master) generate(limit []int, rounds int) {
	began := m.r.b.spent()
	for turn := 0; rounds < 0 || turn < rounds; turn++ {
		m.lp.Optimize(func() bool {
			m.r.b.charge(m.lp.Steps.Take())
			return m.r.b.spend()
		})
		m.r.b.charge(m.lp.Steps.Take())
		m.readPrices()
		if m.r.b.over || rounds < 0 && m.hopeless(turn, began) {
			return
		}
		if m.r.b.does(quickColumns) && m.quickColumns(limit, turn) > 0 {
			continue
		}
		added := m.exactColumns(limit, rounds < 0)
		if rounds < 0 && m.meets(m.bound) || m.r.b.over {
			return
		}
		if added > 0 {
			continue
		}
		if rounds >= 0 || m.meets(m.r.bound()) {
			return
		}
		if m.deep >= m.deepest {
			m.shallow = true
			return
		}
		m.deep = max(searchDeep, m.deep*searchDeeper)
	}
}

// meets reports whether the LP is so near to a bound that a better one would show nothing.
func (m *master) meets(bound float64) bool {
	return m.lp.Value()*1e9 <= bound*max(1+gapGoal, (1+m.r.close)/2)
}

// turnsPerRow is about how many turns column generation takes per row, in terms of the first ones, which cost less than the rest.
const turnsPerRow = 2.5

// hopeless says, once some turns have shown what one takes, that what is left of the budget will not do for all of
// them. What it has found by then is worth little: neither do the columns hold the best patterns yet, nor do their
// prices prove anything.
//
// Half a column generation is the one thing that is worth nothing at all. So the pace of the first turns is measured, and if what is left
// of the budget will not do, the work goes to the search instead, which can use any amount.
func (m *master) hopeless(turn int, began work.Units) bool {
	rows := m.r.p.classes()
	left, limited := m.r.b.left()
	if !limited || !m.r.b.does(foresight) || turn < max(rows/10, 3) {
		return false
	}
	each := (m.r.b.spent() - began) / work.Units(turn)
	return float64(each)*(turnsPerRow*float64(rows)-float64(turn)) > float64(left)
}

type offer struct {
	load  load
	ratio float64
}

// quickColumns fills every cell greedily by the current worths and adds the best fillings that are worth more than they cost.
//
// The three preferences for large items take turns, as one and the same would find one and the same patterns again.
func (m *master) quickColumns(limit []int, turn int) int {
	p := m.r.p
	var offers []offer
	m.fill.guide.bonus = []float64{0, 0.3, 2}[turn%3]
	m.fill.setWorth(m.worth)
	m.fill.begin(limit, nil)
	for c := range p.cells {
		price := m.price(c)
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

// exactColumns searches every cell with the knapsack. What it proves gives a bound: worths scaled down until no cell can hold more
// than it costs.
//
// Let z be the most by which the contents of any cell exceed its cost, as a factor. Then all worths divided by z satisfy the inequality of
// the package comment for every pattern that there is, so their sum is a bound at every turn, not only at the end (Farley's bound). Cells
// in short stock are left out of z: one rare machine that is worth three times its price would push the worth of everything down; what
// they may exceed is taken off by their stock instead.
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
		price := m.price(c)
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

// searchCell bounds what cell c may hold and returns a filling worth more than floor, if one was found.
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
