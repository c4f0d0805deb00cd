// Package shape has a pool's catalogue of instance types, and works out what a launch sends to the cloud and what that costs.
//
// A [Catalog] keeps types as columns of bits, so that "which of a thousand types satisfy this, hold that and are sold there" takes a few
// machine words of AND. It never changes after it was built.
//
//	type       an instance type
//	shape      a type with one allocatable vector. An offering that overrides capacity makes one more shape, which only it sells
//	offer      a set of labels that offerings share: zone, capacity type, reservation
//	offering   a shape that is sold by an offer, at a price
//	kind       how an offer is paid for: reserved, spot or on demand
//	exotic     bare metal, or a machine with accelerators; a launch sends it only if no ordinary machine would do
//
// Prices in decisions are what is paid plus Risk, the expected cost of interruptions. Paid takes the risk off again.
//
// A launch names many types and lets the cloud choose. So its price depends on all types that it sends. Read in this order:
//
//	shape.go    the catalogue and its queries by label
//	sent.go     [Catalog.Launch]: what a launch of a claim sends, and its price; [Band] limits it
//	variety.go  the same for claims with minValues
//	market.go   [Market]: all lists that launches may send, for any needs of pods; the packer buys these lists (core/repack)
package shape

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A Kind is how machines of an offer are paid for. Launch prefers smaller kinds.
type Kind uint8

// The kinds, in the order in which a launch prefers them.
const (
	Reserved Kind = iota
	Spot
	OnDemand
	Kinds // how many there are
)

// A Type is one row of the input.
type Type struct {
	Name   string
	Labels map[string][]string // an empty list: nodes of this type never have the label
	// Alloc is what pods may use, Capacity what limits count.
	Alloc, Capacity quantity.Vec
	VCPU            int64
	Exotic          bool
	VolumeLimits    map[string]int // by driver: volumes that a node can attach
	Offers          []TypeOffer
}

// A TypeOffer is one available way to buy a type.
type TypeOffer struct {
	Labels      map[string]string
	Kind        Kind
	Reservation string // the id, for reserved ones
	Left        int    // machines left in the reservation
	Price       int64  // nano-dollars an hour, with Risk
	Risk        int64  // the part of the price that is on no bill: what interruptions are expected to cost
	// Alloc overrides the type's allocatable vector; nil for most.
	Alloc quantity.Vec
}

// An Offer is one set of labels under which machines can be bought.
type Offer struct {
	Labels      map[string]string
	Kind        Kind
	Reservation int // number of the reservation, -1 for none
}

// A Catalog is a table of shapes, in order of type name.
type Catalog struct {
	Names    []string        // type name
	Alloc    []quantity.Vec  // per shape
	Capacity []quantity.Vec  // per shape, of the type
	VCPU     []int64         // per shape
	Exotic   bits.Set        // shapes
	Offers   []Offer         // sorted by kind, then labels
	ByKind   [Kinds]bits.Set // offers
	Sold     []bits.Set      // per shape: the offers that sell it
	Price    [][]int64       // per shape, per offer, with Risk; 0 where not sold
	Risk     [][]int64       // per shape, per offer: the part of the price that is on no bill; nil if no offering has any
	// Left is how many machines are left in each reservation, by number; empty without reservations.
	Left        map[int]int
	VolumeLimit map[string][]int32 // by driver, per shape; −1 is unlimited

	types   []Type        // sorted by name
	byPrice [Kinds][]Sent // all offerings of a kind, the cheapest first
	columns map[string]*column
	offered map[string]bool // keys that offers decide
}

// A column is one label: which shapes may have which value.
type column struct {
	values []string   // sorted
	shapes []bits.Set // by value
	never  bits.Set   // shapes that never have the label
	unset  bits.Set   // shapes that say nothing about it
}

// Build returns the catalogue of some types. Types without an offer are in it too: explanations can name them. number returns the number of
// a reservation id; several catalogues may share these numbers.
func Build(types []Type, number func(id string) int) *Catalog {
	types = slices.Clone(types)
	slices.SortStableFunc(types, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	c := &Catalog{types: types, columns: map[string]*column{}, offered: map[string]bool{}, VolumeLimit: map[string][]int32{}}
	var owner []int // per shape: index of its type
	var sells [][]int
	for i := range types {
		for alloc, offers := range variants(&types[i]) {
			c.Names = append(c.Names, types[i].Name)
			c.Alloc = append(c.Alloc, alloc)
			c.Capacity = append(c.Capacity, types[i].Capacity)
			c.VCPU = append(c.VCPU, types[i].VCPU)
			owner, sells = append(owner, i), append(sells, offers)
		}
	}
	c.addOffers(owner, sells, number)
	c.addLabels(owner)
	c.addVolumeLimits(owner)
	c.sortByPrice()
	return c
}

// Paid returns what is paid for a machine of a shape that is bought by an offer: the price without risk.
func (c *Catalog) Paid(shape, offer int) int64 {
	if c.Risk == nil {
		return c.Price[shape][offer]
	}
	return c.Price[shape][offer] - c.Risk[shape][offer]
}

// variants yields the shapes of a type: its plain one, and one for each distinct override, with the offers of each.
func variants(t *Type) func(yield func(quantity.Vec, []int) bool) {
	var plain []int
	var allocs []quantity.Vec
	var offers [][]int
	for i, o := range t.Offers {
		if o.Alloc == nil {
			plain = append(plain, i)
			continue
		}
		at := slices.IndexFunc(allocs, func(v quantity.Vec) bool { return slices.Equal(v, o.Alloc) })
		if at < 0 {
			at = len(allocs)
			allocs, offers = append(allocs, o.Alloc), append(offers, nil)
		}
		offers[at] = append(offers[at], i)
	}
	return func(yield func(quantity.Vec, []int) bool) {
		if !yield(t.Alloc, plain) {
			return
		}
		for i := range allocs {
			if !yield(allocs[i], offers[i]) {
				return
			}
		}
	}
}

// A distinct is an offer that Build found, once for all types that have it.
type distinct struct {
	*TypeOffer
	labels []string // keys and values, sorted by key
	at     int      // in Offers
}

func newDistinct(o *TypeOffer) *distinct {
	d := &distinct{TypeOffer: o, labels: make([]string, 0, 2*len(o.Labels))}
	for _, k := range slices.Sorted(maps.Keys(o.Labels)) {
		d.labels = append(d.labels, k, o.Labels[k])
	}
	return d
}

// offerKey returns a key that is equal for equal offers: kind, labels and reservation. Prices may differ.
func offerKey(o *TypeOffer) string {
	return string(identity.Text(identity.Map(identity.Number(make([]byte, 0, 256), int64(o.Kind)), o.Labels), o.Reservation))
}

func compareOffers(a, b *distinct) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), slices.Compare(a.labels, b.labels), cmp.Compare(a.Reservation, b.Reservation))
}

// addOffers fills in all columns about offers: the distinct offers, which shape each one sells and at what price, and reservations. It
// also notes which shapes are exotic. By shape, owner is the index of its type, and sells are the indexes of the offers of that type which
// sell it.
func (c *Catalog) addOffers(owner []int, sells [][]int, number func(string) int) {
	c.Exotic = bits.Make(len(c.Names))
	c.Left = map[int]int{}
	known := map[string]*distinct{}
	var list []*distinct
	for i := range c.types {
		for j := range c.types[i].Offers {
			o := &c.types[i].Offers[j]
			if k := offerKey(o); known[k] == nil {
				known[k] = newDistinct(o)
				list = append(list, known[k])
			}
			if o.Kind == Reserved && o.Reservation != "" {
				r := number(o.Reservation)
				if left, ok := c.Left[r]; ok {
					c.Left[r] = min(left, o.Left)
				} else {
					c.Left[r] = o.Left
				}
			}
		}
	}
	slices.SortFunc(list, compareOffers)
	for i, o := range list {
		o.at = i
		r := -1
		if o.Kind == Reserved && o.Reservation != "" {
			r = number(o.Reservation)
		}
		c.Offers = append(c.Offers, Offer{Labels: o.Labels, Kind: o.Kind, Reservation: r})
		for key := range o.Labels {
			c.offered[key] = true
		}
	}
	for k := range c.ByKind {
		c.ByKind[k] = bits.Make(len(list))
	}
	for i, o := range c.Offers {
		c.ByKind[o.Kind].Add(i)
	}
	for s := range c.Names {
		t := &c.types[owner[s]]
		if t.Exotic {
			c.Exotic.Add(s)
		}
		sold, price := bits.Make(len(list)), make([]int64, len(list))
		for _, i := range sells[s] {
			o := known[offerKey(&t.Offers[i])].at
			sold.Add(o)
			price[o] = t.Offers[i].Price
			if risk := t.Offers[i].Risk; risk > 0 {
				c.riskOf(s, len(list))[o] = risk
			}
		}
		c.Sold, c.Price = append(c.Sold, sold), append(c.Price, price)
	}
}

// riskOf returns the row of a shape in c.Risk, one number for each offer. It makes c.Risk at the first call.
func (c *Catalog) riskOf(shape, offers int) []int64 {
	for len(c.Risk) < len(c.Names) {
		c.Risk = append(c.Risk, make([]int64, offers))
	}
	return c.Risk[shape]
}

// addLabels makes the columns of labels. owner is the type of each shape.
func (c *Catalog) addLabels(owner []int) {
	n := len(c.Names)
	byValue := map[string]map[string]bits.Set{}
	for s := range c.Names {
		for key, values := range c.types[owner[s]].Labels {
			col := c.columns[key]
			if col == nil {
				col = &column{never: bits.Make(n), unset: bits.Full(n)}
				c.columns[key] = col
				byValue[key] = map[string]bits.Set{}
			}
			col.unset.Remove(s)
			if len(values) == 0 {
				col.never.Add(s)
			}
			for _, v := range values {
				set := byValue[key][v]
				if set == nil {
					set = bits.Make(n)
					byValue[key][v] = set
				}
				set.Add(s)
			}
		}
	}
	for key, col := range c.columns {
		for v := range byValue[key] {
			col.values = append(col.values, v)
		}
		sort.Strings(col.values)
		for _, v := range col.values {
			col.shapes = append(col.shapes, byValue[key][v])
		}
	}
}

// addVolumeLimits fills in VolumeLimit. owner is the type of each shape.
func (c *Catalog) addVolumeLimits(owner []int) {
	for s := range c.Names {
		for driver, limit := range c.types[owner[s]].VolumeLimits {
			if c.VolumeLimit[driver] == nil {
				row := make([]int32, len(c.Names))
				for i := range row {
					row[i] = -1
				}
				c.VolumeLimit[driver] = row
			}
			c.VolumeLimit[driver][s] = int32(limit)
		}
	}
}

// Len returns the number of shapes.
func (c *Catalog) Len() int { return len(c.Names) }

// Decides reports whether offers have the label key, such as the zone: then the offer decides its value, not the type.
func (c *Catalog) Decides(key string) bool { return c.offered[key] }

// Mentions reports whether any type or offer has the label key.
func (c *Catalog) Mentions(key string) bool { return c.offered[key] || c.columns[key] != nil }

// Keys returns the keys that types mention, sorted.
func (c *Catalog) Keys() []string {
	out := make([]string, 0, len(c.columns))
	for k := range c.columns {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Values returns the values of key that types mention, sorted.
func (c *Catalog) Values(key string) []string {
	if col := c.columns[key]; col != nil {
		return col.values
	}
	return nil
}

// With returns the shapes that may have value v for key; nil if there are none. Callers do not change it.
func (c *Catalog) With(key, v string) bits.Set {
	col := c.columns[key]
	if col == nil {
		return nil
	}
	i, ok := slices.BinarySearch(col.values, v)
	if !ok {
		return nil
	}
	return col.shapes[i]
}

// Shapes removes from out the shapes whose labels cannot satisfy s for key. A shape without an entry for key stays.
func (c *Catalog) Shapes(key string, s label.Set, out bits.Set) {
	col := c.columns[key]
	if col == nil {
		return
	}
	ok := col.unset.Clone()
	if s.HasAbsent() {
		ok.Or(col.never)
	}
	if s.Open() {
		for i, v := range col.values {
			if s.Has(v) {
				ok.Or(col.shapes[i])
			}
		}
	} else {
		for _, v := range s.Values() {
			if i, found := slices.BinarySearch(col.values, v); found {
				ok.Or(col.shapes[i])
			}
		}
	}
	out.And(ok)
}

// Admit removes from out the offers whose label key does not satisfy s. An offer without the label stays.
func (c *Catalog) Admit(key string, s label.Set, out bits.Set) {
	if !c.offered[key] {
		return
	}
	for i, o := range c.Offers {
		if v, ok := o.Labels[key]; ok && !s.Has(v) {
			out.Remove(i)
		}
	}
}

// TypeLabel returns the values that shape s may have for key. It returns false if the type has no entry for key, so any value is possible.
func (c *Catalog) TypeLabel(s int, key string) (label.Set, bool) {
	col := c.columns[key]
	if col == nil || col.unset.Has(s) {
		return label.Anything(), false
	}
	if col.never.Has(s) {
		return label.Absent(), true
	}
	var values []string
	for i, v := range col.values {
		if col.shapes[i].Has(s) {
			values = append(values, v)
		}
	}
	return label.Only(values...), true
}

// Distinct returns how many values of key the shapes of set have together, counting no further than enough.
func (c *Catalog) Distinct(key string, set bits.Set, enough int) int {
	col := c.columns[key]
	if col == nil {
		return 0
	}
	n := 0
	for _, shapes := range col.shapes {
		if shapes.Meets(set) {
			if n++; n >= enough {
				break
			}
		}
	}
	return n
}
