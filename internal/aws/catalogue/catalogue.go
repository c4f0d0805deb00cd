// Package catalogue works out the catalogue of each node class, and keeps it as long as nothing changes.
//
// Classes that differ only in what does not change a catalogue share one (a shelf). A catalogue is made in two steps:
// fill works out labels and sizes, which change rarely, and offer adds the offerings, which change with prices and
// stock. Types whose offerings stay the same keep their pointers, so that callers may keep what they derived from a type.
package catalogue

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/inventory"
	"karpenter.sh/karpenter/internal/aws/offer"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/aws/spotrisk"
	"karpenter.sh/karpenter/internal/aws/zonalshift"
	"karpenter.sh/karpenter/internal/kit/dedup"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Sources are what catalogues are made of.
type Sources struct {
	Region    string
	Settings  hardware.Settings
	Unpriced  bool // what has no known price is listed too
	Inventory interface{ Goods() *inventory.Goods }
	Prices    interface{ List() *price.List }
	Stock     *shortage.List
	// Reservations counts what is left in capacity reservations; nil while they are not managed.
	Reservations interface {
		Left(id string) int
		Sequence() uint64
	}
	// Risks knows how often spot machines are taken back; nil where that is not known.
	Risks *spotrisk.Memory
	// Shifts knows the zones, by id, from which traffic is shifted away.
	Shifts *zonalshift.Watch
	// Home is the zone in which a cluster placement group has machines, "" for none. It may be nil.
	Home func(group string) string
	// Memory knows the memory that nodes were seen to have.
	Memory interface {
		Seen(images, instanceType string) int64
		Sequence() uint64
	}
}

// Catalogues has the catalogue of each class. It may be used concurrently.
type Catalogues struct {
	from Sources

	mu      sync.Mutex
	byClass map[*awsv1.EC2NodeClass]*shelf // rows of the class's mirror; a changed class is another pointer
	shelves map[string]*shelf              // by signature
	labels  map[labelsKey][]map[string][]string
	share   *dedup.Table // of what types have in common
}

// A labelsKey is what labels are worked out from. It keeps the goods alive, so that their address cannot be used
// again.
type labelsKey struct {
	goods *inventory.Goods
	rest  string
}

// A shelf is the catalogue of all classes with one signature, and the steps on the way to it.
type shelf struct {
	signature string
	class     *hardware.Class
	images    string
	amis      []awsv1.AMI
	wishes    hardware.Wishes
	subnets   map[string][]string // by zone
	zoneIDs   map[string]string
	cluster   bool          // the market's placement group is of the strategy cluster
	market    *offer.Market // without prices and stock

	goods    *inventory.Goods
	memory   uint64
	base     []*cloud.InstanceType // without offerings
	types    []*awsdata.InstanceType
	usable   []bool
	reserved []awsv1.CapacityReservation

	epoch   epoch
	catalog *cloud.Catalog
	used    time.Time
}

// An epoch holds the versions of everything that offerings are worked out from.
type epoch struct {
	prices       *price.List
	stock        uint64
	reservations uint64
	home         string
	shifts       uint64
	risks        uint64
}

// New returns Catalogues that know none yet.
func New(from Sources) *Catalogues {
	return &Catalogues{
		from: from, byClass: map[*awsv1.EC2NodeClass]*shelf{}, shelves: map[string]*shelf{},
		labels: map[labelsKey][]map[string][]string{}, share: dedup.New(),
	}
}

// Catalog returns what can be bought for a class. The class must not be changed afterwards: it is remembered by its
// address.
func (s *Catalogues) Catalog(nc *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	goods := s.from.Inventory.Goods()
	switch {
	case goods == nil:
		return nil, fmt.Errorf("EC2's instance types are not known yet")
	case len(nc.Status.Subnets) == 0:
		return nil, fmt.Errorf("node class %s has no subnets", nc.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shelf := s.byClass[nc]
	if shelf == nil {
		var err error
		if shelf, err = s.shelf(nc); err != nil {
			return nil, fmt.Errorf("node class %s: %w", nc.Name, err)
		}
	}
	shelf.used = time.Now()
	if memory := s.from.Memory.Sequence(); shelf.goods != goods || shelf.memory != memory {
		shelf.memory = memory
		s.fill(shelf, goods)
	}
	s.offer(shelf)
	return shelf.catalog, nil
}

const idle = 10 * time.Minute

// shelf finds or makes the shelf of a class that was not seen before. It drops shelves that were not asked for in a
// while, and older versions of the class.
func (s *Catalogues) shelf(nc *awsv1.EC2NodeClass) (*shelf, error) {
	fresh, err := s.describe(nc)
	if err != nil {
		return nil, err
	}
	for old, sh := range s.byClass {
		// One version of a class may have several kubelets.
		if old.UID == nc.UID && old.Name == nc.Name && old.ResourceVersion != nc.ResourceVersion || time.Since(sh.used) > idle {
			delete(s.byClass, old)
		}
	}
	for key, sh := range s.shelves {
		if time.Since(sh.used) > idle {
			delete(s.shelves, key)
		}
	}
	known := s.shelves[fresh.signature]
	if known == nil {
		known = fresh
		s.shelves[fresh.signature] = known
	}
	s.byClass[nc] = known
	return known, nil
}

// describe returns a new shelf with everything about a class that changes its catalogue. The signature is that as
// JSON.
func (s *Catalogues) describe(nc *awsv1.EC2NodeClass) (*shelf, error) {
	class, err := hardware.ClassOf(nc, s.from.Settings)
	if err != nil {
		return nil, err
	}
	sh := &shelf{class: class, images: Images(nc), amis: nc.Status.AMIs, subnets: Subnets(nc)}
	if s.from.Reservations != nil {
		sh.reserved = nc.Status.CapacityReservations
	}
	ids := map[string]string{}
	for _, sub := range nc.Status.Subnets {
		ids[sub.Zone] = sub.ZoneID
	}
	wishes := hardware.WishesOf(nc)
	text, err := json.Marshal(struct {
		Class    *hardware.Class
		Wishes   hardware.Wishes
		Subnets  map[string][]string
		ZoneIDs  map[string]string
		AMIs     []awsv1.AMI
		Reserved []awsv1.CapacityReservation
		Group    *awsv1.PlacementGroup
	}{class, wishes, sh.subnets, ids, sh.amis, sh.reserved, nc.Status.PlacementGroup})
	if err != nil {
		return nil, err
	}
	sh.signature = string(text)
	sh.wishes, sh.zoneIDs, sh.market = wishes, ids, &offer.Market{Unpriced: s.from.Unpriced}
	if g := nc.Status.PlacementGroup; g != nil {
		sh.market.Group = offer.Group{ID: g.ID, Partitions: int(g.PartitionCount)}
		sh.cluster = g.Strategy == awsv1.PlacementStrategyCluster
	}
	return sh, nil
}

// Subnets returns a class's subnets by zone, sorted.
func Subnets(nc *awsv1.EC2NodeClass) map[string][]string {
	out := map[string][]string{}
	for _, sub := range nc.Status.Subnets {
		out[sub.Zone] = append(out[sub.Zone], sub.ID)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// Images returns a text that identifies the set of a class's images.
func Images(nc *awsv1.EC2NodeClass) string {
	ids := make([]string, len(nc.Status.AMIs))
	for i, a := range nc.Status.AMIs {
		ids[i] = a.ID
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), ",")
}

// fill works out labels and sizes of all types, which change rarely; offer then adds the offerings.
func (s *Catalogues) fill(sh *shelf, goods *inventory.Goods) {
	sh.goods, sh.catalog, sh.epoch = goods, nil, epoch{}
	sh.market.Offered, sh.market.Zones = goods.Offered, zones(goods.Zones, sh)
	sh.market.Reservations = reservations(sh.reserved)
	sh.market.Prepare()
	sh.base, sh.types, sh.usable = nil, nil, nil
	labels := s.labelsFor(sh, goods)
	image := ami.Chooser(sh.amis)
	for i, t := range goods.Types {
		if labels[i] == nil {
			continue
		}
		it := hardware.Size(t, sh.class, s.from.Memory.Seen(sh.images, t.Name))
		it.Labels = labels[i]
		it.Capacity = s.share.Amounts(it.Capacity)
		for _, list := range []*corev1.ResourceList{&it.Overhead.KubeReserved, &it.Overhead.SystemReserved,
			&it.Overhead.EvictionThreshold} {
			*list = s.share.Amounts(*list)
		}
		sh.base = append(sh.base, it)
		sh.types = append(sh.types, t)
		// A type that no image of the class boots on is never planned with. While no image is known, all types are listed.
		_, boots := image(labels[i])
		sh.usable = append(sh.usable, hardware.Compatible(t, sh.class, sh.wishes) == "" && (boots || len(sh.amis) == 0))
	}
}

// labelsFor returns the labels of every usable type, nil for other types. Classes that differ only in capacity share
// them.
func (s *Catalogues) labelsFor(sh *shelf, goods *inventory.Goods) []map[string][]string {
	key := labelsKey{goods, placing(sh)}
	if l, ok := s.labels[key]; ok {
		return l
	}
	out := make([]map[string][]string, len(goods.Types))
	for i, t := range goods.Types {
		if hardware.Usable(t) {
			it := &cloud.InstanceType{Labels: hardware.Labels(t, s.from.Region, sh.class.Family)}
			sh.market.Place(it, t)
			for key, values := range it.Labels {
				it.Labels[key] = s.share.Strings(values)
			}
			out[i] = it.Labels
		}
	}
	if len(s.labels) > 8 {
		clear(s.labels) // old goods and zones; their users still hold them
	}
	s.labels[key] = out
	return out
}

// placing returns a text that identifies what labels are worked out from besides the goods.
func placing(sh *shelf) string {
	b := identity.Text(make([]byte, 0, 512), hardware.WindowsBuild(sh.class.Family))
	b = identity.Count(b, len(sh.market.Zones))
	for _, z := range sh.market.Zones {
		b = identity.Texts(b, []string{z.Name, z.ID})
		b = identity.Flag(identity.Flag(b, z.Subnet), z.Full)
	}
	b = identity.Count(b, len(sh.market.Reservations))
	for _, r := range sh.market.Reservations {
		b = identity.Texts(b, []string{r.ID, r.Type, r.InstanceType, r.Zone})
		b = identity.Number(identity.Flag(identity.Flag(b, r.Interruptible), r.Expiring), int64(r.Remaining))
	}
	b = identity.Texts(b, []string{sh.market.Group.ID, sh.market.Group.Home})
	return string(identity.Number(b, int64(sh.market.Group.Partitions)))
}

// zones returns the region's zones as the market needs them.
func zones(names []string, sh *shelf) []offer.Zone {
	out := make([]offer.Zone, len(names))
	for i, name := range names {
		out[i] = offer.Zone{Name: name, ID: sh.zoneIDs[name], Subnet: len(sh.subnets[name]) > 0}
	}
	return out
}

// reservations returns capacity reservations as the market needs them, without how many machines are left.
func reservations(of []awsv1.CapacityReservation) []offer.Reservation {
	out := make([]offer.Reservation, len(of))
	for i, r := range of {
		out[i] = offer.Reservation{
			ID: r.ID, Type: string(r.ReservationType), InstanceType: r.InstanceType, Zone: r.AvailabilityZone,
			Interruptible: r.Interruptible, Expiring: r.State == awsv1.CapacityReservationStateExpiring,
		}
	}
	return out
}

// offer works out the offerings again if prices, stock or anything else in epoch changed. Types whose offerings stay
// equal keep their pointers, so that callers can remember results by them.
func (s *Catalogues) offer(sh *shelf) {
	now := epoch{prices: s.from.Prices.List(), stock: s.from.Stock.Sequence(), shifts: s.from.Shifts.Sequence()}
	if s.from.Reservations != nil {
		now.reservations = s.from.Reservations.Sequence()
	}
	if s.from.Risks != nil {
		now.risks = s.from.Risks.Sequence()
	}
	if sh.cluster && s.from.Home != nil {
		now.home = s.from.Home(sh.market.Group.ID)
	}
	if sh.catalog != nil && sh.epoch == now {
		return
	}
	m := *sh.market
	m.Group.Home = now.home
	m.Prices, m.Stock = now.prices, s.from.Stock
	if s.from.Risks != nil {
		m.Risks = s.from.Risks
	}
	m.Zones = slices.Clone(m.Zones)
	for i := range m.Zones {
		m.Zones[i].Full = s.from.Stock.ZoneOut(sh.subnets[m.Zones[i].Name]) || s.from.Shifts.Away(m.Zones[i].ID)
	}
	m.Reservations = slices.Clone(m.Reservations)
	for i := range m.Reservations {
		m.Reservations[i].Remaining = s.from.Reservations.Left(m.Reservations[i].ID)
	}
	next := &cloud.Catalog{Types: make([]*cloud.InstanceType, len(sh.base))}
	same := sh.catalog != nil
	for i, base := range sh.base {
		offerings := m.Offerings(sh.types[i], sh.usable[i])
		if sh.catalog != nil && equal(sh.catalog.Types[i].Offerings, offerings) {
			next.Types[i] = sh.catalog.Types[i]
			continue
		}
		it := *base
		it.Offerings = offerings
		next.Types[i], same = &it, false
	}
	sh.epoch = now
	if !same {
		sh.catalog = next
	}
}

// equal reports whether two lists of offerings are equal.
func equal(a, b []cloud.Offering) bool {
	return slices.EqualFunc(a, b, func(x, y cloud.Offering) bool {
		return x.Price == y.Price && x.Available == y.Available && x.NeedsPrice == y.NeedsPrice &&
			x.Hazard == y.Hazard && x.Rests == y.Rests &&
			x.Reservation == y.Reservation && x.Reserved == y.Reserved && x.Full == y.Full && reflect.DeepEqual(x.Labels, y.Labels)
	})
}
