// Package devices reports whether resource claims can be allocated from the devices of a node. It tries devices in the order of
// kube-scheduler and takes the first allocation that kube-scheduler would find, so that plans leave the next pod the same devices.
//
//	inventory  the devices of a node, of which none is allocated
//	kind       devices that no selector of the problem tells apart
//	claim      requests; each gets devices by one of its options. Constraints tie the devices of several requests
//	state      an inventory with what is allocated of it. It never changes; With returns another state
//	search     the search for the devices of one pod's claims (search.go)
//	demand     a claim as mere numbers of devices, for the packer (count.go)
//
// Everything is numbers: package compile/devices evaluates the selectors before. A State caches its answers, because nodes of one kind are
// asked the same questions again and again.
package devices

import (
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// A Device is offered by a driver on a node.
type Device struct {
	Kind     int     // claims cannot tell devices of one kind apart
	Driver   int     // which offers it
	Capacity []int64 // if Multiple: what its shares may take together, by dimension
	Multiple bool    // it may be allocated several times
	Draws    []Draw
	Mixed    bool // it is not known whether kube-scheduler allocates it
}

// A Draw is how much of a counter a device takes while it is allocated. Partitions of one piece of hardware share counters.
type Draw struct {
	Counter int
	Amount  int64
}

// Most is the largest amount of anything: three of it can be added up.
const Most = math.MaxInt64 / 4

// An Inventory is the devices of a node, in the order in which they are tried.
type Inventory struct {
	Devices  []Device
	Counters []int64 // the size of each
	Unsure   bool    // there are more devices, but it is not known which: a request for all devices is refused
}

// A Claim is devices that are allocated together.
type Claim struct {
	ID          int // in the problem; equal for claims that ask the same, unless they are Shared
	Name        string
	Requests    []Request
	Constraints []Constraint
	Shared      bool // it is one claim, which several pods may use
	At          int  // where a Shared claim is allocated already, Nowhere if it is not
}

// Nowhere is Claim.At of a claim that is still to be allocated.
const Nowhere = -1

// A Request is a part of a claim that gets devices by one of its options, the first that is possible.
type Request struct {
	Name    string
	Options []Option
}

// An Option is one way to serve a request.
type Option struct {
	Count int   // of devices, unless All
	All   bool  // every device that fits, at least one
	Admin bool  // administrator access: it also gets allocated devices, and takes none from other claims
	Fits  []Fit // by kind
}

// A Fit is whether and how devices of a kind serve an option.
type Fit struct {
	Selected  bool     // the selectors take the kind
	Tolerated bool     // its taints are tolerated, or it has none
	Within    bool     // a single share is within its capacity and its rules
	Takes     []int64  // if Multiple: what a share takes of the capacity
	Bad       *Refusal // why the selectors cannot be answered; nil if they can
}

// A Constraint is about an attribute of the devices of some requests.
type Constraint struct {
	Distinct bool     // all devices differ in it; else all have the same value
	Values   []int32  // by kind, −1 without the attribute
	Bad      []string // by kind: the attribute, if its value is not known before the device is there; nil if all are known
	On       [][]bool // by request and option: the constraint is about its devices
}

// A Why says what is in the way of an allocation.
type Why uint8

const (
	TooFew  Why = iota // too few devices that fit exist and are free
	Unknown            // a selector asks about an attribute that is known only once the device is there
	Invalid            // a selector cannot be evaluated
	TooHard            // the search for an allocation was given up
)

// A Refusal is why claims cannot be allocated.
type Refusal struct {
	Why     Why
	Request string // the request that was not served
	Detail  string // the attribute that is not known, or what is wrong with the selector
}

// A State is an inventory with what is allocated of it.
type State struct {
	inventory *Inventory
	effort    *Effort
	used      []bool    // by device
	shares    [][]int64 // by device: what shares of it took together, nil before the first
	counters  []int64   // what is left of each
	held      []int     // IDs of shared claims that are allocated here, sorted
	drivers   []int     // of devices that were allocated by With, sorted
	known     map[string]answer
}

// An answer is a cached result of With, by the IDs of the claims.
type answer struct {
	next *State
	no   *Refusal
}

// An Effort is what searches have cost, in steps.
type Effort struct{ Steps int }

// New returns a state in which nothing of an inventory is allocated. The steps of its searches are added to effort.
func New(inv *Inventory, effort *Effort) *State {
	return &State{inventory: inv, effort: effort, used: make([]bool, len(inv.Devices)),
		shares: make([][]int64, len(inv.Devices)), counters: slices.Clone(inv.Counters)}
}

// Use marks a device as allocated, or, if it may be allocated several times, adds a share of it. It must not be called after With.
func (s *State) Use(device int, share []int64) {
	d := &s.inventory.Devices[device]
	if s.used[device] || s.shares[device] != nil && !d.Multiple {
		return
	}
	if !d.Multiple || s.shares[device] == nil {
		s.draw(d)
	}
	if !d.Multiple {
		s.used[device] = true
		return
	}
	sum := make([]int64, len(d.Capacity))
	copy(sum, s.shares[device])
	for i, x := range share {
		if i < len(sum) {
			sum[i] = min(sum[i]+x, Most)
		}
	}
	s.shares[device] = sum
}

// draw takes the draws of a device off the counters.
func (s *State) draw(d *Device) {
	for _, x := range d.Draws {
		s.counters[x.Counter] = max(s.counters[x.Counter]-x.Amount, -Most)
	}
}

// Hold marks a shared claim as allocated here: further pods that use it need no devices for it. It must not be called after With.
func (s *State) Hold(claim *Claim) {
	if at, has := slices.BinarySearch(s.held, claim.ID); !has {
		s.held = slices.Insert(s.held, at, claim.ID)
	}
}

// Holds reports whether a shared claim is allocated here.
func (s *State) Holds(claim *Claim) bool {
	_, has := slices.BinarySearch(s.held, claim.ID)
	return has
}

// Drivers returns the drivers of devices that were allocated by With.
func (s *State) Drivers() []int { return s.drivers }

// With returns the state after the claims of one more pod are allocated, in their order, or why they cannot be.
func (s *State) With(claims []*Claim) (*State, *Refusal) {
	key := make([]byte, 0, 16)
	for _, c := range claims {
		key = identity.Number(key, int64(c.ID))
	}
	if a, ok := s.known[string(key)]; ok {
		return a.next, a.no
	}
	a := s.find(claims)
	if s.known == nil {
		s.known = map[string]answer{}
	}
	s.known[string(key)] = a
	return a.next, a.no
}

// find works out With. Shared claims that are allocated here need no search.
func (s *State) find(claims []*Claim) answer {
	var open []*Claim
	for _, c := range claims {
		if !c.Shared || !s.Holds(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return answer{next: s}
	}
	q := newSearch(s, open)
	no := q.run()
	s.effort.Steps += q.steps
	if no != nil {
		return answer{no: no}
	}
	return answer{next: q.allocated()}
}

// All does so for each of some states, and returns a refusal if any of them refuses. They are what one node may turn out to have.
func All(states []*State, claims []*Claim) ([]*State, *Refusal) {
	out := make([]*State, len(states))
	for i, s := range states {
		next, no := s.With(claims)
		if no != nil {
			return nil, no
		}
		out[i] = next
	}
	return out, nil
}
