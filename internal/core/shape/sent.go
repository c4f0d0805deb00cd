package shape

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A Sent is one offering that a launch sends: shape and offer, with its price.
type Sent struct {
	Shape, Offer int
	Price        int64
}

// A Launch is what a claim becomes when it is launched.
type Launch struct {
	Kind  Kind
	First Sent // the cheapest offering
	// Price is what launch pays: the lowest offering, or for spot the mean of all that are sent. Floor is the lowest, Worst
	// the dearest that is sent.
	Price, Floor, Worst int64
	Types, Offers       int // how many are sent
}

// A Band limits what a launch sends.
type Band struct {
	Types    int // at most so many types, the cheapest
	Permille int // a spot claim's mean may be so much dearer than its cheapest offering
}

// DefaultBand is the limit unless somebody chose others.
var DefaultBand = Band{Types: 60, Permille: 10}

// sortByPrice prepares the offerings of each kind, cheapest first.
func (c *Catalog) sortByPrice() {
	for s := range c.Names {
		for o := range c.Sold[s].All() {
			k := c.Offers[o].Kind
			c.byPrice[k] = append(c.byPrice[k], Sent{s, o, c.Price[s][o]})
		}
	}
	for k := range c.byPrice {
		slices.SortFunc(c.byPrice[k], func(a, b Sent) int {
			return cmp.Or(cmp.Compare(a.Price, b.Price), cmp.Compare(a.Shape, b.Shape), cmp.Compare(a.Offer, b.Offer))
		})
	}
}

// A query is what a claim allows.
type query struct {
	shapes, offers bits.Set
	ordinary       bool // leave exotic shapes out
}

func (c *Catalog) allows(q *query, x *Sent) bool {
	return q.shapes.Has(x.Shape) && q.offers.Has(x.Offer) && !(q.ordinary && c.Exotic.Has(x.Shape))
}

// first returns the cheapest offering of a kind that the query allows.
func (c *Catalog) first(q *query, kind Kind) (int, bool) {
	for i := range c.byPrice[kind] {
		if c.allows(q, &c.byPrice[kind][i]) {
			return i, true
		}
	}
	return 0, false
}

// Launch applies the provider's launch filters to a claim that allows these shapes and these offers: reserved before
// spot before on-demand; ordinary machines before exotic ones and no spot offering dearer than the cheapest on-demand one,
// unless diversity was demanded; at most band.Types types; and of spot no more than the band allows. It returns false
// when nothing can be bought.
func (c *Catalog) Launch(shapes, offers bits.Set, diverse bool, band Band) (Launch, bool) {
	q := &query{shapes: shapes, offers: offers, ordinary: !diverse && !shapes.Within(c.Exotic)}
	if l, ok := c.launch(q, diverse, band); ok || !q.ordinary {
		return l, ok
	}
	q.ordinary = false
	return c.launch(q, diverse, band)
}

func (c *Catalog) launch(q *query, diverse bool, band Band) (Launch, bool) {
	for k := range Kinds {
		at, ok := c.first(q, k)
		if !ok {
			continue
		}
		limit := int64(-1)
		if k == Spot && !diverse {
			if od, sold := c.first(q, OnDemand); sold {
				limit = c.byPrice[OnDemand][od].Price
				if c.byPrice[Spot][at].Price > limit {
					continue
				}
			}
		}
		return c.finish(q, k, at, limit, band), true
	}
	return Launch{}, false
}

// finish walks the offerings of the kind that will be launched, cheapest first, and stops where launch does.
func (c *Catalog) finish(q *query, kind Kind, from int, limit int64, band Band) Launch {
	list := c.byPrice[kind]
	l := Launch{Kind: kind, First: list[from], Floor: list[from].Price, Price: list[from].Price}
	var room [32]uint64 // enough for most catalogues, without an allocation
	seen := bits.Set(room[:])
	if len(c.Names) > 64*len(room) {
		seen = bits.Make(len(c.Names))
	}
	sum := int64(0)
	for i := from; i < len(list); i++ {
		x := &list[i]
		if !c.allows(q, x) {
			continue
		}
		if limit >= 0 && x.Price > limit {
			break
		}
		known := seen.Has(x.Shape)
		if !known && l.Types >= band.Types {
			if kind != Spot {
				break // the price is known
			}
			continue
		}
		if kind == Spot && l.Offers > 0 && beyond(l.Floor, sum+x.Price, l.Offers+1, band.Permille) {
			break
		}
		if !known {
			seen.Add(x.Shape)
			l.Types++
		}
		l.Offers++
		l.Worst = x.Price
		sum += x.Price
	}
	if kind == Spot {
		l.Price = (sum + int64(l.Offers)/2) / int64(l.Offers)
	}
	return l
}

// beyond reports whether the mean of n prices with this sum is more than permille thousandths above the lowest.
func beyond(lowest, sum int64, n, permille int) bool {
	return sum*1000 > lowest*int64(n)*int64(1000+permille)
}

// Order returns all shapes that can be bought under offers, by their cheapest allowed offering.
func (c *Catalog) Order(offers bits.Set) []int32 {
	cheapest := make([]int64, len(c.Names))
	var out []int32
	for s := range c.Names {
		at := -1
		for o := c.Sold[s].Next(0); o >= 0; o = c.Sold[s].Next(o + 1) {
			if offers.Has(o) && (at < 0 || c.Price[s][o] < c.Price[s][at]) {
				at = o
			}
		}
		if at >= 0 {
			cheapest[s] = c.Price[s][at]
			out = append(out, int32(s))
		}
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(cheapest[a], cheapest[b]) })
	return out
}

// Named returns the names of the shapes in order that are in set, at most limit, each type once.
func (c *Catalog) Named(order []int32, set bits.Set, limit int) []string {
	out := make([]string, 0, min(limit, set.Count()))
	for _, s := range order {
		if !set.Has(int(s)) {
			continue
		}
		name := c.Names[s]
		several := s > 0 && c.Names[s-1] == name || int(s)+1 < len(c.Names) && c.Names[s+1] == name
		if several && slices.Contains(out, name) {
			continue
		}
		if out = append(out, name); len(out) == limit {
			break
		}
	}
	return out
}
