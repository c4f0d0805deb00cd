// Package devices reports whether what claims ask for can be allocated from the devices of a node, in the order in which kube-scheduler
// tries them: the first allocation that it would find is reckoned with, so that the next pod finds here what it will
// find there.
//
// Everything is numbers: which devices a selector takes was worked out before. A State never changes; what it was asked once it
// remembers, because nodes of one kind are asked the same over and over.
package devices

import (
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// A Device is offered by a driver on a node.
type Device struct {
	Kind     int     // claims cannot tell devices of one kind apart
	Driver   int     // who offers it
	Capacity []int64 // of a device that may be allocated several times: what its shares may take together, by dimension
	Multiple bool    // it may be allocated several times
	Draws    []Draw
	Mixed    bool // it is not known whether kube-scheduler allocates it
}

// A Draw is how much of a counter a device takes while it is allocated: partitions of one piece of hardware have them in common.
type Draw struct {
	Counter int
	Amount  int64
}

// Most is the largest amount of anything: three of it can be added up.
const Most = math.MaxInt64 / 4

// An Inventory is the devices of a node, in the order in which they are tried.
type Inventory struct {
	Devices  []Device
	Counters []int64 // what there is of each
	Unsure   bool    // there are more of which nothing is known now: no claim gets all
}

// A Claim is devices that are allocated together.
type Claim struct {
	ID          int // of the problem; equal for claims that ask the same, unless they are Shared
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
	Admin bool  // also such as are allocated already; nothing else goes without them for it
	Fits  []Fit // by kind
}

// A Fit is what an option makes of a kind of device.
type Fit struct {
	Selected  bool
	Tolerated bool    // its taints are, or it has none
	Within    bool    // a single share is within its capacity and its rules
	Takes     []int64 // of the capacity of a device that may be allocated several times
	Bad       *Refusal
}

// A Constraint is about an attribute of the devices of some requests.
type Constraint struct {
	Distinct bool     // all differ in it; else all have it in common
	Values   []int32  // by kind, −1 without it
	Bad      []string // by kind: the attribute, where its value is not known before the device is there; nil where all are known
	On       [][]bool // by request and option: it is about them
}

// A Why says what is in the way of an allocation.
type Why uint8

const (
	TooFew  Why = iota // devices that fit are not there or not free
	Unknown            // what is asked about them is known only once they are there
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
	counters  []int64   // what is left
	held      []int     // shared claims that are allocated here, sorted
	drivers   []int     // of devices that were allocated by With, sorted
	known     map[string]answer
}

type answer struct {
	next *State
	no   *Refusal
}

// An Effort is what searches have cost, in steps.
type Effort struct{ Steps int }

// New is an inventory of which nothing is allocated. What is asked about it is added to an effort.
func New(inv *Inventory, effort *Effort) *State {
	return &State{inventory: inv, effort: effort, used: make([]bool, len(inv.Devices)),
		shares: make([][]int64, len(inv.Devices)), counters: slices.Clone(inv.Counters)}
}

// Use marks a device as allocated, or as shared by a pod that takes so much of it. It may only be called before any pody is asked.
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

func (s *State) draw(d *Device) {
	for _, x := range d.Draws {
		s.counters[x.Counter] = max(s.counters[x.Counter]-x.Amount, -Most)
	}
}

// Hold marks a shared claim as allocated here: pods that use it need nothing more. It may only be called before anybody is asked.
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

// Drivers are those whose devices were allocated on top of what the state began with.
func (s *State) Drivers() []int { return s.drivers }

// With is the state once the claims of one more pod are allocated, in their order, or why they cannot be.
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
	return answer{next: q.state()}
}

// All returns what each of some states is once the claims of one more pod are allocated; all of them must agree to it.
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
