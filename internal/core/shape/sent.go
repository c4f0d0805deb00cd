package shape

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A Sent is one offering that a launch sends, with its price in decisions (with risk).
type Sent struct {
	Shape, Offer int
	Price        int64
}

// A Launch describes what is sent when a claim is launched.
type Launch struct {
	Kind  Kind
	First Sent // the cheapest offering
	// Price is what the machine is expected to cost on the bill: the price of the cheapest offering, or for spot the mean of all that are
	// sent. Floor is the lowest and Worst the highest price of an offering that is sent.
	Price, Floor, Worst int64
	// Cost is what decisions compare: Price and Risk, and more for a spot list with few types. Base is the lowest price in decisions of an
	// offering that is sent. Risk is what interruptions add to Price.
	Cost, Base, Risk int64
	Types, Offers    int // how many are sent
}

// A Band limits what a launch sends.
type Band struct {
	Types    int // the most types, the cheapest ones
	Spot     int // spot: the most types, unless there are minValues
	Fewest   int // spot: while there are fewer types, the band moves up to the next cheapest type
	Permille int // spot: how much more than the cheapest offering another one may cost
}

// DefaultBand is the limit unless the user chose others.
var DefaultBand = Band{Types: 60, Spot: 15, Fewest: 5, Permille: 500}

// MostSpotTypes is how many types of spot a band may be set to: in six zones, they are what one launch takes.
const MostSpotTypes = 50

// SpotBand returns the default band with another number of spot types; 0 means the default number.
func SpotBand(types int) Band {
	b := DefaultBand
	if types > 0 {
		b.Spot = types
	}
	return b
}

// MostOverrides is how many offerings one launch sends at most.
const MostOverrides = 300

// Any is a price that no price is above: no bound.
const Any = int64(math.MaxInt64)

// spotReach bounds a band without an on-demand price: so many times the cheapest spot price, because on-demand seldom costs more.
const spotReach = 5

// edge returns the highest price of a band that begins at floor, at most most.
func (b Band) edge(floor, most int64) int64 {
	return min(floor*int64(1000+b.Permille)/1000, most)
}

// Cut decides how much of a spot list is sent: the types cheapest ones, and of each all offerings that cost at most edge. next returns the
// cheapest price of one type after the other, ascending, and false after the last.
//
// No offering above most is sent. The band begins at the cheapest price. While it has fewer than Fewest types, it moves up to begin at the
// next type, but not above reach; once it has moved it does not end above reach. If reach is Any, it is spotReach times the first price.
//
// Plans and launches both call this, so a launch sends what its plan priced.
func (b Band) Cut(next func() (int64, bool), most, reach int64) (types int, edge int64) {
	for types < b.Spot {
		floor, ok := next()
		if !ok || floor > most {
			break
		}
		switch {
		case types == 0:
			edge = b.edge(floor, most)
			if reach == Any && floor <= Any/spotReach {
				reach = floor * spotReach
			}
		case floor > edge && (types >= b.Fewest || floor > reach):
			return types, edge
		case floor > edge:
			edge = b.edge(floor, min(most, reach))
		}
		types++
	}
	return types, edge
}

// cost returns the price in decisions of a spot list with some types and the mean price. Types that it lacks of b.Spot count as if they
// were sent too, at the edge of the band.
func (b Band) cost(types int, price, floor, most int64) int64 {
	missing := int64(b.Spot - types)
	if missing <= 0 {
		return price
	}
	return (price*int64(types) + max(price, b.edge(floor, most))*missing) / int64(b.Spot)
}

// sortByPrice makes byPrice.
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

// A query is what a claim allows, and the limits of its launch.
type query struct {
	shapes, offers bits.Set
	ordinary       bool // leave exotic shapes out
	band           Band
}

// takes reports whether a query allows a shape, and allows whether it allows an offering.
func (c *Catalog) takes(q *query, shape int) bool {
	return q.shapes.Has(shape) && !(q.ordinary && c.Exotic.Has(shape))
}

func (c *Catalog) allows(q *query, x *Sent) bool { return q.offers.Has(x.Offer) && c.takes(q, x.Shape) }

// first returns the index in byPrice of the cheapest offering of a kind that the query allows; false if there is none.
func (c *Catalog) first(q *query, kind Kind) (int, bool) {
	for i := range c.byPrice[kind] {
		if c.allows(q, &c.byPrice[kind][i]) {
			return i, true
		}
	}
	return 0, false
}

// Launch returns what is sent for a claim that allows these shapes and offers; false if nothing can be bought.
//
// It prefers reserved to spot to on-demand, and ordinary machines to exotic ones. No spot offering costs more than the cheapest on-demand
// one. It sends at most band.Types types, and of spot what the band allows. With minValues it sends exotic machines like ordinary ones, and
// the kind is that of Variety.
func (c *Catalog) Launch(shapes, offers bits.Set, want []MinValues, band Band) (Launch, bool) {
	q := &query{shapes: shapes, offers: offers, band: band}
	if len(want) > 0 {
		return c.diverse(q, want)
	}
	q.ordinary = !shapes.Within(c.Exotic)
	if l, ok := c.launch(q); ok || !q.ordinary {
		return l, ok
	}
	q.ordinary = false
	return c.launch(q)
}

// launch returns the launch of a query, as the first kind that it allows to buy.
func (c *Catalog) launch(q *query) (Launch, bool) {
	for k := range Kinds {
		at, ok := c.first(q, k)
		if !ok {
			continue
		}
		if k != Spot {
			return c.atFloor(q, k, at), true
		}
		most := Any
		if od, sold := c.first(q, OnDemand); sold {
			if most = c.byPrice[OnDemand][od].Price; c.byPrice[Spot][at].Price > most {
				continue
			}
		}
		return c.spot(q, at, most), true
	}
	return Launch{}, false
}

// reach returns the lowest on-demand price of the shapes of a query, even if it does not allow on-demand offers. A spot band does not move
// beyond it: spot should not cost more than on-demand would.
func (c *Catalog) reach(q *query) int64 {
	for i := range c.byPrice[OnDemand] {
		if x := &c.byPrice[OnDemand][i]; c.takes(q, x.Shape) {
			return x.Price
		}
	}
	return Any
}

// atFloor returns a reserved or on-demand launch from byPrice[from] on: its price is that of its cheapest offering.
func (c *Catalog) atFloor(q *query, kind Kind, from int) Launch {
	list := c.byPrice[kind]
	l := Launch{Kind: kind, First: list[from], Cost: list[from].Price, Base: list[from].Price}
	c.walk(q, kind, from, q.band.Types, Any, &l)
	l.Price = c.Paid(l.First.Shape, l.First.Offer)
	l.Risk, l.Floor = l.Base-l.Price, min(l.Floor, l.Price)
	return l
}

// spot returns a spot launch from byPrice[from] on. Its price is the mean of all offerings that are sent, because the cloud chooses among
// them. most is the cheapest on-demand price, or Any.
func (c *Catalog) spot(q *query, from int, most int64) Launch {
	list := c.byPrice[Spot]
	l := Launch{Kind: Spot, First: list[from], Base: list[from].Price}
	types, edge := q.band.Cut(c.floors(q, from), most, c.reach(q))
	sum, paid := c.walk(q, Spot, from, types, edge, &l)
	reckoned := mean(sum, l.Offers)
	l.Price = mean(paid, l.Offers)
	l.Risk, l.Cost = reckoned-l.Price, q.band.cost(types, reckoned, l.Base, most)
	return l
}

// mean returns the mean of n prices with this sum, rounded.
func mean(sum int64, n int) int64 { return (sum + int64(n)/2) / int64(n) }

// floors returns a function that returns, one after the other, the cheapest spot price of each shape that the query allows, ascending, and
// false at the end.
func (c *Catalog) floors(q *query, from int) func() (int64, bool) {
	list, seen, i := c.byPrice[Spot], bits.Make(len(c.Names)), from
	return func() (int64, bool) {
		for ; i < len(list); i++ {
			if x := &list[i]; !seen.Has(x.Shape) && c.allows(q, x) {
				seen.Add(x.Shape)
				return x.Price, true
			}
		}
		return 0, false
	}
}

// walk adds to l what is sent: the offerings that cost at most edge, of the cheapest types, at most MostOverrides. It returns the sum of
// their prices with risk (sum) and without (paid).
func (c *Catalog) walk(q *query, kind Kind, from, types int, edge int64, l *Launch) (sum, paid int64) {
	list := c.byPrice[kind]
	var room [32]uint64 // enough for most catalogues, without an allocation
	seen := bits.Set(room[:])
	if len(c.Names) > 64*len(room) {
		seen = bits.Make(len(c.Names))
	}
	for i := from; i < len(list) && list[i].Price <= edge && l.Offers < MostOverrides; i++ {
		x := &list[i]
		if !c.allows(q, x) {
			continue
		}
		if !seen.Has(x.Shape) {
			if l.Types >= types {
				continue
			}
			seen.Add(x.Shape)
			l.Types++
		}
		sum += x.Price
		paid += c.send(l, x)
	}
	return sum, paid
}

// send counts an offering in a launch, with its price as Floor and Worst, and returns what is paid for it.
func (c *Catalog) send(l *Launch, x *Sent) int64 {
	paid := c.Paid(x.Shape, x.Offer)
	if l.Offers++; l.Offers == 1 || paid < l.Floor {
		l.Floor = paid
	}
	l.Worst = max(l.Worst, paid)
	return paid
}

// Order returns all shapes that some offers sell, sorted by the cheapest price of these offers.
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

// Named returns the type names of the shapes that are in set, in the given order, at most limit, each name once.
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
