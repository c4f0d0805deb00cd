package solve

import (
	"cmp"

	"karpenter.sh/karpenter/internal/core/problem"
)

// A Preference is another order in which places are looked for. It decides where the usual order is a choice among equals, and may lead to
// a cheaper plan. The zero value is the usual order.
type Preference struct {
	Classes []int32 // rank by class, below priority
	Zones   []int32 // rank by zone, among zones that have equally many pods of a group
	Size    Size
}

// A Size is which machine a new node is filled for.
type Size int

const (
	Usual    Size = iota // the machine with the most worth of room for its price
	Cheapest             // the machine with the lowest price
	Roomiest             // the machine with the most worth of room, as far as pods are left for it
)

func (p *Preference) compareClasses(a, b problem.ClassID) int {
	if p.Classes == nil {
		return 0
	}
	return cmp.Compare(p.Classes[a], p.Classes[b])
}

// prefer makes a state look for places in another order.
func (s *state) prefer(p Preference) {
	s.preference, s.fleet.census.zoneRank, s.opener.size = p, p.Zones, p.Size
}

// Zones returns how many zones there are, 0 if no pod has to do with any.
func (at *Placement) Zones() int {
	if at.s.facts.zoneKey < 0 {
		return 0
	}
	return len(at.s.facts.p.Keys[at.s.facts.zoneKey].Values)
}

// Another returns a new placement of all pods, found in another order.
func (at *Placement) Another(p Preference) *Placement {
	s := newState(at.s.facts)
	s.opener.worth, s.ties.anyMachine = at.s.opener.worth, at.s.ties.anyMachine
	s.prefer(p)
	s, left := s.inOrder(s.place())
	return &Placement{s: s, left: left}
}
