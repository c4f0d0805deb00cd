package compile

import (
	"slices"
	"sort"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A catalog is a provider's catalogue with its columns.
type catalog struct {
	shape *shape.Catalog
	from  *cloud.Catalog
	alloc map[string]quantity.Vec // by type name: allocatable, without what single offerings change

	capacity map[string]quantity.Vec // by type name
	// multiValued are the labels that no offering decides and of which some type allows several values.
	multiValued []string
	used        uint64 // the last turn that asked for it
}

// catalogOf returns the columns of a pool's catalogue, which are made once.
func (m *Memory) catalogOf(p Pool, in *Input) *catalog {
	from, key := p.Catalog, keyOf(p, in)
	if c := m.catalogs[key]; c != nil {
		c.used = m.turn
		return c
	}
	for other, c := range m.catalogs { // pools of one node class often get equal lists
		if other.reserved == key.reserved && other.interruption == key.interruption && slices.Equal(other.from.Types, from.Types) {
			m.catalogs[key] = c
			c.used = m.turn
			return c
		}
	}
	c := &catalog{from: from, alloc: map[string]quantity.Vec{}, capacity: map[string]quantity.Vec{}, used: m.turn}
	types := make([]shape.Type, 0, len(from.Types))
	for _, it := range from.Types {
		t := m.typeOf(it, &key)
		types = append(types, t)
		c.alloc[it.Name], c.capacity[it.Name] = t.Alloc, t.Capacity
	}
	c.shape = shape.Build(types, m.reservations.of)
	for _, key := range c.shape.Keys() {
		if !c.shape.Decides(key) && overlapping(c.shape, key) {
			c.multiValued = append(c.multiValued, key)
		}
	}
	m.catalogs[key] = c
	return c
}

// overlapping reports whether some type has several values of a label.
func overlapping(cat *shape.Catalog, key string) bool {
	seen := bits.Make(cat.Len())
	for _, v := range cat.Values(key) {
		with := cat.With(key, v)
		if seen.Meets(with) {
			return true
		}
		seen.Or(with)
	}
	return false
}

type catalogKey struct {
	from         *cloud.Catalog
	reserved     bool          // machines of reservations are counted
	interruption cloud.NanoUSD // what one costs
}

func keyOf(p Pool, in *Input) catalogKey {
	return catalogKey{p.Catalog, in.ReservedCapacity, p.InterruptionCost(cloud.NanoUSD(in.Terms.Interruption))}
}

// typeOf returns an instance type in numbers, with the offerings that can be bought now. The price of an offering includes the risk of an
// interruption. If reservations are counted, reserved offerings without a machine left are dropped.
func (m *Memory) typeOf(it *cloud.InstanceType, key *catalogKey) shape.Type {
	capacity := m.resources.capacity(it.Capacity)
	t := shape.Type{
		Name: it.Name, Labels: normalized(m.known, it.Labels), Capacity: capacity, Exotic: it.Exotic, VolumeLimits: it.VolumeLimits,
		Alloc: m.resources.capacity(it.Allocatable(&cloud.Offering{})), VCPU: capacity[quantity.CPU] / 1000,
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if !o.Available {
			continue
		}
		risk := o.Risk(key.interruption)
		to := shape.TypeOffer{Labels: normalized(m.known, o.Labels), Kind: kindOf(o.CapacityType()), Price: int64(o.Price + risk),
			Risk: int64(risk)}
		if to.Kind == shape.Reserved && key.reserved {
			if o.Reserved <= 0 {
				continue
			}
			to.Reservation, to.Left = reservationID(o), o.Reserved
		}
		if len(o.Capacity) > 0 {
			to.Alloc = m.resources.capacity(it.Allocatable(o))
		}
		t.Offers = append(t.Offers, to)
	}
	return t
}

// normalized returns labels under their present names.
func normalized[V any](known *apilabel.Vocabulary, labels map[string]V) map[string]V {
	for key := range labels {
		if known.Normalize(key) == key {
			continue
		}
		out := make(map[string]V, len(labels))
		for k, v := range labels {
			out[known.Normalize(k)] = v
		}
		return out
	}
	return labels
}

// kindOf returns the kind of a capacity type; unknown ones are on-demand.
func kindOf(capacityType string) shape.Kind {
	switch capacityType {
	case v1.CapacityTypeReserved:
		return shape.Reserved
	case v1.CapacityTypeSpot:
		return shape.Spot
	default:
		return shape.OnDemand
	}
}

// reservationID returns the name of an offering's reservation, or, if it has none, a name made of the labels of its machines.
func reservationID(o *cloud.Offering) string {
	if o.Reservation != "" {
		return o.Reservation
	}
	labels := o.Labels
	parts := make([]string, 0, len(labels))
	for k, v := range labels {
		parts = append(parts, k+"="+v)
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}
