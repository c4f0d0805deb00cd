package shape

import (
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// MinValues says how many values of a label the types of a claim must have together.
type MinValues struct {
	Key string
	N   int
}

// A Variety says how many values of the labels in minValues the types of a claim have, when it is bought as one kind.
type Variety struct {
	Kind Kind
	Has  []int // by minValues: at most as many as N

	lacks int // values that are missing in all; math.MaxInt if some label has none
}

// Enough reports whether all minValues are met.
func (v *Variety) Enough() bool { return v.lacks == 0 }

// Variety returns the kind as which a claim with minValues is bought, among these shapes and offers, and the values that it has then.
//
// A launch has one kind. It is the first kind that meets minValues by itself. If only spot and on-demand together meet them, it is the one
// of the cheapest offer, because minValues are about what a claim lists. If these do not meet them either, it is the kind that lacks least.
// Labels that offers decide are counted on all shapes, because a claim lists these for any kind.
func (c *Catalog) Variety(shapes, offers bits.Set, want []MinValues) Variety {
	best := Variety{Kind: Kinds, Has: make([]int, len(want)), lacks: math.MaxInt}
	of, both := bits.Make(c.Len()), bits.Make(c.Len())
	for k := range Kinds {
		clear(of)
		for s := range shapes.All() {
			if c.Sold[s].Meets3(offers, c.ByKind[k]) {
				of.Add(s)
			}
		}
		if !of.Any() {
			continue
		}
		if v := c.varietyOf(k, of, shapes, want); v.lacks < best.lacks || best.Kind == Kinds {
			best = v
		}
		if best.Enough() {
			return best
		}
		if k != Reserved {
			both.Or(of)
		}
	}
	if v := c.varietyOf(best.Kind, both, shapes, want); v.Enough() && both.Any() {
		v.Kind = c.cheaperKind(shapes, offers)
		return v
	}
	return best
}

// cheaperKind returns the kind, spot or on-demand, of the cheapest of some offers.
func (c *Catalog) cheaperKind(shapes, offers bits.Set) Kind {
	q := &query{shapes: shapes, offers: offers}
	spot, asSpot := c.first(q, Spot)
	demand, onDemand := c.first(q, OnDemand)
	if asSpot && (!onDemand || c.byPrice[Spot][spot].Price <= c.byPrice[OnDemand][demand].Price) {
		return Spot
	}
	return OnDemand
}

// varietyOf returns the values that the shapes in of have. Labels that offers decide are counted on the shapes in listed.
func (c *Catalog) varietyOf(k Kind, of, listed bits.Set, want []MinValues) Variety {
	v := Variety{Kind: k, Has: make([]int, len(want))}
	for i, m := range want {
		among := of
		if c.offered[m.Key] {
			among = listed
		}
		v.Has[i] = c.Distinct(m.Key, among, m.N)
		v.lacks += m.N - v.Has[i]
	}
	if slices.Contains(v.Has, 0) { // minValues are not lowered to nothing
		v.lacks = math.MaxInt
	}
	return v
}

// diverse returns the launch of a claim with minValues, and false if they cannot be met. Each type that typesSent chose is sent at least
// once, even if cheaper offerings would fill the launch.
func (c *Catalog) diverse(q *query, want []MinValues) (Launch, bool) {
	v := c.Variety(q.shapes, q.offers, want)
	if !v.Enough() {
		return Launch{}, false
	}
	sent, left := c.typesSent(q, v.Kind, want)
	list, seen := c.byPrice[v.Kind], bits.Make(c.Len())
	l := Launch{Kind: v.Kind, Types: left}
	sum, paid := int64(0), int64(0)
	for i := range list {
		x := &list[i]
		if !sent.Has(x.Shape) || !q.offers.Has(x.Offer) {
			continue
		}
		// left types are still to come, and each needs a place.
		switch {
		case !seen.Has(x.Shape):
			seen.Add(x.Shape)
			left--
		case l.Offers+left >= MostOverrides:
			continue
		}
		if l.Offers == 0 {
			l.First, l.Base = *x, x.Price
		}
		sum += x.Price
		paid += c.send(&l, x)
	}
	l.Price, l.Cost = c.Paid(l.First.Shape, l.First.Offer), l.Base
	if v.Kind == Spot {
		l.Price, l.Cost = mean(paid, l.Offers), mean(sum, l.Offers)
	}
	l.Risk = l.Cost - l.Price
	return l, true
}

// typesSent returns the shapes that a launch as one kind sends, and how many: for each of minValues the cheapest that bring its values,
// however many these are, then the cheapest others up to band.Types. Labels that offers decide need no shape here: Variety counts them on
// all.
func (c *Catalog) typesSent(q *query, kind Kind, want []MinValues) (sent bits.Set, types int) {
	var order []int
	known, must := bits.Make(c.Len()), bits.Make(c.Len())
	for i := range c.byPrice[kind] {
		if x := &c.byPrice[kind][i]; !known.Has(x.Shape) && c.allows(q, x) {
			known.Add(x.Shape)
			order = append(order, x.Shape)
		}
	}
	for _, m := range want {
		if col := c.columns[m.Key]; col != nil && !c.offered[m.Key] {
			col.bring(m.N, order, must)
		}
	}
	sent, types = must.Clone(), must.Count()
	for _, s := range order {
		if types < q.band.Types && !sent.Has(s) {
			sent.Add(s)
			types++
		}
	}
	return sent, types
}

// bring goes through the shapes in order, and adds to must each shape with a new value of the label, until there are n values.
func (col *column) bring(n int, order []int, must bits.Set) {
	seen, found := bits.Make(len(col.values)), 0
	for _, s := range order {
		if found >= n {
			return
		}
		for v := range col.values {
			if !seen.Has(v) && col.shapes[v].Has(s) {
				seen.Add(v)
				found++
				must.Add(s)
			}
		}
	}
}
