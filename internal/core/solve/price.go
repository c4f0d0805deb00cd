package solve

import (
	"math/bits"
	"slices"

	corebits "karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/worth"
)

// A priceTable remembers, for a template and the choices left, what machines cost.
type priceTable struct {
	rows []*problem.Prices
}

// pricesOf returns the price of every shape of template t under mask. It stays valid until reservations change.
func (f *fleet) pricesOf(t problem.TemplateID, mask corebits.Set) []int64 {
	row, tmpl := f.rowOf(t, mask), &f.p.Templates[t]
	if row.PerShape == nil {
		row.PerShape = priceShapes(row, tmpl, f.left, &f.p.Settings.Terms)
	}
	return row.PerShape
}

func (f *fleet) rowOf(t problem.TemplateID, mask corebits.Set) *problem.Prices {
	tmpl := &f.p.Templates[t]
	if tmpl.Prices != nil && mask[:len(tmpl.Mask)].Equal(tmpl.Mask) {
		return tmpl.Prices
	}
	for _, r := range f.prices.rows {
		if r.Template == t && r.Mask.Equal(mask) {
			return r
		}
	}
	if len(f.prices.rows) > 256 { // many distinct masks: the table would only grow
		f.prices.rows = nil
	}
	row := &problem.Prices{Template: t, Mask: mask.Clone()}
	f.prices.rows = append(f.prices.rows, row)
	return row
}

// listed returns what launches send for pods that ask for no more than CPU and memory, and whether these are all the lists.
func listed(r *problem.Prices, t *problem.Template, terms *problem.Terms) ([]shape.List, bool) {
	if r.Lists == nil {
		r.Lists, r.Complete = marketOf(t, t.Sold(r.Mask), r.Mask, terms).Lists(shape.Fill{Axes: []int{quantity.CPU, quantity.Memory}})
	}
	return r.Lists, r.Complete
}

// priceShapes returns what a node costs that is filled, for each shape; 0 where the shape cannot be bought. It is
// bought as what the launch sends for all that is as large.
func priceShapes(r *problem.Prices, t *problem.Template, left []int, terms *problem.Terms) []int64 {
	out := make([]int64, t.Catalog.Len())
	sold := t.Sold(r.Mask)
	lists, _ := listed(r, t, terms)
	var market *shape.Market
	for sh := range sold.All() {
		if price, o := cheapestOffer(t, sh, r.Mask, left); len(t.Min) > 0 || o >= 0 && t.Catalog.Offers[o].Reservation >= 0 {
			out[sh] = terms.With(price, price)
			continue
		}
		l := cheapestFilled(lists, t.Room[sh])
		if hasRare(t.Room[sh]) {
			if market == nil {
				market = marketOf(t, sold, r.Mask, terms)
			}
			l = market.Anchored(sh)
		}
		if l != nil {
			out[sh] = max(terms.With(l.Cost, l.Floor), 1)
		}
	}
	return out
}

// hasRare reports whether a machine has something that most have not. Its price is that of its like.
func hasRare(room quantity.Vec) bool {
	return slices.ContainsFunc(room[quantity.Pods+1:], func(x int64) bool { return x > 0 })
}

// cheapestFilled returns the list that begins lowest of those that have as much CPU and memory.
func cheapestFilled(lists []shape.List, room quantity.Vec) *shape.List {
	var best *shape.List
	for i := range lists {
		l := &lists[i]
		if l.Room[quantity.CPU] >= room[quantity.CPU] && l.Room[quantity.Memory] >= room[quantity.Memory] &&
			(best == nil || l.Floor < best.Floor) {
			best = l
		}
	}
	return best
}

// market returns what claims cost that allow some shapes and offers. Reservations are counted elsewhere.
func marketOf(t *problem.Template, shapes, offers corebits.Set, terms *problem.Terms) *shape.Market {
	if len(t.Catalog.Left) > 0 {
		offers = offers.Clone()
		t.DropReserved(offers)
	}
	return t.Catalog.Market(shapes, offers, terms.Band, t.Room)
}

// offer returns what a node of this shape costs, and the offer that sets the price: the cheapest of the kind that launch
// prefers. Free things cost 1, so that 0 means none. left is what reservations have.
func cheapestOffer(t *problem.Template, sh int, mask corebits.Set, left []int) (price int64, offer int) {
	best, kind, at := int64(0), shape.Kinds, -1
	cat := t.Catalog
	for o := mask.Next(0); o >= 0 && o < len(cat.Offers); o = mask.Next(o + 1) {
		if !cat.Sold[sh].Has(o) {
			continue
		}
		of := &cat.Offers[o]
		if of.Reservation >= 0 && left[of.Reservation] <= 0 {
			continue
		}
		k, p := of.Kind, max(cat.Price[sh][o], 1)
		if k == shape.Reserved && of.Reservation < 0 {
			k = shape.OnDemand // they are not counted: an ordinary offer
		}
		switch {
		case at < 0 || k < kind && (k == shape.Reserved || p <= best || kind != shape.OnDemand), k == kind && p < best:
			best, kind, at = p, k, o
		case k > kind && kind == shape.Spot && p < best: // launch drops spot that is dearer than on-demand
			best, kind, at = p, k, o
		}
	}
	return best, at
}

// The worth of a unit of each resource is a rational number of nano-dollars; it is kept as an integer with worthBits
// binary digits after the point, so that comparisons are equal on every processor.
const worthBits = 20

// findWorth sets s.worth. Exotic and large machines have no say, and nor has what pods ask for beside CPU and memory.
func (s *state) findWorth() {
	s.worth = make(quantity.Vec, s.p.Resources)
	machines := s.machines()
	if len(machines) == 0 {
		s.worth[quantity.CPU], s.worth[quantity.Memory] = 1<<worthBits, 1<<worthBits/(4<<20)
		return
	}
	prices := worth.Find(machines, worth.Amounts{CPU: float64(max(s.demand[quantity.CPU], 1)),
		Memory: float64(max(s.demand[quantity.Memory], 1))})
	s.worth[quantity.CPU] = max(int64(prices.CPU*(1<<worthBits)), 1)
	s.worth[quantity.Memory] = max(int64(prices.Memory*(1<<worthBits)), 1)
}

// machines returns the machines by which things are priced, each once: pools often sell the same.
func (s *state) machines() []worth.Machine {
	var out []worth.Machine
	known := map[worth.Machine]bool{}
	seen := map[*shape.Catalog]bool{}
	for t := range s.p.Templates {
		tmpl := &s.p.Templates[t]
		if seen[tmpl.Catalog] && tmpl.Tier > 0 {
			continue
		}
		seen[tmpl.Catalog] = true
		prices := s.pricesOf(problem.TemplateID(t), s.wide(tmpl.Mask))
		for sh := range tmpl.Shapes.All() {
			if prices[sh] <= 1 || tmpl.Catalog.Exotic.Has(sh) || s.tooLarge(tmpl, tmpl.Catalog.VCPU[sh]) > 0 {
				continue
			}
			room := worth.Amounts{CPU: float64(tmpl.Room[sh][quantity.CPU]), Memory: float64(tmpl.Room[sh][quantity.Memory])}
			if m := (worth.Machine{Room: room, Price: float64(prices[sh])}); !known[m] {
				known[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// wide returns mask as long as every mask of the run.
func (f *facts) wide(mask corebits.Set) corebits.Set {
	if len(mask) == f.width {
		return mask
	}
	return append(mask.Clone(), make(corebits.Set, f.width-len(mask))...)
}

// value returns what a vector is worth, in nano-dollars.
func (s *state) value(v quantity.Vec) int64 { return s.valueWithin(v, v) }

// valueWithin is the value of the smaller of v and most in each resource.
func (s *state) valueWithin(v, most quantity.Vec) int64 {
	var sum int64
	for r, w := range s.worth {
		if w == 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(max(min(v[r], most[r]), 0)), uint64(w))
		sum += int64(hi<<(64-worthBits) | lo>>worthBits)
	}
	return sum
}
