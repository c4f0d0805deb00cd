package pack

import (
	"cmp"
	"math"
	"slices"
)

// The fluid LP stands between the volume LP and the configuration LP: items may be cut, but each cell must be filled with items that
// may use it and fit into it, so that cheap processors and cheap memory of different machines cannot be bought for the same item.
// Classes with needs of nearly the same direction and size are one bucket. Its prices give a worth per item: the least that any cell
// that can hold the item asks for it. Such worths prove a bound for the real classes, however coarse the buckets are.
type fluid struct {
	p       *part
	open    func(*cell) bool
	buckets []bucket
	lp      *simplex
	sack    *fraction
	worth   []float64 // per bucket
	room    []float64 // cell*dims: worth of a unit of room in each cell; filled by price
	value   []float64 // per cell: worth of its best contents
}

type bucket struct {
	group int
	need  []float64 // of all its items together
	least []int64   // per dimension
}

const (
	maxBuckets  = 120
	fluidRounds = 60
	fluidGoal   = 2e-4
)

// fluidWorth returns the worth per class and, per cell, the worth of its room. ok is false when the part has cells in short stock, for
// which the fluid LP has no rows, or items without any need.
func (p *part) fluidWorth(use func(*cell) bool) (worth []float64, unit *unitWorth, ok bool) {
	if slices.ContainsFunc(p.cells, func(c cell) bool { return use(&c) && (c.stock > 0 || c.price == 0) }) {
		return nil, nil, false
	}
	for k := range p.count {
		if !slices.ContainsFunc(p.needs(k), func(n int64) bool { return n > 0 }) {
			return nil, nil, false // an item without needs has no direction
		}
	}
	f := &fluid{p: p, open: use, sack: newFraction(p.dims), room: make([]float64, len(p.cells)*p.dims), value: make([]float64, len(p.cells))}
	f.sort()
	if !f.start() {
		return nil, nil, false
	}
	for range fluidRounds {
		f.lp.optimize(func() bool { return true })
		if f.price() <= 1+fluidGoal {
			break
		}
	}
	return f.result()
}

// sort puts classes into buckets: by group, then by direction and size, finely enough to fill maxBuckets.
func (f *fluid) sort() {
	p := f.p
	total := make([]float64, p.dims)
	for k, n := range p.count {
		for d, u := range p.needs(k) {
			total[d] += float64(float64(u) * float64(n))
		}
	}
	key := func(k int, grain float64) [6]int {
		var out [6]int
		out[0] = p.group[k]
		var sum, most float64
		for d, u := range p.needs(k) {
			sum += float64(u) / total[d]
			most = max(most, float64(u)/total[d])
		}
		for d, u := range p.needs(k) {
			if d < 4 {
				out[1+d] = int(float64(float64(u)/total[d]/sum*grain) + 0.5)
			}
		}
		_, exp := math.Frexp(most)
		out[5] = exp / 2
		return out
	}
	for grain := 512.0; ; grain /= 2 {
		at := make(map[[6]int]int)
		of := make([]int, p.classes())
		for k := range p.count {
			id := key(k, grain)
			if _, ok := at[id]; !ok {
				at[id] = len(at)
			}
			of[k] = at[id]
		}
		if len(at) <= maxBuckets || grain < 2 {
			f.fillBuckets(of, len(at))
			return
		}
	}
}

func (f *fluid) fillBuckets(of []int, n int) {
	p := f.p
	f.buckets = make([]bucket, n)
	for k, count := range p.count {
		b := &f.buckets[of[k]]
		if b.need == nil {
			*b = bucket{p.group[k], make([]float64, p.dims), slices.Clone(p.needs(k))}
		}
		for d, u := range p.needs(k) {
			b.need[d] += float64(float64(u) * float64(count))
			b.least[d] = min(b.least[d], u)
		}
	}
}

func (f *fluid) takes(c *cell, b *bucket) bool {
	return f.open(c) && c.open.Has(b.group) && fits(b.least, c.room)
}

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

func (f *fluid) start() bool {
	m := len(f.buckets)
	rhs, sign, first := make([]float64, m), make([]float64, m), make([]column, m)
	for i := range f.buckets {
		b := &f.buckets[i]
		low := math.Inf(1)
		for c := range f.p.cells {
			cell := &f.p.cells[c]
			if !f.takes(cell, b) {
				continue
			}
			if each := float64(cell.price) / 1e9 / portion(cell, b); each < low {
				low = each
				first[i] = column{[]int{i}, []float64{portion(cell, b)}, float64(cell.price) / 1e9}
			}
		}
		if math.IsInf(low, 1) {
			return false
		}
		rhs[i], sign[i] = 1+float64(1e-7*float64(i%13)), -1
	}
	f.lp = newSimplex(rhs, sign, first)
	return true
}

// price fills every cell with the most valuable fractions, adds the best as columns, and returns the highest worth per price.
func (f *fluid) price() float64 {
	f.worth = append(f.worth[:0], f.lp.y...)
	type offer struct {
		col   column
		ratio float64
	}
	var offers []offer
	most := 0.0
	for c := range f.p.cells {
		cell := &f.p.cells[c]
		if !f.open(cell) {
			continue
		}
		col := f.best(c)
		ratio := f.value[c] / (float64(cell.price) / 1e9)
		most = max(most, ratio)
		if ratio > 1+fluidGoal/2 {
			offers = append(offers, offer{col, ratio})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(b.ratio, a.ratio) })
	for _, o := range offers[:min(len(offers), 8)] {
		f.lp.add(o.col)
	}
	return most
}

// best solves the fractional knapsack of cell c under the current worths.
func (f *fluid) best(c int) column {
	cell := &f.p.cells[c]
	f.sack.reset(cell.room)
	of := make([]int, 0, len(f.buckets))
	for i := range f.buckets {
		if b := &f.buckets[i]; f.worth[i] > 0 && f.takes(cell, b) {
			f.sack.add(b.need, f.worth[i], 1e9)
			of = append(of, i)
		}
	}
	f.value[c] = f.sack.solve()
	copy(f.room[c*f.p.dims:], f.sack.price)
	col := column{cost: float64(cell.price) / 1e9}
	for r, j := range f.sack.basis {
		if j >= 0 && f.sack.x[r] > 1e-15 {
			col.rows, col.vals = append(col.rows, of[j]), append(col.vals, f.sack.x[r])
		}
	}
	return col
}

// result gives each class the least worth that a cell which can hold it puts on it, room being worth what the cell costs.
func (f *fluid) result() ([]float64, *unitWorth, bool) {
	p := f.p
	w := &unitWorth{dims: p.dims, cells: make([]float64, len(p.cells)*p.dims), limit: make([]float64, len(p.limits))}
	for c := range p.cells {
		cell := &p.cells[c]
		if !f.open(cell) {
			continue
		}
		room := w.cells[c*p.dims : (c+1)*p.dims]
		copy(room, f.room[c*p.dims:(c+1)*p.dims])
		cell.settle(room)
	}
	worth, ok := p.leastWorth(w, f.open)
	return worth, w, ok
}

// leastWorth values each class by the cell that puts the least on it, among those that can hold it. ok is false if one has none.
func (p *part) leastWorth(w *unitWorth, use func(*cell) bool) (worth []float64, ok bool) {
	worth = make([]float64, p.classes())
	for k := range worth {
		worth[k] = math.Inf(1)
	}
	for c := range p.cells {
		cell := &p.cells[c]
		if !use(cell) {
			continue
		}
		room := w.cells[c*p.dims : (c+1)*p.dims]
		for k := range worth {
			if !cell.open.Has(p.group[k]) || !fits(p.needs(k), cell.room) {
				continue
			}
			var v float64
			for d, u := range p.needs(k) {
				v += float64(room[d] * float64(u))
			}
			worth[k] = min(worth[k], v)
		}
	}
	return worth, !slices.ContainsFunc(worth, func(v float64) bool { return math.IsInf(v, 1) })
}

// settle scales the worth of a cell's room to the cell's price.
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
