package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/work"
)

// The fluid LP stands between the volume LP and the configuration LP: items may be cut, but each cell must be filled with items that
// may use it and fit into it, so that cheap processors and cheap memory of different machines cannot be bought for the same item.
// Its prices give a worth per item: the least that any cell that can hold the item asks for it. Such worths prove a bound for the real
// classes, however coarse the LP sees them: it starts with buckets of classes whose needs have nearly the same direction and size, and
// divides those that turn out to matter. What an item is worth turns on where the border between two kinds of machine runs, and a bucket
// that lies across a border moves it: with 59 buckets of equal width, prices for 5,000 pods were off by half a percent.
//
// Its columns are nodes with their contents in parts of buckets: a column of cell c says that one node holds the
// part x_b of all items of bucket b. A row for each bucket asks that its parts add up to one. There are too many
// columns to write down, but the best one under given prices is a fractional knapsack, which has a formula; so they
// are found one after the other, as in the configuration LP. That is why this LP is solved quickly where the other
// one takes long: its knapsacks are easy.
type fluid struct {
	p       *part
	open    []int   // cells that may be used
	apart   float64 // how many directions buckets tell apart
	buckets []bucket
	takes   [][]int // per open cell: buckets it can hold
	lp      *lp.Simplex
	madeOf  []int // per column of lp: its cell
	sack    *lp.Fractional
	worth   []float64 // per bucket
	room    []float64 // cell*dims: worth of a unit of room in each cell; filled by price
	value   []float64 // per cell: worth of its best contents
	steps   work.Steps
}

type bucket struct {
	group   int
	classes []int
	need    []float64 // of all its items together
	least   []int64   // per dimension
}

const (
	mostBuckets  = 120
	firstBuckets = 30 // where the LP starts when not every class can have a bucket of its own
	// firstDirections is how many directions buckets tell apart at first: where so many do not do, classes that
	// differ by less are equal to any machine that is sold. They are halved until buckets are few enough.
	firstDirections = 512
	fluidRounds     = 60
	fluidColumns    = 8
	fluidGoal       = 2e-4 // a cell may hold so much more than it costs
	fluidLoss       = 1e-4 // of the LP's value, by which the bound may stay behind it
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

// rough prices room and items by buckets of equal width. exact says that they are as fine as they get.
func (f *fluid) rough() (by pricing, exact, ok bool) {
	f.sort(mostBuckets)
	exact = f.apart == firstDirections
	by, ok = f.solve(false)
	return by, exact, ok
}

// fine prices them by fewer buckets, which are divided as long as that matters.
func (f *fluid) fine() (pricing, bool) {
	f.sort(firstBuckets)
	return f.solve(true)
}

// solve solves the LP over the present buckets and, if wanted, divides them until that does not matter any more.
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
// It ends when no cell can be filled for more than a fiftieth of a percent beyond its price: then the value is that near to the true one,
// and the bound that leastWorth makes of it loses no more.
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

// sort puts classes into at most so many buckets, if groups are not more: by group, then by direction and size.
//
// Two items are alike to an LP if they use room in the same proportions: then either may stand for so many of the other. So what counts is
// the direction of a need, measured in parts of all demand so that cores and bytes compare, and only then its size, because a machine that
// is smaller than an item cannot hold it, which an LP that cuts items would not see. Sizes are distinguished by factors of four.
func (f *fluid) sort(most int) {
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

func (f *fluid) holds(c *cell, b *bucket) bool { return c.open.Has(b.group) && fits(b.least, c.room) }

// portion is how much of a bucket alone a cell holds.
func portion(c *cell, b *bucket) float64 {
	most := math.Inf(1)
	for d, u := range b.need {
		if u > 0 {
			most = min(most, float64(c.room[d])/u)
		}
	}
	return most
}

// start sets up the LP: one column per bucket that holds it alone is the first basis. It returns false if a bucket fits nowhere.
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

// bucketTie does for the shares of buckets, which are one each, what tieBreak does for numbers of items.
func bucketTie(i int) float64 { return float64(1e-7 * float64(i%13)) }

// price fills every cell with the most valuable fractions, adds the best as columns, and returns the highest worth per price.
//
// Up to fluidColumns are added at a time. With one the simplex would be run again after each; with all of them it would be slowed down by
// columns that the first ones make useless.
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

func (f *fluid) add(col lp.Column, c int) {
	f.lp.Add(col)
	f.madeOf = append(f.madeOf, c)
}

// fill solves the fractional knapsack of an open cell under the current worths.
func (f *fluid) fill(o int) {
	c := f.open[o]
	f.sack.Reset(f.p.cells[c].room)
	for _, i := range f.takes[o] {
		f.sack.Add(f.buckets[i].need, max(f.worth[i], 0), 1e9)
	}
	f.value[c] = f.sack.Solve()
	copy(f.room[c*f.p.dims:], f.sack.Price())
}

// filled is the column of what fill has found.
func (f *fluid) filled(o int) lp.Column {
	col := lp.Column{Cost: float64(f.p.cells[f.open[o]].price) / 1e9}
	for j, x := range f.sack.Cut() {
		col.Rows, col.Vals = append(col.Rows, f.takes[o][j]), append(col.Vals, x)
	}
	return col
}

// divide splits the buckets that keep the bound behind the LP's value: the items in them are worth less, each by itself, than the LP
// pays for them together. It returns false when they matter no longer. on is, per class, the cell that puts the least on it.
//
// The LP pays for a bucket as a whole: it may put its cores into one kind of machine and its memory into another, as long as both hold
// parts of the same bucket. An item by itself is worth only the least that any cell asks for it. The sum of what is lost this way, bucket
// by bucket, is exactly the distance between the LP's value and the bound; so that is where buckets are divided, those that lose most
// first, and nowhere else.
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
	pieces := make([][]int, len(f.buckets)) // per bucket: what became of it
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

// split cuts a bucket where the border between the two cells runs that are best for most of it, and cuts both sides in halves.
//
// The border between two cells is where an item is worth as much on one as on the other: u_one·a = u_two·a. It is a plane through the
// origin, and prices say on which side an item lies. A cut along it leaves two buckets of which each belongs to one cell, and the loss of
// both together is what it would be with a bucket for each item. Each side is halved once more, because the next prices will move the
// border.
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

// in is the worth of a need in cell c.
func (w *unitWorth) in(c int, need []int64) float64 {
	var v float64
	for d, u := range need {
		v += float64(w.cells[c*w.dims+d] * float64(u))
	}
	return v
}

// restart sets up the LP for the new buckets, with the columns that are known: they hold the same portion of every piece.
//
// A column that held a part of the old bucket holds the same part of each piece: it is the same node with the same items. So the LP begins
// where it stood, its value does not jump, and only what the new pieces allow has to be found.
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

// unitWorth values the room of each cell so that a full one is worth what it costs.
//
// The fractional knapsack's prices sell the room of a cell for what its best contents are worth, which is at most about its price. Scaled
// to the price exactly, they prove for any items that those on a node are not worth more than it costs: Σ_k w_k·P_k ≤ Σ_k (u_c·a_k)·P_k ≤
// u_c·R_c = p_c. That holds for items that the LP never saw, and so the same prices bound the next question too (see Memory).
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

// leastWorth values each class by the cell that puts the least on it, among those that can hold it, and names that cell. ok is false
// if a class has none.
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

// settle scales the worth of a cell's room to the cell's price.
//
// Scaling up is as important as scaling down: room that the LP left cheap, because it uses none of that cell, could otherwise only lower
// what items are worth, since each is valued by the cell that asks the least for it.
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
