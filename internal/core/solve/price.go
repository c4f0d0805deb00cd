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

// A priceTable caches prices by template and mask.
type priceTable struct {
	rows []*problem.Prices
}

// pricesOf returns the price of every shape of template t, bought with the choices that mask leaves. The result is valid until
// reservations change.
func (k *stock) pricesOf(t problem.TemplateID, mask corebits.Set) []int64 {
	row, tmpl := k.rowOf(t, mask), &k.facts.p.Templates[t]
	if row.PerShape == nil {
		row.PerShape = priceShapes(row, tmpl, k.left, &k.facts.p.Settings.Terms)
	}
	return row.PerShape
}

// rowOf returns the cached prices of template t under mask, or a new empty row.
func (k *stock) rowOf(t problem.TemplateID, mask corebits.Set) *problem.Prices {
	tmpl := &k.facts.p.Templates[t]
	if tmpl.Prices != nil && mask[:len(tmpl.Mask)].Equal(tmpl.Mask) {
		return tmpl.Prices
	}
	for _, r := range k.prices.rows {
		if r.Template == t && r.Mask.Equal(mask) {
			return r
		}
	}
	if len(k.prices.rows) > 256 { // empty the cache: with so many distinct masks it would grow without end
		k.prices.rows = nil
	}
	row := &problem.Prices{Template: t, Mask: mask.Clone()}
	k.prices.rows = append(k.prices.rows, row)
	return row
}

// listed returns the lists of instance types that launches may send for pods that ask for CPU and memory only, and whether these are all
// of them.
func listed(r *problem.Prices, t *problem.Template, terms *problem.Terms) ([]shape.List, bool) {
	if r.Lists == nil {
		r.Lists, r.Complete = marketOf(t, t.Sold(r.Mask), r.Mask, terms).Lists(shape.Fill{Axes: []int{quantity.CPU, quantity.Memory}})
	}
	return r.Lists, r.Complete
}

// priceShapes returns, for each shape, the cost of a node that is filled; 0 if the shape cannot be bought. A launch sends all shapes that
// are large enough, not one, so the cost is that of the cheapest list whose machines are all at least as large as the shape. It is the
// price of the shape itself if it comes from a reservation or if the pool has minValues.
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

// hasRare reports whether a machine has a resource that most lack, such as GPUs. Such a machine is priced by the machines that have it too.
func hasRare(room quantity.Vec) bool {
	return slices.ContainsFunc(room[quantity.Pods+1:], func(x int64) bool { return x > 0 })
}

// cheapestFilled returns the list by which a new node with so much room in use would be bought: of those whose types all have as much
// CPU and memory, the one with the lowest floor price; nil for none.
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

// marketOf returns the market of the given shapes and offers, without reservations: cheapestOffer prices those.
func marketOf(t *problem.Template, shapes, offers corebits.Set, terms *problem.Terms) *shape.Market {
	if len(t.Catalog.Left) > 0 {
		offers = offers.Clone()
		t.DropReserved(offers)
	}
	return t.Catalog.Market(shapes, offers, terms.Band, t.Room)
}

// cheapestOffer returns the price of a node of shape sh, and the offer that sets it: the cheapest offer of the capacity type that a launch
// prefers; 0 and -1 if mask leaves no offer. A free offer costs 1. left is the number of machines left in each reservation.
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
			k = shape.OnDemand // machines of this offer are not counted, so it is like any on-demand offer
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

// A unitWorth is the worth of one unit of each resource.
type unitWorth quantity.Vec

// findWorth returns the worth of CPU and memory at the beginning of the run, from the prices of ordinary machines. All other resources are
// worth nothing.
func (f *fleet) findWorth() unitWorth {
	out := make(unitWorth, f.facts.p.Resources)
	machines := f.stock.ordinaryMachines()
	if len(machines) == 0 {
		out[quantity.CPU], out[quantity.Memory] = 1<<worthBits, 1<<worthBits/(4<<20)
		return out
	}
	prices := worth.Find(machines, worth.Amounts{CPU: float64(max(f.bins.demand[quantity.CPU], 1)),
		Memory: float64(max(f.bins.demand[quantity.Memory], 1))})
	out[quantity.CPU] = max(int64(prices.CPU*(1<<worthBits)), 1)
	out[quantity.Memory] = max(int64(prices.Memory*(1<<worthBits)), 1)
	return out
}

// ordinaryMachines returns room and price of the machines that templates sell, without exotic, large and free ones. Equal machines are
// returned once. A template below the first tier is skipped if an earlier template has the same catalog.
func (k *stock) ordinaryMachines() []worth.Machine {
	var out []worth.Machine
	known := map[worth.Machine]bool{}
	seen := map[*shape.Catalog]bool{}
	for t := range k.facts.p.Templates {
		tmpl := &k.facts.p.Templates[t]
		if seen[tmpl.Catalog] && tmpl.Tier > 0 {
			continue
		}
		seen[tmpl.Catalog] = true
		prices := k.pricesOf(problem.TemplateID(t), k.facts.wide(tmpl.Mask))
		for sh := range tmpl.Shapes.All() {
			if prices[sh] <= 1 || tmpl.Catalog.Exotic.Has(sh) || k.facts.sizeSteps(tmpl, tmpl.Catalog.VCPU[sh]) > 0 {
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

// wide returns mask, padded with zeros to the length that all masks of a run have.
func (f *facts) wide(mask corebits.Set) corebits.Set {
	if len(mask) == f.width {
		return mask
	}
	return append(mask.Clone(), make(corebits.Set, f.width-len(mask))...)
}

// of returns what a vector is worth, in nano-dollars.
func (w unitWorth) of(v quantity.Vec) int64 { return w.within(v, v) }

// within returns the worth of the smaller of v and most in each resource.
func (w unitWorth) within(v, most quantity.Vec) int64 {
	var sum int64
	for r, unit := range w {
		if unit == 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(max(min(v[r], most[r]), 0)), uint64(unit))
		sum += int64(hi<<(64-worthBits) | lo>>worthBits)
	}
	return sum
}
