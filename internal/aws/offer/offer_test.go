package offer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

type dry map[string]bool

func (d dry) Out(p shortage.Pool) bool {
	return d[strings.TrimSpace(strings.Join([]string{p.CapacityType, p.InstanceType, p.Zone, p.Group, p.Partition}, " "))]
}

func (d dry) ReservationOut(id string) bool { return d[id] }

// market sells m5.large in zones a and b; the class has subnets in a and c.
func market(edit func(*Market)) *Market {
	m := &Market{
		Zones:   []Zone{{Name: "z-a", ID: "id-a", Subnet: true}, {Name: "z-b", ID: "id-b"}, {Name: "z-c", ID: "id-c", Subnet: true}},
		Offered: map[string]map[string]bool{"m5.large": {"z-a": true, "z-b": true}},
		Prices:  price.Static("us-east-1"),
	}
	edit(m)
	return m
}

func add(m *Market, usable bool) *cloud.InstanceType {
	types := awsdata.Types()
	i := slices.IndexFunc(types, func(t *awsdata.InstanceType) bool { return t.Name == "m5.large" })
	it := &cloud.InstanceType{Name: "m5.large", Labels: map[string][]string{}}
	m.Add(it, types[i], usable)
	return it
}

// available lists what can be bought, as "capacity type/zone".
func available(it *cloud.InstanceType) []string {
	var out []string
	for i := range it.Offerings {
		if o := &it.Offerings[i]; o.Available {
			out = append(out, strings.TrimSpace(o.CapacityType()+"/"+o.Zone()+" "+o.Labels[awsv1.LabelPlacementGroupPartition]))
		}
	}
	return out
}

func TestAvailability(t *testing.T) {
	reservation := Reservation{ID: "cr-1", Type: "default", InstanceType: "m5.large", Zone: "z-a", Remaining: 2}
	for name, tc := range map[string]struct {
		edit   func(*Market)
		usable bool
		want   []string
	}{
		"only where the zone offers it and the class has a subnet": {func(*Market) {}, true, []string{"on-demand/z-a", "spot/z-a"}},
		"nowhere if the class cannot use the type":                 {func(*Market) {}, false, nil},
		"not what is out of stock": {func(m *Market) {
			m.Stock = dry{"spot m5.large z-a": true}
		}, true, []string{"on-demand/z-a"}},
		"not spot without a quote": {func(m *Market) {
			m.Prices = m.Prices.WithSpot(map[price.Pool]cloud.NanoUSD{{Type: "m5.large", Zone: "z-b"}: 1})
		}, true, []string{"on-demand/z-a"}},
		"a reservation with machines left": {func(m *Market) { m.Reservations = []Reservation{reservation} }, true,
			[]string{"on-demand/z-a", "spot/z-a", "reserved/z-a"}},
		"not a reservation that is used up": {func(m *Market) {
			used := reservation
			used.Remaining = 0
			m.Reservations = []Reservation{used}
		}, true, []string{"on-demand/z-a", "spot/z-a"}},
		"not a reservation that gives no machines now": {func(m *Market) {
			sibling := reservation
			sibling.ID, m.Stock = "cr-2", dry{"cr-1": true}
			m.Reservations = []Reservation{reservation, sibling}
		}, true, []string{"on-demand/z-a", "spot/z-a", "reserved/z-a"}},
		"not a reservation that is about to end": {func(m *Market) {
			ending := reservation
			ending.Expiring = true
			m.Reservations = []Reservation{ending}
		}, true, []string{"on-demand/z-a", "spot/z-a"}},
		"not a reservation where the class has no subnet": {func(m *Market) {
			elsewhere := reservation
			elsewhere.Zone = "z-b"
			m.Reservations = []Reservation{elsewhere}
		}, true, []string{"on-demand/z-a", "spot/z-a"}},
		"in a group, not what the group lacks": {func(m *Market) {
			m.Group, m.Stock = Group{ID: "pg-1"}, dry{"spot m5.large z-a pg-1": true}
		}, true, []string{"on-demand/z-a"}},
		"in each partition that has it": {func(m *Market) {
			m.Group, m.Stock = Group{ID: "pg-1", Partitions: 2}, dry{"spot m5.large z-a pg-1 2": true}
			m.Reservations = []Reservation{reservation}
		}, true, []string{"on-demand/z-a 1", "on-demand/z-a 2", "spot/z-a 1", "reserved/z-a 1", "reserved/z-a 2"}},
		"where a cluster group is at home": {func(m *Market) {
			m.Group, m.Zones[1].Subnet, m.Reservations = Group{ID: "pg-1", Home: "z-b"}, true, []Reservation{reservation}
		}, true, []string{"on-demand/z-b", "spot/z-b"}},
		"not a reservation of another type": {func(m *Market) {
			other := reservation
			other.InstanceType = "m5.xlarge"
			m.Reservations = []Reservation{other}
		}, true, []string{"on-demand/z-a", "spot/z-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, available(add(market(tc.edit), tc.usable))); d != "" {
				t.Errorf("available offerings differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatCannotBeHadNowKeepsItsPrice(t *testing.T) {
	for name, it := range map[string]*cloud.InstanceType{
		"a type that the class cannot use": add(market(func(*Market) {}), false),
		"a zone without free addresses":    add(market(func(m *Market) { m.Zones[0].Full = true }), true),
	} {
		if len(it.Offerings) != 2 {
			t.Fatalf("%s: there are %d offerings, want two capacity types in the zone that sells it and has a subnet", name, len(it.Offerings))
		}
		for _, o := range it.Offerings {
			if o.Price != 96_000_000 || o.Available {
				t.Errorf("%s: offering %+v", name, o)
			}
		}
	}
}

func TestWhatHasNoPrice(t *testing.T) {
	unpriced := func(edit func(*Market)) func(*Market) {
		return func(m *Market) {
			m.Prices, m.Unpriced = &price.List{}, true
			edit(m)
		}
	}
	for name, tc := range map[string]struct {
		market func(*Market)
		usable bool
		want   int // offerings that need a price
		listed int
	}{
		"is not listed":                                {func(m *Market) { m.Prices = &price.List{} }, true, 0, 0},
		"is listed for overlays":                       {unpriced(func(*Market) {}), true, 2, 2},
		"that the class cannot use":                    {unpriced(func(*Market) {}), false, 0, 0},
		"that is out of stock on spot":                 {unpriced(func(m *Market) { m.Stock = dry{"spot m5.large z-a": true} }), true, 1, 1},
		"in a zone without free addresses":             {unpriced(func(m *Market) { m.Zones[0].Full = true }), true, 0, 0},
		"a price that is known is nobody's to correct": {func(m *Market) { m.Unpriced = true }, true, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			it := add(market(tc.market), tc.usable)
			needs := 0
			for _, o := range it.Offerings {
				if o.NeedsPrice {
					needs++
				}
				if o.Price == 0 && o.Available {
					t.Errorf("%+v is on offer without a price", o)
				}
			}
			if needs != tc.want || len(it.Offerings) != tc.listed {
				t.Errorf("%d of %d offerings need a price, want %d of %d", needs, len(it.Offerings), tc.want, tc.listed)
			}
		})
	}
}

func TestReservedOffering(t *testing.T) {
	it := add(market(func(m *Market) {
		m.Reservations = []Reservation{{ID: "cr-1", Type: "default", InstanceType: "m5.large", Zone: "z-a", Remaining: 2}}
	}), true)
	got := it.Offerings[len(it.Offerings)-1]
	want := cloud.Offering{
		Labels: map[string]string{
			corev1.LabelTopologyZone: "z-a", awsv1.LabelTopologyZoneID: "id-a", v1.CapacityTypeLabelKey: "reserved",
			awsv1.LabelCapacityReservationID: "cr-1", awsv1.LabelCapacityReservationType: "default",
			awsv1.LabelCapacityReservationInterruptible: "false",
		},
		Price: 9, Available: true, Reservation: "cr-1", Reserved: 2,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reserved offering differs (-want +got):\n%s", d)
	}
}

func TestTypeLabelsThatOfferingsDecide(t *testing.T) {
	it := add(market(func(*Market) {}), true)
	want := map[string][]string{
		corev1.LabelTopologyZone: {"z-a"}, awsv1.LabelTopologyZoneID: {"id-a"},
		v1.CapacityTypeLabelKey:          {"on-demand", "spot"},
		awsv1.LabelCapacityReservationID: nil, awsv1.LabelCapacityReservationType: nil,
		awsv1.LabelCapacityReservationInterruptible: nil,
		awsv1.LabelPlacementGroupID:                 nil, awsv1.LabelPlacementGroupPartition: nil,
	}
	if d := cmp.Diff(want, it.Labels); d != "" {
		t.Errorf("labels differ (-want +got):\n%s", d)
	}
	grouped := add(market(func(m *Market) { m.Group = Group{ID: "pg-1", Partitions: 3} }), true).Labels
	want[awsv1.LabelPlacementGroupID], want[awsv1.LabelPlacementGroupPartition] = []string{"pg-1"}, []string{"1", "2", "3"}
	if d := cmp.Diff(want, grouped); d != "" {
		t.Errorf("labels in a group differ (-want +got):\n%s", d)
	}
}
