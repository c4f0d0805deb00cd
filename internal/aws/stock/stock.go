// Package stock remembers what was found to be out: pools, whole capacity types, and subnets without addresses.
//
// An entry counts for three minutes from when it was last marked. Sequence changes with every mark and every entry that
// runs out, so that whoever derived something from the stock knows when to do it again.
package stock

import (
	"sync"
	"time"
)

// Life is how long an entry counts.
const Life = 3 * time.Minute

// A Pool is one way to buy: a capacity type, instance type and zone.
type Pool struct{ CapacityType, InstanceType, Zone string }

// A Stock is what is known to be out. It may be used concurrently.
type Stock struct {
	mu       sync.Mutex
	sequence uint64
	until    map[any]time.Time // by Pool, capacityType or subnet
}

type (
	capacityType string
	subnet       string
)

// New returns a Stock in which nothing is out.
func New() *Stock { return &Stock{until: map[any]time.Time{}} }

// Mark says that a pool is out.
func (s *Stock) Mark(p Pool) { s.mark(p) }

// MarkCapacityType says that a whole capacity type is out.
func (s *Stock) MarkCapacityType(ct string) { s.mark(capacityType(ct)) }

// MarkSubnet says that a subnet has no free addresses.
func (s *Stock) MarkSubnet(id string) { s.mark(subnet(id)) }

func (s *Stock) mark(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[key] = time.Now().Add(Life)
	s.sequence++
}

// Sequence is a number that changes whenever an answer may.
func (s *Stock) Sequence() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	return s.sequence
}

// Out says whether a pool, or its whole capacity type, is out.
func (s *Stock) Out(ct, instanceType, zone string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out(Pool{ct, instanceType, zone}) || s.out(capacityType(ct))
}

// SubnetOut says whether a subnet has no free addresses.
func (s *Stock) SubnetOut(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out(subnet(id))
}

// ZoneOut says whether a zone cannot be used because all of the given subnets in it are full. No subnets block nothing.
func (s *Stock) ZoneOut(subnets []string) bool {
	for _, id := range subnets {
		if !s.SubnetOut(id) {
			return false
		}
	}
	return len(subnets) > 0
}

func (s *Stock) out(key any) bool {
	until, ok := s.until[key]
	return ok && time.Now().Before(until)
}

func (s *Stock) sweep() {
	now := time.Now()
	for key, until := range s.until {
		if !now.Before(until) {
			delete(s.until, key)
			s.sequence++
		}
	}
}
