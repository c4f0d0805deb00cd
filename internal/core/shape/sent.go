package shape

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A Sent is one offering that a launch sends: shape and offer, with its price as decisions reckon.
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
	// Cost is what decisions reckon with: the price and what interruptions cost, or more for a spot list that is short. It is on no
	// bill. Base is the lowest price of what is sent as decisions reckon, Risk what interruptions add to Price.
	Cost, Base, Risk int64
	Types, Offers    int // how many are sent
}

// A Band limits what a launch sends.
type Band struct {
	Types    int // at most so many types, the cheapest
	Spot     int // of spot, and unless diversity is demanded
	Fewest   int // of spot: where the band holds fewer types, it begins at the next cheapest one
	Permille int // of spot: so much dearer than the cheapest offering may another be
}

// DefaultBand is the limit unless the user chose others.
var DefaultBand = Band{Types: 60, Spot: 15, Fewest: 5, Permille: 500}

// MostSpotTypes is how many types of spot a band may be set to: in six zones, they are what one launch takes.
const MostSpotTypes = 50

// SpotBand is the default band, but for the number of spot types; 0 is the default too.
func SpotBand(types int) Band {
	b := DefaultBand
	if types > 0 {
		b.Spot = types
	}
	return b
}

// MostOverrides is how many offerings one launch sends at most.
const MostOverrides = 300

// Any stands for a price that nothing is above.
const Any = int64(math.MaxInt64)

// spotReach is how many times the cheapest spot price the band may reach where no on-demand price bounds it: on-demand seldom costs more.
const spotReach = 5

// edge is the dearest price of a band that begins at floor.
func (b Band) edge(floor, most int64) int64 {
	return min(floor*int64(1000+b.Permille)/1000, most)
}

// Cut says how much of a spot list is sent: so many types, the cheapest, and of each all offerings that cost no more than edge. next
// returns the cheapest price of one type after the other, ascending, and false after the last. Nothing above most is sent; the band
// does not move to begin above reach, nor does it end above it once it has moved. If reach is Any, it is spotReach times the first price.
//
// Plans and launches both ask here, so that what was priced is what is sent.
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

// cost is what decisions reckon with for a spot list: as if the types that it lacks were sent too, at the edge of the band.
func (b Band) cost(types int, price, floor, most int64) int64 {
	missing := int64(b.Spot - types)
	if missing <= 0 {
		return price
	}
	return (price*int64(types) + max(price, b.edge(floor, most))*missing) / int64(b.Spot)
}

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
	band           Band
}

func (c *Catalog) takes(q *query, shape int) bool {
	return q.shapes.Has(shape) && !(q.ordinary && c.Exotic.Has(shape))
}

func (c *Catalog) allows(q *query, x *Sent) bool { return q.offers.Has(x.Offer) && c.takes(q, x.Shape) }

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
// spot before on-demand; ordinary machines before exotic ones and no spot offering dearer than the cheapest on-demand one;
// at most band.Types types; and of spot no more than the band allows. With minValues, all types are alike, and it is bought as
// the first kind that meets them. It returns false when nothing can be bought.
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

// reach is the lowest on-demand price of the shapes of a query, whether it allows to buy on demand or not: a spot band does not
// move beyond it, because users do not want to pay more for spot than what on-demand costs others.
func (c *Catalog) reach(q *query) int64 {
	for i := range c.byPrice[OnDemand] {
		if x := &c.byPrice[OnDemand][i]; c.takes(q, x.Shape) {
			return x.Price
		}
	}
	return Any
}

// atFloor describes a launch whose price is that of its cheapest offering.
func (c *Catalog) atFloor(q *query, kind Kind, from int) Launch {
	list := c.byPrice[kind]
	l := Launch{Kind: kind, First: list[from], Cost: list[from].Price, Base: list[from].Price}
	c.walk(q, kind, from, q.band.Types, Any, &l)
	l.Price = c.Paid(l.First.Shape, l.First.Offer)
	l.Risk, l.Floor = l.Base-l.Price, min(l.Floor, l.Price)
	return l
}

// spot describes a launch of spot: its price is the mean of what is sent.
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

// mean is the sum of so many prices shared out, rounded.
func mean(sum int64, n int) int64 { return (sum + int64(n)/2) / int64(n) }

// floors returns the cheapest spot price of each shape that the query allows, ascending.
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

// walk counts what is sent: the offerings up to edge of the cheapest types. It returns the sum of their prices as decisions reckon, and of
// what is paid.
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

// send adds an offering to a launch and returns what is paid for it.
func (c *Catalog) send(l *Launch, x *Sent) int64 {
	paid := c.Paid(x.Shape, x.Offer)
	if l.Offers++; l.Offers == 1 || paid < l.Floor {
		l.Floor = paid
	}
	l.Worst = max(l.Worst, paid)
	return paid
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
