package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/work"
)

// The fluid LP is between the volume LP and the configuration LP: items may be cut, but each node holds only items that may use its cell
// and fit into it. So it cannot buy the cores of one machine and the memory of another for the same item.
//
// Its prices of room give a worth per item: the least price of the item's room among the cells that can hold it. Such worths prove a bound
// for the real classes, even though the LP sees buckets of classes only. A bucket holds classes whose needs have nearly the same direction
// and size. A bucket that lies across the border between two kinds of machine falsifies worths: with 59 buckets of equal width, prices for
// 5,000 pods were off by half a percent. So the LP divides the buckets that matter (divide).
//
// A column of cell c is one node, which holds the part x_b of all items of each bucket b. A row for each bucket asks that its parts add up
// to one. Columns are generated when needed, as in the configuration LP. The best column under given prices is a fractional knapsack,
// which is easy; therefore this LP is quick.
type fluid struct {
	p       *part
	open    []int   // cells that may be used
	apart   float64 // how many directions buckets tell apart
	buckets []bucket
	takes   [][]int // per index of open: the buckets that the cell can hold
	lp      *lp.Simplex
	madeOf  []int // per column of lp: its cell
	sack    *lp.Fractional
	worth   []float64 // per bucket, of all its items, in dollars
	room    []float64 // cell*dims: worth of a unit of room in each cell; set by fill
	value   []float64 // per cell: worth of its best contents, in dollars
	steps   work.Steps
}

// A bucket is a set of classes of one group that the fluid LP treats as one.
type bucket struct {
	group   int
	classes []int
	need    []float64 // of all its items together
	least   []int64   // per dimension: the least need of its classes
}

const (
	mostBuckets  = 120 // the LP never has more, unless groups are more
	firstBuckets = 30  // where fine starts
	// firstDirections is how many directions buckets tell apart at first; classes that differ by less are equal for every real machine. The
	// number is halved until buckets are few enough.
	firstDirections = 512
	fluidRounds     = 60   // rounds of column generation, at most
	fluidColumns    = 8    // columns that one round adds, at most
	fluidGoal       = 2e-4 // column generation ends when no cell holds more than its price by more than this part
	fluidLoss       = 1e-4 // buckets are divided until the bound is below the LP's value by at most this part
)

// newFluid sets up the fluid LP over the given cells. It returns nil when the part has cells in short stock, for which the LP has no
// rows, or items without any need.
func (p *part) newFluid(cells []int) *fluid {
	if slices.ContainsFunc(cells, func(c int) bool { return p.cells[c].stock > 0 || p.cells[c].price == 0 }) {
		return nil
	}
	for k := range p.count {
		if !slices.ContainsFunc(p.needs(k), func(n int64) bool { return n > 0 }) {
			return nil // an item without needs has no direction
		}
	}
	return &fluid{p: p, open: cells, apart: firstDirections, sack: lp.NewFractional(p.dims),
		room: make([]float64, len(p.cells)*p.dims), value: make([]float64, len(p.cells))}
}

// rough prices room and items with up to mostBuckets buckets of equal width. exact reports that these tell as many directions apart as they
// can, so finer ones are not needed. ok is false if some item fits nowhere.
func (f *fluid) rough() (by pricing, exact, ok bool) {
	f.makeBuckets(mostBuckets)
	exact = f.apart == firstDirections
	by, ok = f.solve(false)
	return by, exact, ok
}

// fine prices room and items with fewer buckets at first, and divides them as long as that raises the bound noticeably.
func (f *fluid) fine() (pricing, bool) {
	f.makeBuckets(firstBuckets)
	return f.solve(true)
}

// solve solves the LP over the present buckets. With divide it divides buckets and solves again, until that does not matter any more. It
// returns false if some item fits nowhere.
func (f *fluid) solve(divide bool) (pricing, bool) {
	if !f.start() {
		return pricing{}, false
	}
	for {
		f.generate()
		unit := f.unitWorth()
		f.steps += work.Steps(len(f.open) * f.p.classes() * (f.p.dims + 2))
		worth, on, ok := f.p.leastWorth(unit, f.open)
		if !ok || !divide || !f.divide(unit, worth, on) {
			return pricing{worth, unit}, ok
		}
	}
}

// generate adds columns until the LP over the present buckets is solved.
//
// It ends when no cell's best contents are worth more than its price by fluidGoal. Then the LP's value is within this part of the true one.
func (f *fluid) generate() {
	for range fluidRounds {
		f.lp.Optimize(func() bool { return true })
		f.steps += work.Steps(f.lp.Steps.Take())
		most := f.price()
		f.steps += work.Steps(f.sack.Steps.Take() + len(f.open)*20)
		if most <= 1+fluidGoal {
			return
		}
	}
}

// makeBuckets sorts classes into at most so many buckets, by group, direction and size. It makes more only if groups or sizes are more.
//
// The direction of a need is its proportions, in parts of all demand so that cores and bytes compare. For an LP that cuts items, items of
// one direction are interchangeable, except that a machine smaller than an item cannot hold it. So sizes count too, by factors of four.
// Only the first four dimensions are looked at.
func (f *fluid) makeBuckets(most int) {
	p := f.p
	total := make([]float64, p.dims)
	for k, n := range p.count {
		for d, u := range p.needs(k) {
			total[d] += float64(float64(u) * float64(n))
		}
	}
	key := func(k int, apart float64) [6]int {
		var out [6]int
		out[0] = p.group[k]
		var sum, most float64
		for d, u := range p.needs(k) {
			sum += float64(u) / total[d]
			most = max(most, float64(u)/total[d])
		}
		for d, u := range p.needs(k) {
			if d < 4 {
				out[1+d] = int(float64(float64(u)/total[d]/sum*apart) + 0.5)
			}
		}
		_, exp := math.Frexp(most)
		out[5] = exp / 2
		return out
	}
	of := make([]int, p.classes())
	for ; ; f.apart /= 2 {
		at := make(map[[6]int]int)
		for k := range p.count {
			id := key(k, f.apart)
			i, ok := at[id]
			if !ok {
				i = len(at)
				at[id] = i
			}
			of[k] = i
		}
		if len(at) <= most || f.apart < 2 {
			f.buckets = make([]bucket, len(at))
			break
		}
	}
	for k, i := range of {
		f.buckets[i].add(p, k)
	}
}

// add adds class k. The first class of a bucket decides its group.
func (b *bucket) add(p *part, k int) {
	if b.classes == nil {
		*b = bucket{group: p.group[k], need: make([]float64, p.dims), least: slices.Clone(p.needs(k))}
	}
	b.classes = append(b.classes, k)
	for d, u := range p.needs(k) {
		b.need[d] += float64(float64(u) * float64(p.count[k]))
		b.least[d] = min(b.least[d], u)
	}
}

// holds reports whether a node of c may hold parts of b: the group may use it, and the least needs of the bucket fit.
func (f *fluid) holds(c *cell, b *bucket) bool { return c.open.Has(b.group) && fits(b.least, c.room) }

// portion returns which part of a bucket one node of c holds if it holds nothing else.
func portion(c *cell, b *bucket) float64 {
	most := math.Inf(1)
	for d, u := range b.need {
		if u > 0 {
			most = min(most, float64(c.room[d])/u)
		}
	}
	return most
}

// start sets up the LP. Its first basis has one column per bucket: the node that holds this bucket alone and cheapest. start returns false
// if a bucket fits nowhere.
func (f *fluid) start() bool {
	m := len(f.buckets)
	f.takes, f.madeOf = make([][]int, len(f.open)), make([]int, m)
	rows, first, low := make([]lp.Row, m), make([]lp.Column, m), make([]float64, m)
	for i := range f.buckets {
		rows[i].Bound, low[i] = 1+bucketTie(i), math.Inf(1)
	}
	for o, c := range f.open {
		cell := &f.p.cells[c]
		for i := range f.buckets {
			b := &f.buckets[i]
			if !f.holds(cell, b) {
				continue
			}
			f.takes[o] = append(f.takes[o], i)
			if each := float64(cell.price) / 1e9 / portion(cell, b); each < low[i] {
				low[i], f.madeOf[i] = each, c
				first[i] = lp.Column{Rows: []int{i}, Vals: []float64{portion(cell, b)}, Cost: float64(cell.price) / 1e9}
			}
		}
	}
	if slices.ContainsFunc(low, func(v float64) bool { return math.IsInf(v, 1) }) {
		return false
	}
	f.lp = lp.NewSimplex(rows, first)
	return true
}

// bucketTie is a small addition to the demand of bucket i, which is one, for the same reason as tieBreak.
func bucketTie(i int) float64 { return float64(1e-7 * float64(i%13)) }

// price fills every cell with the most valuable fractions, adds up to fluidColumns of the fillings as columns, and returns the highest
// worth per price. If only one column were added at a time, the simplex would run more often; if all were added, most would be useless.
func (f *fluid) price() float64 {
	f.worth = f.worth[:0]
	for i := range f.buckets {
		f.worth = append(f.worth, f.lp.Price(i))
	}
	type offer struct {
		col   lp.Column
		cell  int
		ratio float64
	}
	var offers []offer
	most := 0.0
	for o, c := range f.open {
		f.fill(o)
		ratio := f.value[c] / (float64(f.p.cells[c].price) / 1e9)
		most = max(most, ratio)
		if ratio > 1+fluidGoal/2 {
			offers = append(offers, offer{f.filled(o), c, ratio})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(b.ratio, a.ratio) })
	for _, o := range offers[:min(len(offers), fluidColumns)] {
		f.add(o.col, o.cell)
	}
	return most
}

// add adds a column of cell c to the LP.
func (f *fluid) add(col lp.Column, c int) {
	f.lp.Add(col)
	f.madeOf = append(f.madeOf, c)
}

// fill solves the fractional knapsack of the cell f.open[o] under the current worths, and keeps its value and prices of room.
func (f *fluid) fill(o int) {
	c := f.open[o]
	f.sack.Reset(f.p.cells[c].room)
	for _, i := range f.takes[o] {
		f.sack.Add(f.buckets[i].need, max(f.worth[i], 0), 1e9)
	}
	f.value[c] = f.sack.Solve()
	copy(f.room[c*f.p.dims:], f.sack.Price())
}

// filled returns the column of the contents that fill found last, for the same o.
func (f *fluid) filled(o int) lp.Column {
	col := lp.Column{Cost: float64(f.p.cells[f.open[o]].price) / 1e9}
	for j, x := range f.sack.Cut() {
		col.Rows, col.Vals = append(col.Rows, f.takes[o][j]), append(col.Vals, x)
	}
	return col
}

// divide splits the buckets that keep the bound below the LP's value, and sets the LP up again. It returns false if no bucket has to be
// split or can be, and if the new LP cannot be set up. worth and on are, per class, the results of leastWorth under unit.
//
// The LP prices a bucket as a whole. An item by itself is worth the least price of its room among all cells, and the cheapest cell may
// differ from class to class. A bucket's loss is its worth in the LP less the worth of its items. The losses add up to the
// distance between LP value and bound, so buckets with the largest loss are split first.
func (f *fluid) divide(unit *unitWorth, worth []float64, on []int) bool {
	loss, order := make([]float64, len(f.buckets)), make([]int, len(f.buckets))
	goal, left := float64(f.lp.Value()*1e9*fluidLoss), 0.0
	for i := range f.buckets {
		order[i] = i
		loss[i] = float64(f.worth[i] * 1e9)
		for _, k := range f.buckets[i].classes {
			loss[i] -= float64(worth[k] * float64(f.p.count[k]))
		}
		left += loss[i]
	}
	if left <= goal {
		return false
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loss[b], loss[a]) })
	pieces := make([][]int, len(f.buckets)) // per old bucket: the buckets that it was split into
	for i := range pieces {
		pieces[i] = []int{i}
	}
	for _, i := range order {
		if left <= goal/2 || len(f.buckets)+3 > mostBuckets { // one becomes four at the most
			break
		}
		left -= loss[i]
		split := f.buckets[i].split(f.p, unit, worth, on)
		f.buckets[i] = split[0]
		for _, b := range split[1:] {
			pieces[i] = append(pieces[i], len(f.buckets))
			f.buckets = append(f.buckets, b)
		}
	}
	return len(f.buckets) > len(pieces) && f.restart(pieces)
}

// split cuts a bucket along the border between the two cells that price most of its worth, and cuts each side in two halves. It returns one
// to four buckets.
//
// The border between two cells is where an item is worth as much on one as on the other: u_one·a = u_two·a. After a cut along it each
// bucket belongs to one cell. The halves are there because the next prices will move the border.
func (b *bucket) split(p *part, unit *unitWorth, worth []float64, on []int) []bucket {
	share := make([]float64, len(p.cells))
	for _, k := range b.classes {
		share[on[k]] += float64(worth[k] * float64(p.count[k]))
	}
	one, two := 0, -1 // cells
	for c := 1; c < len(share); c++ {
		if share[c] > share[one] {
			one, two = c, one
		} else if share[c] > 0 && (two < 0 || share[c] > share[two]) {
			two = c
		}
	}
	if two < 0 || share[two] <= 0 {
		return []bucket{*b}
	}
	far := make([]float64, p.classes()) // per class: its distance to the border
	var sides [2]float64
	side := func(k int) int {
		if far[k] > 0 {
			return 1
		}
		return 0
	}
	for _, k := range b.classes {
		far[k] = (unit.in(one, p.needs(k)) - unit.in(two, p.needs(k))) / max(worth[k], 1)
		sides[side(k)] += float64(worth[k] * float64(p.count[k]))
	}
	slices.SortFunc(b.classes, func(x, y int) int { return cmp.Or(cmp.Compare(far[x], far[y]), cmp.Compare(x, y)) })
	var out [4]bucket
	var seen [2]float64
	for _, k := range b.classes {
		s := side(k)
		at := 2 * s
		if seen[s] > sides[s]/2 {
			at++
		}
		seen[s] += float64(worth[k] * float64(p.count[k]))
		out[at].add(p, k)
	}
	return slices.DeleteFunc(out[:], func(b bucket) bool { return b.classes == nil })
}

// in returns the worth of a need at the prices of cell c.
func (w *unitWorth) in(c int, need []int64) float64 {
	var v float64
	for d, u := range need {
		v += float64(w.cells[c*w.dims+d] * float64(u))
	}
	return v
}

// restart sets up the LP for the new buckets, with the known columns. A column that held a part of an old bucket holds the same part of
// each piece that its cell can hold: it is the same node with the same items. So the LP continues near its old value.
func (f *fluid) restart(pieces [][]int) bool {
	cols, madeOf := f.lp.Columns(), f.madeOf
	if !f.start() {
		return false
	}
	for j, old := range cols {
		col := lp.Column{Cost: old.Cost}
		for i, r := range old.Rows {
			for _, b := range pieces[r] {
				if f.holds(&f.p.cells[madeOf[j]], &f.buckets[b]) {
					col.Rows, col.Vals = append(col.Rows, b), append(col.Vals, old.Vals[i])
				}
			}
		}
		f.add(col, madeOf[j])
	}
	return true
}

// unitWorth returns the prices of room of the last knapsacks, scaled so that the room of each cell is worth exactly its price.
//
// With such prices, items on a node are never worth more than it costs: Σ_k w_k·P_k ≤ Σ_k (u_c·a_k)·P_k ≤ u_c·R_c = p_c. That holds for
// items that the LP never saw, and so the same prices bound the next question too (see Memory).
func (f *fluid) unitWorth() *unitWorth {
	p := f.p
	w := &unitWorth{dims: p.dims, cells: make([]float64, len(p.cells)*p.dims), limit: make([]float64, len(p.limits))}
	for _, c := range f.open {
		room := w.cells[c*p.dims : (c+1)*p.dims]
		copy(room, f.room[c*p.dims:(c+1)*p.dims])
		p.cells[c].settle(room)
	}
	return w
}

// leastWorth returns, per class, the least price of its item's room among the given cells that can hold it, and the cell with this price.
// ok is false if no cell can hold some class.
func (p *part) leastWorth(w *unitWorth, cells []int) (worth []float64, on []int, ok bool) {
	worth, on = make([]float64, p.classes()), make([]int, p.classes())
	for k := range worth {
		worth[k] = math.Inf(1)
	}
	for _, c := range cells {
		cell := &p.cells[c]
		for k := range worth {
			need := p.needs(k)
			if v := w.in(c, need); v < worth[k] && cell.open.Has(p.group[k]) && fits(need, cell.room) {
				worth[k], on[k] = v, c
			}
		}
	}
	return worth, on, !slices.ContainsFunc(worth, func(v float64) bool { return math.IsInf(v, 1) })
}

// settle scales the prices in room so that the whole room of c is worth exactly the cell's price. If all of them are 0, it divides the
// price evenly over the dimensions.
//
// Prices that are too low must be raised as well: each item is worth the least price among all cells, so a cell that the LP does not use
// would otherwise lower the worths of all items that fit into it.
func (c *cell) settle(room []float64) {
	var sum float64
	for d, r := range c.room {
		sum += float64(room[d] * float64(r))
	}
	if sum <= 0 {
		// No bucket is worth anything here: any split of the price will do.
		for d, r := range c.room {
			if r > 0 {
				room[d] = float64(c.price) / float64(r) / float64(len(c.room))
			}
		}
		return
	}
	for d := range room {
		room[d] = float64(room[d]*float64(c.price)) / sum
	}
}
