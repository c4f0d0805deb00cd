package repack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Each commitment is a row (a pack.Limit) of the packer's problem. A machine that a commitment can cover is one more cell with the same
// room, which costs next to nothing and uses the row. Machines that stay use the same rows: each line of them is a class with its own
// cells. What they cost by themselves (rows.fixed) is taken off prices and bounds.
//
// Any way to cover a fleet is a mixture of such cells, also the order that AWS uses. So a bound with rows is a bound on every bill. A node
// may be covered in part; therefore proofs in whole nodes are off.

// A discounted cell is an on-demand machine that one commitment covers, or that commitments could cover but do not.
type discounted struct {
	commitment int      // index; −1 if none covers it
	takes      int64    // what a node uses of the commitment's row
	shapes     bits.Set // that a launch may choose from
	offers     bits.Set // that a launch may choose from
}

// A rows is the state of commitments in a question.
type rows struct {
	blind bool  // the question ignores commitments
	on    bool  // commitments are part of the problem, with machines that stay
	fixed int64 // what the machines that stay cost without new ones
}

// A discounter adds commitments to a question. A nil one adds nothing.
type discounter struct {
	q    *question
	book *tariff.Book
}

// discount returns the discounter of a question; nil where it has no commitments.
func discount(q *question) *discounter {
	if q.p.Settings.Commitments == nil || q.rows.blind {
		return nil
	}
	return &discounter{q, q.p.Settings.Commitments}
}

// addCells adds on-demand cells for the shapes of w that commitments can cover: each shape once for each commitment, and once at its price.
func (r *discounter) addCells(t problem.TemplateID, w *want) {
	if r == nil {
		return
	}
	q, book := r.q, r.book
	cat := q.p.Templates[t].Catalog
	onDemand := w.offers.Clone()
	onDemand.And(cat.ByKind[shape.OnDemand])
	covered := bits.Make(cat.Len()) // shapes
	for j := range book.Commitments {
		ways, shapes := r.waysOf(t, w.shapes, onDemand, j)
		covered.Or(shapes)
		offers := onDemand.Clone()
		offers.Only(func(o int) bool { return book.Commitments[j].In(cat.Offers[o].Labels) })
		for _, way := range ways {
			r.addWay(t, w, way, &discounted{commitment: j, takes: way.takes, shapes: shapes, offers: offers})
		}
	}
	for sh := range covered.All() {
		if way, ok := r.cheapestWay(t, sh, onDemand, -1); ok {
			r.addWay(t, w, way, &discounted{commitment: -1, shapes: covered, offers: onDemand})
		}
	}
}

// A way is a way to buy a shape on demand.
type way struct {
	shape int
	price int64 // nano-dollars an hour, on demand
	takes int64 // what it uses of the commitment's row; 0 without one
}

// waysOf returns how to buy the shapes that a commitment covers, without ways that another one beats in all respects, and the set of all
// shapes that it covers.
func (r *discounter) waysOf(t problem.TemplateID, shapes, offers bits.Set, commitment int) (ways []way, all bits.Set) {
	q := r.q
	tmpl := &q.p.Templates[t]
	all = bits.Make(tmpl.Catalog.Len())
	for sh := range shapes.All() {
		if w, ok := r.cheapestWay(t, sh, offers, commitment); ok {
			all.Add(sh)
			ways = append(ways, w)
		}
	}
	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Or(cmp.Compare(a.takes, b.takes), cmp.Compare(a.price, b.price)) })
	var out []way
	for _, w := range ways {
		if !slices.ContainsFunc(out, func(o way) bool {
			return o.price <= w.price && tmpl.Room[w.shape].Fits(tmpl.Room[o.shape]) &&
				tmpl.Catalog.VCPU[o.shape] <= tmpl.Catalog.VCPU[w.shape] &&
				tmpl.Catalog.Exotic.Has(o.shape) == tmpl.Catalog.Exotic.Has(w.shape) && q.p.Drivers+len(q.gear.sets) == 0
		}) {
			out = append(out, w)
		}
	}
	return out, all
}

// cheapestWay returns the cheapest of some offers by which a shape is sold and that a commitment covers; for commitment −1, the cheapest of
// all these offers.
func (r *discounter) cheapestWay(t problem.TemplateID, sh int, offers bits.Set, commitment int) (best way, ok bool) {
	q := r.q
	cat, book := q.p.Templates[t].Catalog, r.book
	for o := range cat.Sold[sh].All() {
		price := max(cat.Price[sh][o], 1)
		if !offers.Has(o) || ok && price >= best.price {
			continue
		}
		takes := int64(0)
		if commitment >= 0 {
			line := book.Hour(cat.Names[sh], cat.Offers[o].Labels, price)
			if takes = book.Commitments[commitment].Takes(&line); takes == 0 {
				continue
			}
		}
		best, ok = way{sh, price, takes}, true
	}
	return best, ok
}

// addWay adds the cell of a way. With a commitment it costs only one part in tariff.ListShare of the price, so that the packer still
// prefers cheaper machines.
func (r *discounter) addWay(t problem.TemplateID, w *want, buy way, d *discounted) {
	q := r.q
	tmpl := &q.p.Templates[t]
	own, price := q.p.Settings.Terms.Own(buy.price), buy.price
	if d.commitment >= 0 {
		price /= tariff.ListShare
	}
	q.addCell(cell{tmpl: t, shape: buy.shape, pins: w.pins, discounted: d}, tmpl.Catalog.VCPU[buy.shape],
		pack.Cell{Room: q.roomOf(tmpl, buy.shape), Price: max(price+own, 1), Own: own})
}

// makeRows adds the rows of commitments and the machines that stay, after all cells of the question are there. If no commitment covers any
// cell, it changes nothing.
func (r *discounter) makeRows() {
	if r == nil {
		return
	}
	q, book := r.q, r.book
	q.rows.on = slices.ContainsFunc(q.cells, func(c cell) bool { return c.discounted != nil && c.discounted.commitment >= 0 })
	if !q.rows.on {
		return
	}
	fixed := book.Takers(q.p.Settings.Fixed)
	q.rows.fixed = book.Reckon(fixed)
	limits := make([]pack.Limit, len(book.Commitments))
	for j := range limits {
		limits[j] = pack.Limit{Use: make([]int64, len(q.cells)), Max: book.Commitments[j].Holds(), Parts: true}
	}
	for c := range q.cells {
		if d := q.cells[c].discounted; d != nil && d.commitment >= 0 {
			limits[d.commitment].Use[c] = d.takes
		}
	}
	r.addDimension()
	for i := range fixed {
		r.addFixed(&fixed[i], limits)
	}
	q.problem.Limits = append(q.problem.Limits, limits...)
	for l := range q.problem.Limits {
		use := q.problem.Limits[l].Use
		q.problem.Limits[l].Use = append(use, make([]int64, len(q.problem.Cells)-len(use))...)
	}
	q.problem.Limits = slices.DeleteFunc(q.problem.Limits, func(l pack.Limit) bool {
		return !slices.ContainsFunc(l.Use, func(u int64) bool { return u > 0 })
	})
}

// addDimension adds a dimension of room that only machines that stay have and need, so that they share no cell with pods.
func (r *discounter) addDimension() {
	q := r.q
	for i := range q.problem.Classes {
		q.problem.Classes[i].Need = append(q.problem.Classes[i].Need, 0)
	}
	for i := range q.problem.Cells {
		q.problem.Cells[i].Room = append(q.problem.Cells[i].Room, 0)
	}
}

// addFixed adds the machines of one line that stay: a class with one item for each, a cell at the on-demand price, and a cell for each
// commitment that may cover them.
func (r *discounter) addFixed(l *tariff.Line, rows []pack.Limit) {
	q, book := r.q, r.book
	need := make([]int64, len(q.problem.Cells[0].Room))
	need[len(need)-1] = 1
	first := len(q.problem.Cells)
	q.problem.Cells = append(q.problem.Cells, pack.Cell{Room: slices.Clone(need), Price: max(int64(l.PerHour), 1)})
	for j := range book.Commitments {
		takes := book.Commitments[j].Takes(l)
		if takes == 0 {
			continue
		}
		c := len(q.problem.Cells)
		q.problem.Cells = append(q.problem.Cells, pack.Cell{Room: slices.Clone(need), Price: max(int64(l.PerHour)/tariff.ListShare, 1)})
		rows[j].Use = append(rows[j].Use, make([]int64, c+1-len(rows[j].Use))...)
		rows[j].Use[c] = takes
	}
	cells := bits.Make(len(q.problem.Cells))
	for c := first; c < len(q.problem.Cells); c++ {
		cells.Add(c)
	}
	q.problem.Classes = append(q.problem.Classes, pack.Class{Need: need, Count: int(l.Seconds / 3600), Cells: cells})
}

// roundings is the difference in nano-dollars that rounding may make between a bill and its rows: a bill is rounded at the end, a row in
// each cell.
const roundings = 4

// withoutFixed returns a bound without the cost of the machines that stay.
func (r *rows) withoutFixed(bound int64) int64 {
	if !r.on || bound == 0 {
		return bound
	}
	return max(0, bound-r.fixed-roundings)
}

// beside returns the options of a question with machines that stay, for a plan that costs cost without them: prices include them, the fleet
// has to be closer to its bound, and there are no proofs in whole nodes.
func (r *rows) beside(o pack.Options, cost int64) pack.Options {
	whole := float64(cost+r.fixed) / float64(max(cost, 1))
	o.CloseMillionths = int64(float64(o.CloseMillionths) / max(whole, 1))
	if o.Price > 0 {
		o.Price += r.fixed
	}
	o.Exact = 0
	return o
}
