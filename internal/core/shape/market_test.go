package shape

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// randomCatalog sells types of random sizes in up to three zones on demand and as spot, some exotic, some not as spot at all.
func randomCatalog(r *rand.Rand) *Catalog {
	var types []Type
	for i := range 2 + r.IntN(40) {
		cpu := int64(1) << r.IntN(4)
		t := Type{Name: fmt.Sprintf("t%02d", i), Exotic: r.IntN(8) == 0}
		t.Alloc = quantity.Vec{1000*cpu - int64(r.IntN(3))*20, cpu*(2<<r.IntN(3)) - int64(r.IntN(2)), 20, int64(4 + 25*r.IntN(3))}
		t.Capacity = t.Alloc
		price := 1000 * cpu * int64(80+r.IntN(40))
		for z := range 1 + r.IntN(3) {
			zone := string(rune('x' + z))
			if r.IntN(5) > 0 {
				t.Offers = append(t.Offers, offer(zone, OnDemand, price))
			}
			if r.IntN(5) > 0 {
				t.Offers = append(t.Offers, offer(zone, Spot, price*int64(20+r.IntN(90))/100))
			}
			if r.IntN(20) == 0 {
				t.Offers = append(t.Offers, offer(zone, Reserved, price*int64(20+r.IntN(90))/100))
			}
		}
		types = append(types, t)
	}
	return catalog(types...)
}

// some returns a random subset, most of the time nearly everything.
func some(r *rand.Rand, n int) bits.Set {
	out := bits.Full(n)
	for i := range n {
		if r.IntN(6) == 0 {
			out.Remove(i)
		}
	}
	return out
}

// holding are the shapes of a set that have room for need.
func holding(c *Catalog, set bits.Set, need quantity.Vec) bits.Set {
	out := bits.Make(c.Len())
	for s := range set.All() {
		if need.Fits(c.Alloc[s]) {
			out.Add(s)
		}
	}
	return out
}

func TestListsAreAllThatLaunchesSend(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := randomCatalog(r)
		shapes, offers := some(r, c.Len()), some(r, len(c.Offers))
		if r.IntN(3) == 0 {
			offers.AndNot(c.ByKind[OnDemand])
		}
		band := Band{Types: 60, Spot: 2 + r.IntN(8), Fewest: 1 + r.IntN(4), Permille: 100 + r.IntN(600)}
		m := c.Market(shapes, offers, band, c.Alloc)
		fill := Fill{Axes: []int{quantity.CPU, quantity.Memory, quantity.Pods}, Least: quantity.Vec{int64(r.IntN(400)), int64(r.IntN(2)), 0, 1}, Pods: 60}
		lists, complete := m.Lists(fill)
		if !complete {
			t.Fatalf("seed %d: not complete", seed)
		}
		for _, l := range lists {
			sent, ok := c.Launch(holding(c, shapes, l.Room), offers, nil, band)
			if !ok || sent.Cost != l.Cost || sent.First != l.First {
				t.Fatalf("seed %d: a claim for %v launches %+v %v, listed as %+v", seed, l.Room, sent, ok, l)
			}
		}
		for range 60 {
			pods := int64(1 + r.IntN(60))
			use := quantity.Vec{int64(r.IntN(8000)), int64(r.IntN(30)), int64(r.IntN(20)), pods}
			use[0], use[1] = max(use[0], pods*fill.Least[0]), max(use[1], pods*fill.Least[1])
			checkListed(t, seed, c, lists, use, shapes, offers, band)
			checkRelaxed(t, seed, r, c, use, shapes, offers, band)
		}
	}
}

// Where larger machines cost less than smaller ones, pods that were placed for the smaller one are on the larger one in the end: for them there
// is a list that is as small.
func TestListsAreAsSmallAsTheSmallestMachineThatHolds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var types []Type
		for i := range 2 + r.IntN(12) {
			cpu := int64(1) << r.IntN(4)
			room := quantity.Vec{1000 * cpu, cpu * (2 << r.IntN(3)), 20, 50}
			types = append(types, Type{Name: fmt.Sprintf("t%02d", i), Exotic: r.IntN(3) == 0, Alloc: room, Capacity: room,
				Offers: []TypeOffer{offer("x", OnDemand, 1000*int64(1+r.IntN(30)))}})
		}
		c := catalog(types...)
		shapes, offers := all(c)
		band := Band{Types: 60}
		lists, _ := c.Market(shapes, offers, band, c.Alloc).Lists(Fill{Axes: []int{quantity.CPU, quantity.Memory}})
		for range 100 {
			use := quantity.Vec{int64(r.IntN(8000)), int64(r.IntN(64)), 1, 1}
			hold := holding(c, shapes, use)
			sent, ok := c.Launch(hold, offers, nil, band)
			if !ok {
				continue
			}
			smallest := c.VCPU[sent.First.Shape]
			for s := range hold.All() {
				if c.Exotic.Has(s) == c.Exotic.Has(sent.First.Shape) {
					smallest = min(smallest, c.VCPU[s])
				}
			}
			if !slices.ContainsFunc(lists, func(l List) bool {
				return use.Fits(l.Room) && l.First == sent.First && l.Cost == sent.Cost && l.VCPU <= smallest
			}) {
				t.Fatalf("seed %d: no list for %v on a machine of %d vCPU or fewer has %+v", seed, use, smallest, sent)
			}
		}
	}
}

func checkListed(t *testing.T, seed uint64, c *Catalog, lists []List, use quantity.Vec, shapes, offers bits.Set, band Band) {
	t.Helper()
	sent, ok := c.Launch(holding(c, shapes, use), offers, nil, band)
	if !ok {
		return
	}
	for _, l := range lists {
		if use.Fits(l.Room) && l.Cost == sent.Cost && l.First == sent.First {
			return
		}
	}
	t.Fatalf("seed %d: what is sent for %v is not listed: %+v", seed, use, sent)
}

// checkRelaxed asks a market that does not tell lists apart by the number of pods for a bound.
func checkRelaxed(t *testing.T, seed uint64, r *rand.Rand, c *Catalog, use quantity.Vec, shapes, offers bits.Set, band Band) {
	t.Helper()
	fewer, narrower := some(r, c.Len()), some(r, len(c.Offers))
	fewer.And(shapes)
	narrower.And(offers)
	sent, ok := c.Launch(holding(c, fewer, use), narrower, nil, band)
	if !ok {
		return
	}
	m := c.Market(shapes, offers, band, c.Alloc)
	lists, _ := m.Lists(Fill{Axes: []int{quantity.CPU, quantity.Memory}})
	low, found := int64(0), false
	for i := range lists {
		m.Relax(&lists[i])
		if use.Fits(lists[i].Room) && (!found || lists[i].Cost < low) {
			low, found = lists[i].Cost, true
		}
	}
	if !found || low > sent.Cost {
		t.Fatalf("seed %d: the bound for %v is %d (%v), what is sent costs %+v", seed, use, low, found, sent)
	}
}
