package fleet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Prices are equal in all zones on demand. Then EC2 takes whichever it likes, so that a pool may end up in one of them. So machines on
// demand are asked for in order of price and, where that is equal, of how few machines of the pool a zone has; a call for several is
// split, so that the zones get even shares. All zones stay open in each. Which spot pool is deepest, only EC2 knows.

// levels reports whether it is ours to choose among zones.
func (o *Order) levels() bool { return o.CapacityType == v1.CapacityTypeOnDemand }

// cheapestZones are those in which an order has its lowest price, sorted.
func (o *Order) cheapestZones(open map[string]string) []string {
	low := math.Inf(1)
	var out []string
	for _, t := range o.Templates {
		for _, x := range t.Overrides {
			if _, ok := open[x.Zone]; !ok || x.Priority > low {
				continue
			}
			if x.Priority < low {
				low, out = x.Priority, nil
			}
			out = append(out, x.Zone)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// preferring is the order to send where one zone is to come first among equally cheap ones. The others follow by name, so that
// there are few ways to send an order.
func (o *Order) preferring(first string) *Order {
	type place struct{ template, override int }
	var all []place
	one := *o
	one.Prioritized, one.Templates = true, slices.Clone(o.Templates)
	for t := range one.Templates {
		one.Templates[t].Overrides = slices.Clone(one.Templates[t].Overrides)
		for i := range one.Templates[t].Overrides {
			all = append(all, place{t, i})
		}
	}
	at := func(p place) *Override { return &one.Templates[p.template].Overrides[p.override] }
	later := func(x *Override) int {
		if x.Zone == first {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(p, q place) int {
		a, b := at(p), at(q)
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(later(a), later(b)),
			strings.Compare(a.Zone, b.Zone), strings.Compare(a.InstanceType, b.InstanceType))
	})
	for rank, p := range all { // EC2 wants whole numbers
		at(p).Priority = float64(rank)
	}
	return &one
}

// sentTo is the order to send: unchanged, or preferring a zone.
func (o *Order) sentTo(zone string) *Order {
	if zone == "" {
		return o
	}
	return o.preferring(zone)
}

// A ledger counts the machines that calls under way are expected to give, by pool and zone.
type ledger struct {
	mu     sync.Mutex
	coming map[string]map[string]int
}

// share divides n machines of a pool among zones, so that those that have the fewest get most, and notes them until done is called.
func (l *ledger) share(pool string, zones []string, there map[string]int, n int) (shares map[string]int, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.coming[pool] == nil {
		if l.coming == nil {
			l.coming = map[string]map[string]int{}
		}
		l.coming[pool] = map[string]int{}
	}
	coming := l.coming[pool]
	shares = map[string]int{}
	for range n {
		best := slices.MinFunc(zones, func(a, b string) int {
			return cmp.Or(cmp.Compare(there[a]+coming[a], there[b]+coming[b]), strings.Compare(a, b))
		})
		shares[best]++
		coming[best]++
	}
	return shares, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for zone, m := range shares {
			if coming[zone] -= m; coming[zone] == 0 {
				delete(coming, zone)
			}
		}
		if len(coming) == 0 {
			delete(l.coming, pool)
		}
	}
}
