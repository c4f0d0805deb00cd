package pack

import (
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack/lp"
)

// A unitWorth is what one unit of each dimension of room is worth, in nano-dollars. The volume LP has one price for each group of classes
// (price), the fluid LP one for each cell (cells).
type unitWorth struct {
	dims  int
	price []float64 // group*dims; not used if cells is set
	limit []float64 // per limit: what one unit of it is worth, not negative
	cells []float64 // cell*dims; nil without the fluid LP
}

// of returns the worth of a need under the prices of a group.
func (w *unitWorth) of(group int, need []int64) float64 {
	var v float64
	for d, n := range need {
		v += float64(w.price[group*w.dims+d] * float64(n))
	}
	return v
}

// top writes to out what a unit of room in cell c can be worth at most: the price of the cell, or else the highest price of the groups that
// may use it, because a node may hold items of any of these groups.
func (w *unitWorth) top(p *part, c int, out []float64) {
	if w.cells != nil {
		copy(out, w.cells[c*w.dims:(c+1)*w.dims])
		return
	}
	clear(out)
	for g := range p.cells[c].open.All() {
		for d := range out {
			out[d] = max(out[d], w.price[g*w.dims+d])
		}
	}
}

// A volumeProgram is the LP that buys room as if items were liquid. It has demand rows per group and dimension, supply rows per kind of
// cell (cells that are open to the same groups) and dimension, and columns that buy a node or pour a group's demand into a kind.
//
// As a formula, with groups g of classes that may use the same cells, kinds q of cells that are open to the same groups, x_c nodes of a
// cell and the flow f_gqd of what group g uses of dimension d in kind q:
//
//	min Σ p_c·x_c   subject to   Σ_q f_gqd ≥ demand of g in d,   Σ_g f_gqd ≤ Σ_{c of q} R_cd·x_c,   stock and limits
//
// It has few rows and all its columns from the start. It may buy the cores of one machine and the memory of another for one item, so its
// bound is weak if machines have different proportions. It is solved first, and its prices are used if the fluid LP cannot be solved.
type volumeProgram struct {
	p      *part
	demand []float64  // group*dims
	kinds  []bits.Set // per kind of cell: the groups that it is open to
	kindOf []int      // per cell: its kind
	free   []float64  // kind*dims: room that costs nothing
	stock  []int      // cells with a row of their own
	in     []int      // cells that may be bought
}

// maxVolumeRows keeps the dense simplex small; stock rows beyond it are left out, which only lowers the bound.
const maxVolumeRows = 400

// volume solves the volume LP over the given cells. It returns the prices of room, and how many steps that took.
func (p *part) volume(cells []int) (*unitWorth, int) {
	v := &volumeProgram{p: p, demand: make([]float64, p.groups*p.dims), kindOf: make([]int, len(p.cells))}
	for k, n := range p.count {
		for d, u := range p.needs(k) {
			v.demand[p.group[k]*p.dims+d] += float64(float64(u) * float64(n))
		}
	}
	v.sortKinds(cells)
	return v.solve()
}

// sortKinds sorts cells into kinds, and decides which can be bought and which of these get a stock row. A cell that costs nothing is not
// bought: its room in stock is added to v.free.
func (v *volumeProgram) sortKinds(cells []int) {
	p := v.p
	for _, i := range cells {
		c := &p.cells[i]
		k := slices.IndexFunc(v.kinds, func(s bits.Set) bool { return slices.Equal(s, c.open) })
		if k < 0 {
			k = len(v.kinds)
			v.kinds = append(v.kinds, c.open)
			v.free = append(v.free, make([]float64, p.dims)...)
		}
		v.kindOf[i] = k
		if c.price == 0 && c.stock > 0 && c.use == nil {
			for d, r := range c.room {
				v.free[k*p.dims+d] += float64(float64(r) * float64(c.stock))
			}
			continue
		}
		v.in = append(v.in, i)
	}
	rows := (p.groups+len(v.kinds))*p.dims + len(p.limits)
	for _, i := range v.in {
		if p.cells[i].stock > 0 && rows < maxVolumeRows {
			v.stock = append(v.stock, i)
			rows++
		}
	}
}

// solve builds and solves the LP, and reads its row prices as prices of room and of limits. It returns prices of 0 if there are too many
// rows. Rows are in this order: demand, supply (from supply on), limits (from limits on), stock (from stock on).
func (v *volumeProgram) solve() (*unitWorth, int) {
	p, dims := v.p, v.p.dims
	w := &unitWorth{dims: dims, price: make([]float64, p.groups*dims), limit: make([]float64, len(p.limits))}
	supply := p.groups * dims
	limits := supply + len(v.kinds)*dims
	stock := limits + len(p.limits)
	m := stock + len(v.stock)
	if m > 2*maxVolumeRows {
		return w, 0 // too many kinds of cells: no bound by volume
	}
	scale := v.scale()
	rows, start := make([]lp.Row, m), make([]lp.Column, m)
	dearest := 1.0
	for _, i := range v.in {
		dearest = max(dearest, float64(p.cells[i].price)/1e9)
	}
	for r := range supply {
		rows[r].Bound = v.demand[r] / scale[r%dims]
		start[r] = lp.Column{Rows: []int{r}, Vals: []float64{1}, Cost: dearest * 1e6}
	}
	for r := supply; r < limits; r++ {
		rows[r] = lp.Row{Bound: v.free[r-supply] / scale[(r-supply)%dims], Limits: true}
	}
	for l, most := range p.limits {
		rows[limits+l].Limits = true
		if most > 0 {
			rows[limits+l].Bound = 1
		}
	}
	for s, i := range v.stock {
		rows[stock+s] = lp.Row{Bound: float64(p.cells[i].stock), Limits: true}
	}
	program := lp.NewSimplex(rows, start)
	v.addColumns(program, scale, supply, limits, stock)
	program.Optimize(func() bool { return true })
	for r := range supply {
		w.price[r] = float64(max(program.Price(r), 0)/scale[r%dims]) * 1e9
	}
	for l, most := range p.limits {
		w.limit[l] = float64(max(-program.Price(limits+l), 0)/float64(max(most, 1))) * 1e9
	}
	v.lower(w)
	return w, program.Steps.Take()
}

// scale returns the total demand of each dimension. Rows are divided by it, so that their entries are near one.
//
// Numbers of bytes are nine orders of magnitude larger than numbers of cores. Without scaling, a number that the simplex may treat as 0 in
// one row would be a whole machine in another.
func (v *volumeProgram) scale() []float64 {
	scale := make([]float64, v.p.dims)
	for r, n := range v.demand {
		scale[r%v.p.dims] += n
	}
	return scale
}

// addColumns adds the variables of the formula above: for each cell in v.in the number x_c of nodes (−room in the supply rows of its kind),
// and for each kind, each group that it is open to and each dimension the flow f_gqd (1 in the demand row and in the supply row). supply,
// limits and stock are the indexes of the first rows of these sorts.
func (v *volumeProgram) addColumns(program *lp.Simplex, scale []float64, supply, limits, stock int) {
	p, dims := v.p, v.p.dims
	stockRow := make(map[int]int, len(v.stock))
	for s, i := range v.stock {
		stockRow[i] = stock + s
	}
	for _, i := range v.in {
		c := &p.cells[i]
		col := lp.Column{Cost: float64(c.price) / 1e9}
		for d, r := range c.room {
			col.Rows, col.Vals = append(col.Rows, supply+v.kindOf[i]*dims+d), append(col.Vals, -float64(r)/scale[d])
		}
		for l, u := range c.use {
			if u > 0 {
				col.Rows, col.Vals = append(col.Rows, limits+l), append(col.Vals, float64(u)/float64(max(p.limits[l], 1)))
			}
		}
		if r, ok := stockRow[i]; ok {
			col.Rows, col.Vals = append(col.Rows, r), append(col.Vals, 1)
		}
		program.Add(col)
	}
	for k, open := range v.kinds {
		for g := range open.All() {
			for d := range dims {
				program.Add(lp.Column{Rows: []int{g*dims + d, supply + k*dims + d}, Vals: []float64{1, 1}})
			}
		}
	}
}

// lower scales the prices down until no cell that can be had in any number has room that is worth more than the cell costs. The solution
// of the LP exceeds that by rounding only.
func (v *volumeProgram) lower(w *unitWorth) {
	top := make([]float64, w.dims)
	most := 1.0
	for _, i := range v.in {
		c := &v.p.cells[i]
		if c.stock > 0 {
			continue
		}
		w.top(v.p, i, top)
		var sum float64
		for d, r := range c.room {
			sum += float64(top[d] * float64(r))
		}
		if cost := w.cost(c); cost > 0 {
			most = max(most, sum/cost)
		} else if sum > 0 {
			most = math.Inf(1)
		}
	}
	for i := range w.price {
		w.price[i] /= most
	}
}

// cost returns what a node of a cell costs: its price, and its use of limits at the prices of w.
func (w *unitWorth) cost(c *cell) float64 {
	cost := float64(c.price)
	for l, u := range c.use {
		cost += float64(w.limit[l] * float64(u))
	}
	return cost
}
