// Package offer works out where and how each instance type can be bought: zones × capacity types × reservations,
// each in every partition of the placement group, with the price and whether it can be had now.
//
// Offerings of all types share their label maps, one per zone, capacity type and partition, and none of them ever changes.
package offer

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

// A Zone is one zone of the region.
type Zone struct {
	Name, ID string
	// Subnet says that the node class has a subnet here; without one nothing is offered.
	Subnet bool
	// Full says that nothing can be launched here now: no subnet has free addresses, or traffic is shifted away from the zone.
	Full bool
}

// A Reservation is one capacity reservation that the node class may use.
type Reservation struct {
	ID, Type      string // Type is "default" or "capacity-block"
	InstanceType  string
	Zone          string
	Interruptible bool
	Expiring      bool
	Remaining     int
}

// out reports what was found to be out of stock.
type out interface {
	Out(shortage.Pool) bool
	ReservationOut(id string) bool
}

// risks returns how often spot machines are interrupted, and which were interrupted or not to be had recently.
type risks interface {
	Of(p price.Pool) (nano int64, rests bool)
}

// A Group is the placement group that the node class's machines are launched into.
type Group struct {
	ID         string // "" for none
	Partitions int    // 0 unless the group has partitions
	// Home is the only zone in which a cluster group takes machines, because it has some there; "" while it has none.
	Home string
}

// A Market holds everything that offerings depend on besides the type itself.
type Market struct {
	Zones        []Zone                     // every zone of the region, sorted by name
	Offered      map[string]map[string]bool // type → zones that offer it
	Prices       *price.List
	Stock        out   // nil when nothing is known to be out
	Risks        risks // nil when nothing is known about interruptions
	Reservations []Reservation
	Group        Group
	// Unpriced lists what has no known price as well, for overlays to give it one.
	Unpriced bool

	labels map[labelKey]map[string]string
}

type labelKey struct{ zone, capacityType, partition string }

// Add sets the offerings of a type and the labels that they decide. If the node class cannot use the type (usable is
// false), its offerings are listed, and none is available.
func (m *Market) Add(it *cloud.InstanceType, t *awsdata.InstanceType, usable bool) {
	m.Place(it, t)
	it.Offerings = m.Offerings(t, usable)
}

// Offerings lists the ways to buy t.
func (m *Market) Offerings(t *awsdata.InstanceType, usable bool) []cloud.Offering {
	reserved := m.reservedFor(t.Name)
	capacityTypes := capacityTypes(t)
	partitions := m.partitions()
	out := make([]cloud.Offering, 0, (len(m.Zones)*len(capacityTypes)+len(reserved))*len(partitions))
	for _, z := range m.Zones {
		for _, ct := range capacityTypes {
			for _, partition := range partitions {
				if o, ok := m.offering(t.Name, z, ct, partition); ok {
					if o.NeedsPrice && !usable {
						continue
					}
					o.Available = o.Available && usable
					out = append(out, o)
				}
			}
		}
	}
	for _, r := range reserved {
		for _, partition := range partitions {
			if o, ok := m.reserved(r, partition, usable); ok {
				out = append(out, o)
			}
		}
	}
	return out
}

// partitions returns the partitions of the group; one without a name if it has none.
func (m *Market) partitions() []string {
	if m.Group.Partitions == 0 {
		return []string{""}
	}
	out := make([]string, m.Group.Partitions)
	for i := range out {
		out[i] = strconv.Itoa(i + 1)
	}
	return out
}

// closed reports whether nothing can be had in a zone now, whatever it is.
func (m *Market) closed(z Zone) bool { return z.Full || m.Group.Home != "" && m.Group.Home != z.Name }

// capacityTypes returns the ways to buy t without a reservation.
func capacityTypes(t *awsdata.InstanceType) []string {
	var out []string
	for _, ct := range []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot} {
		if slices.Contains(t.UsageClasses, ct) {
			out = append(out, ct)
		}
	}
	return out
}

// offering returns one way to buy. It is false if the type is not sold there, the class has no subnet there, or the
// price is not known. If an overlay may set the price, an offering without a price is listed too, unless something else
// than the price keeps it from being available.
func (m *Market) offering(instanceType string, z Zone, capacityType, partition string) (cloud.Offering, bool) {
	if !z.Subnet || !m.Offered[instanceType][z.Name] {
		return cloud.Offering{}, false
	}
	var o cloud.Offering
	var known bool
	pool := price.Pool{Type: instanceType, Zone: z.Name}
	if capacityType == v1.CapacityTypeSpot {
		o.Price, known = m.Prices.Spot(pool)
		if m.Risks != nil {
			o.Hazard, o.Rests = m.Risks.Of(pool)
		}
	} else {
		o.Price, known = m.Prices.OnDemandIn(pool)
	}
	out := m.closed(z) || m.Stock != nil && m.Stock.Out(shortage.Pool{
		CapacityType: capacityType, InstanceType: instanceType, Zone: z.Name, Place: shortage.Place{Group: m.Group.ID,
			Partition: partition},
	})
	if !known && (!m.Unpriced || out) {
		return cloud.Offering{}, false
	}
	o.Labels, o.Available, o.NeedsPrice = m.labelsOf(z, capacityType, partition), known && !out, !known
	return o, true
}

// labelsOf returns the labels of a way to buy, which offerings share.
func (m *Market) labelsOf(z Zone, capacityType, partition string) map[string]string {
	key := labelKey{z.Name, capacityType, partition}
	if l, ok := m.labels[key]; ok {
		return l
	}
	l := map[string]string{corev1.LabelTopologyZone: z.Name, v1.CapacityTypeLabelKey: capacityType}
	if z.ID != "" {
		l[awsv1.LabelTopologyZoneID] = z.ID
	}
	if m.Group.ID != "" {
		l[awsv1.LabelPlacementGroupID] = m.Group.ID
	}
	if partition != "" {
		l[awsv1.LabelPlacementGroupPartition] = partition
	}
	if m.labels == nil {
		m.labels = map[labelKey]map[string]string{}
	}
	m.labels[key] = l
	return l
}

// Prepare makes the label maps that offerings share, so that copies of the market share them too.
func (m *Market) Prepare() {
	m.labels = map[labelKey]map[string]string{}
	for _, z := range m.Zones {
		for _, partition := range m.partitions() {
			m.labelsOf(z, v1.CapacityTypeOnDemand, partition)
			m.labelsOf(z, v1.CapacityTypeSpot, partition)
		}
	}
}

// reservedFor returns the reservations for a type.
func (m *Market) reservedFor(instanceType string) []Reservation {
	var out []Reservation
	for _, r := range m.Reservations {
		if r.InstanceType == instanceType {
			out = append(out, r)
		}
	}
	return out
}

// reservedShare makes reserved machines cheaper than any other, in the order of their on-demand prices.
const reservedShare = 10_000_000

// reserved returns the offering of a reservation; false if the type or the class is not in its zone.
func (m *Market) reserved(r Reservation, partition string, usable bool) (cloud.Offering, bool) {
	i := slices.IndexFunc(m.Zones, func(z Zone) bool { return z.Name == r.Zone })
	if i < 0 || !m.Zones[i].Subnet || !m.Offered[r.InstanceType][r.Zone] {
		return cloud.Offering{}, false
	}
	p, _ := m.Prices.OnDemand(r.InstanceType)
	z := m.Zones[i]
	labels := maps.Clone(m.labelsOf(z, v1.CapacityTypeReserved, partition))
	labels[awsv1.LabelCapacityReservationID] = r.ID
	labels[awsv1.LabelCapacityReservationType] = r.Type
	labels[awsv1.LabelCapacityReservationInterruptible] = boolText(r.Interruptible)
	healthy := usable && !m.closed(z) && !r.Expiring && (m.Stock == nil || !m.Stock.ReservationOut(r.ID))
	return cloud.Offering{
		Labels:      labels,
		Price:       p / reservedShare,
		Reservation: r.ID,
		Reserved:    r.Remaining,
		Available:   healthy && r.Remaining > 0,
		Full:        healthy && r.Remaining <= 0,
	}, true
}

// Place sets the labels of a type that offerings decide: all values that any of its offerings can have. They do not
// depend on prices and stock.
func (m *Market) Place(it *cloud.InstanceType, t *awsdata.InstanceType) {
	name, reserved, capacityTypes := t.Name, m.reservedFor(t.Name), capacityTypes(t)
	var zones, ids []string
	for _, z := range m.Zones {
		if z.Subnet && m.Offered[name][z.Name] {
			zones = append(zones, z.Name)
			if z.ID != "" {
				ids = append(ids, z.ID)
			}
		}
	}
	it.Labels[corev1.LabelTopologyZone] = zones
	if len(ids) > 0 || len(zones) == 0 {
		it.Labels[awsv1.LabelTopologyZoneID] = ids
	} // else the ids are not known yet, so the label stays undefined
	it.Labels[awsv1.LabelCapacityReservationID] = union(reserved, func(r Reservation) string { return r.ID })
	it.Labels[awsv1.LabelCapacityReservationType] = union(reserved, func(r Reservation) string { return r.Type })
	it.Labels[awsv1.LabelCapacityReservationInterruptible] =
		union(reserved, func(r Reservation) string { return boolText(r.Interruptible) })
	if len(reserved) > 0 {
		capacityTypes = append(capacityTypes, v1.CapacityTypeReserved)
	}
	it.Labels[v1.CapacityTypeLabelKey] = capacityTypes
	it.Labels[awsv1.LabelPlacementGroupID], it.Labels[awsv1.LabelPlacementGroupPartition] = nil, nil
	if m.Group.ID != "" {
		it.Labels[awsv1.LabelPlacementGroupID] = []string{m.Group.ID}
	}
	if m.Group.Partitions > 0 {
		it.Labels[awsv1.LabelPlacementGroupPartition] = m.partitions()
	}
}

// union returns the values of reservations, sorted, each once.
func union(rs []Reservation, value func(Reservation) string) []string {
	var out []string
	for _, r := range rs {
		out = append(out, value(r))
	}
	slices.SortFunc(out, strings.Compare)
	return slices.Compact(out)
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
