// Package shortage remembers what was found to be out: pools, whole capacity types, capacity reservations, zones of placement groups,
// and subnets without addresses.
//
// A pool that is out in a placement group may be available without the group, so such an entry concerns the group only. A pool that is out
// without a group is out in all groups too.
//
// An entry counts for three minutes after it was last marked. Sequence changes with every mark and every entry that expires, so that
// values derived from the list can be renewed then.
package shortage

import (
	"sync"
	"time"
)

// Life is how long an entry counts.
const Life = 3 * time.Minute

// A Pool is one way to buy: a capacity type, instance type and zone, perhaps in a placement group.
type Pool struct {
	CapacityType, InstanceType, Zone string
	Place
}

// A Place is a placement group and one of its partitions; both are empty outside of groups.
type Place struct{ Group, Partition string }

// A List holds what is known to be out. It may be used concurrently.
type List struct {
	mu       sync.Mutex
	sequence uint64
	until    map[any]time.Time // by Pool, capacityType, reservation, groupZone or subnet
}

type (
	capacityType string
	reservation  string
	subnet       string
	groupZone    struct{ group, zone string }
)

// New returns a List in which nothing is out.
func New() *List { return &List{until: map[any]time.Time{}} }

// Mark notes that a pool is out.
func (s *List) Mark(p Pool) { s.mark(p) }

// MarkCapacityType notes that a whole capacity type is out.
func (s *List) MarkCapacityType(ct string) { s.mark(capacityType(ct)) }

// MarkReservation notes that nothing can be launched into a capacity reservation, although places may be left in it.
func (s *List) MarkReservation(id string) { s.mark(reservation(id)) }

// MarkGroup notes that a placement group takes no more machines in a zone, of any type.
func (s *List) MarkGroup(group, zone string) { s.mark(groupZone{group, zone}) }

// MarkSubnet notes that a subnet has no free addresses.
func (s *List) MarkSubnet(id string) { s.mark(subnet(id)) }

func (s *List) mark(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[key] = time.Now().Add(Life)
	s.sequence++
}

// Sequence returns a number that changes whenever an answer may change.
func (s *List) Sequence() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	return s.sequence
}

// Out reports whether a pool, or its whole capacity type, is out. A pool in a placement group is also out if it is
// out without the group.
func (s *List) Out(p Pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out(p) || s.out(capacityType(p.CapacityType)) {
		return true
	}
	if p.Group == "" {
		return false
	}
	everywhere := p
	everywhere.Place = Place{}
	return s.out(everywhere) || s.out(groupZone{p.Group, p.Zone})
}

// ReservationOut reports whether a capacity reservation is out.
func (s *List) ReservationOut(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out(reservation(id))
}

// SubnetOut reports whether a subnet has no free addresses.
func (s *List) SubnetOut(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out(subnet(id))
}

// ZoneOut reports whether a zone cannot be used because all of the given subnets in it are full. No subnets block nothing.
func (s *List) ZoneOut(subnets []string) bool {
	for _, id := range subnets {
		if !s.SubnetOut(id) {
			return false
		}
	}
	return len(subnets) > 0
}

func (s *List) out(key any) bool {
	until, ok := s.until[key]
	return ok && time.Now().Before(until)
}

func (s *List) sweep() {
	now := time.Now()
	for key, until := range s.until {
		if !now.Before(until) {
			delete(s.until, key)
			s.sequence++
		}
	}
}
