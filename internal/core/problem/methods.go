package problem

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Hour returns an hour of a new node, bought on demand, as a line of a bill. ok is false for spot and reserved machines.
func (p *Problem) Hour(b *Bin) (l tariff.Line, ok bool) {
	first, cat := b.Launch.First, p.Templates[b.Template].Catalog
	if cat.Offers[first.Offer].Kind != shape.OnDemand {
		return l, false
	}
	return p.Settings.Commitments.Hour(cat.Names[first.Shape], cat.Offers[first.Offer].Labels, b.Launch.Price), true
}

// Arrivals returns the daemons that may start on a node of a shape and that groups count.
func (t *Template) Arrivals(sh int) []Arrival {
	if len(t.Daemons) == 0 {
		return nil
	}
	return t.Daemons[t.DaemonOf[sh]].Counted
}

// DevicesOf returns the devices that a node of a shape brings, as a list of one state; nil if it brings none.
func (t *Template) DevicesOf(shape int) []*devices.State {
	if t.Devices == nil || t.Devices[shape] == nil {
		return nil
	}
	return t.Devices[shape : shape+1]
}

// SharesDevices reports whether the pods use a resource claim that other pods use too. All of them have to be on one node.
func (c *Class) SharesDevices() bool {
	return slices.ContainsFunc(c.Devices, func(d *devices.Claim) bool { return d.Shared })
}

// DomainOf returns the domain of a new node of a shape, before anything is chosen.
func (k *KeyOf) DomainOf(sh int) int32 {
	switch k.Kind {
	case Fixed:
		return k.Domain
	case ByShape:
		return k.Shape[sh]
	case ByChoice:
		return OpenDomain
	default:
		return NoDomain
	}
}

// ChoiceOf returns the choices with which a new node is in domain d, or has no label if d is NoDomain; nil if that is impossible. It is
// used for keys of kind ByChoice only.
func (k *KeyOf) ChoiceOf(d int32) bits.Set {
	if d < 0 {
		return k.None
	}
	return k.Choice[d]
}

// LeastOverhead returns, of each resource, the least that daemons take on any of the shapes; nil without daemons.
func (t *Template) LeastOverhead(shapes bits.Set) quantity.Vec {
	if len(t.Daemons) == 0 {
		return nil
	}
	var least quantity.Vec
	for sh := range shapes.All() {
		o := t.Daemons[t.DaemonOf[sh]].Overhead
		if least == nil {
			least = slices.Clone(o)
			continue
		}
		for r := range least {
			least[r] = min(least[r], o[r])
		}
	}
	return least
}

// SellsAny reports whether every segment of mask still has a choice. Otherwise no node can be bought under mask.
func (t *Template) SellsAny(mask bits.Set) bool {
	if len(t.Segments) == 1 {
		return mask.Any()
	}
	for _, g := range t.Segments {
		if at := mask.Next(g.From); at < 0 || at >= g.To {
			return false
		}
	}
	return true
}

// CountShapes returns how many of the shapes that the pool allows satisfy suits.
func (t *Template) CountShapes(suits func(sh int) bool) (n int) {
	for sh := range t.Shapes.All() {
		if suits(sh) {
			n++
		}
	}
	return n
}

// WantedMinValues returns the minValues of a template with the numbers in low; nil: none was lowered.
func (t *Template) WantedMinValues(low []int) []shape.MinValues {
	if low == nil {
		return t.Min
	}
	want := slices.Clone(t.Min)
	for k := range want {
		want[k].N = low[k]
	}
	return want
}

// MeetsMinValues reports whether a claim that allows these shapes and choices meets the minValues of a template, with the numbers in low;
// nil: none was lowered.
func (t *Template) MeetsMinValues(shapes, mask bits.Set, low []int) bool {
	v := t.Catalog.Variety(shapes, mask, t.WantedMinValues(low))
	return v.Enough()
}

// PortsOf returns the host ports that daemons take on a shape.
func (t *Template) PortsOf(shape int) []int {
	if len(t.Daemons) == 0 {
		return nil
	}
	return t.Daemons[t.DaemonOf[shape]].Ports
}

// Sold returns the shapes that can be bought under mask.
func (t *Template) Sold(mask bits.Set) bits.Set {
	out := bits.Make(t.Catalog.Len())
	both := bits.Make(64 * len(t.Mask))
	for sh := range t.Shapes.All() {
		copy(both, mask[:len(both)])
		both.And(t.ShapeMask[sh])
		if t.SellsAny(both) {
			out.Add(sh)
		}
	}
	return out
}

// DropReserved takes the offers of reservations out of mask. Only nodes that hold a machine of a reservation are bought by them.
func (t *Template) DropReserved(mask bits.Set) {
	if len(t.Catalog.Left) == 0 {
		return
	}
	for o := range t.Catalog.Offers {
		if t.Catalog.Offers[o].Reservation >= 0 {
			mask.Remove(o)
		}
	}
}

// Exclude takes out of mask the bits with which a node would be in the domain of choice. Segments that choice leaves whole do not decide
// about the domain, so their bits stay.
func (t *Template) Exclude(mask, choice bits.Set) {
	for _, g := range t.Segments {
		whole := true
		for at := g.From; at < g.To; at++ {
			whole = whole && choice.Has(at)
		}
		for at := g.From; at < g.To && !whole; at++ {
			if choice.Has(at) {
				mask.Remove(at)
			}
		}
	}
}

// Counts returns what a node of a shape counts against limits.
func (t *Template) Counts(shape int) quantity.Vec {
	if t.Counted != nil {
		return t.Counted[shape]
	}
	return t.Catalog.Capacity[shape]
}

// Attachable returns how many volumes of a driver a shape can attach, −1 if that is not limited.
func (t *Template) Attachable(driver, shape int) int32 {
	if driver >= len(t.Drivers) || t.Drivers[driver] == nil {
		return -1
	}
	return t.Drivers[driver][shape]
}

// Reprice gives the template an empty cache for the prices of its shapes. A template with reservations gets none, because its prices depend
// on how many machines reservations have left.
func (t *Template) Reprice() {
	if len(t.Catalog.Left) == 0 {
		t.Prices = &Prices{Mask: t.Mask}
	}
}
