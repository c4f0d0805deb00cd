package problem

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Hour returns what a new node is on a bill. ok is false for spot and reserved machines.
func (p *Problem) Hour(b *Bin) (l tariff.Line, ok bool) {
	first, cat := b.Launch.First, p.Templates[b.Template].Catalog
	if cat.Offers[first.Offer].Kind != shape.OnDemand {
		return l, false
	}
	return p.Settings.Commitments.Hour(cat.Names[first.Shape], cat.Offers[first.Offer].Labels, b.Launch.Price), true
}

// Arrivals are the daemons of a shape that are counted, wherever a node of it may be.
func (t *Template) Arrivals(sh int) []Arrival {
	if len(t.Daemons) == 0 {
		return nil
	}
	return t.Daemons[t.DaemonOf[sh]].Counted
}

// DevicesOf is what a shape of a template brings.
func (t *Template) DevicesOf(shape int) []*devices.State {
	if t.Devices == nil || t.Devices[shape] == nil {
		return nil
	}
	return t.Devices[shape : shape+1]
}

// SharesDevices reports whether the pods use a claim that others use too: all of them have to be where it is.
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

// ChoiceOf returns the bits that remain for a domain, nil where it is impossible.
func (k *KeyOf) ChoiceOf(d int32) bits.Set {
	if d < 0 {
		return k.None
	}
	return k.Choice[d]
}

// LeastOverhead returns the least that daemons take of each resource on any of the shapes.
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

// SellsAny reports whether every segment of mask still has a choice.
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

// WantedMinValues returns the minValues of a template, low where they were lowered.
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

// MeetsMinValues reports whether a claim that allows these shapes and choices meets the minValues of a template,
// low where they were lowered.
func (t *Template) MeetsMinValues(shapes, mask bits.Set, low []int) bool {
	v := t.Catalog.Variety(shapes, mask, t.WantedMinValues(low))
	return v.Enough()
}

// PortsOf are the ports that daemons take on a shape.
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

// DropReserved takes reserved offers out of choices: they are for who holds a machine of them.
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

// Exclude takes the bits out of mask that decide for a choice: where a segment is not left whole by it.
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

// Attachable is how many volumes of a driver a shape takes, −1 where that is not limited.
func (t *Template) Attachable(driver, shape int) int32 {
	if driver >= len(t.Drivers) || t.Drivers[driver] == nil {
		return -1
	}
	return t.Drivers[driver][shape]
}

// Reprice makes room for the prices of the shapes. They are not kept where they depend on how many machines reservations have left.
func (t *Template) Reprice() {
	if len(t.Catalog.Left) == 0 {
		t.Prices = &Prices{Mask: t.Mask}
	}
}
