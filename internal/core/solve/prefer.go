package solve

import (
	"cmp"

	"karpenter.sh/karpenter/internal/core/problem"
)

// A Preference is an order in which places are looked for, where the usual one is a choice among equals. The zero value
// is the usual order.
type Preference struct {
	Classes []int32 // rank by class, below priority
	Zones   []int32 // rank by zone, among zones that have equally many pods of a group
	Size    Size
}

// A Size is which machine a new node is filled for.
type Size int

// The usual one is the machine that holds the most worth for its price.
const (
	Usual Size = iota
	Cheapest
	Roomiest // of what the pods that are left need
)

func (p *Preference) compare(a, b problem.ClassID) int {
	if p.Classes == nil {
		return 0
	}
	return cmp.Compare(p.Classes[a], p.Classes[b])
}

// prefer makes a state look for places in another order.
func (s *state) prefer(p Preference) {
	s.prefers, s.fleet.census.zoneRank, s.opener.size = p, p.Zones, p.Size
}

// Zones returns how many zones there are, 0 if no pod has to do with any.
func (at *Placement) Zones() int {
	if at.s.facts.zones < 0 {
		return 0
	}
	return len(at.s.facts.p.Keys[at.s.facts.zones].Values)
}

// Another places all pods once more, in another order.
func (at *Placement) Another(p Preference) *Placement {
	s := newState(at.s.facts)
	s.opener.worth, s.ties.anyMachine = at.s.opener.worth, at.s.ties.anyMachine
	s.prefer(p)
	s, left := s.inOrder(s.place())
	return &Placement{s: s, left: left}
}
