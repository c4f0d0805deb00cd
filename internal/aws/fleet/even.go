package fleet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// On-demand prices are equal in all zones, and EC2 may then put all machines of a pool into one zone. So Karpenter gives EC2 an order:
// first by price and, at equal prices, the zone with the fewest machines of the pool. A call for several machines is split, so that the
// zones get even shares. Each call still allows all zones. For spot, EC2 chooses, because only EC2 knows which pools are deepest.

// spreadsZones reports whether Karpenter chooses among zones of equal price: on demand it does, for spot EC2 knows
// better.
func (o *Order) spreadsZones() bool { return o.CapacityType == v1.CapacityTypeOnDemand }

// cheapestZones returns the zones in which an order has its lowest price, sorted.
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

// preferring returns the order with one zone first among equally cheap ones. The others follow by name, so that few
// different calls arise.
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

// sentTo returns the order preferring a zone, or the order itself for "".
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

// share divides n machines of a pool among zones, most to those that have the fewest, and notes them until done is
// called.
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
