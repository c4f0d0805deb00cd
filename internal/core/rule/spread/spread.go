// Package spread counts matching pods per topology domain and decides where one more may go. It serves topology spread,
// pod affinity, and pod anti-affinity in both directions: owners avoid matching pods, and matching pods avoid owners. An
// owner is a pod that carries the constraint; a matching pod is selected by its selector.
//
// A domain is a dense number: the value of a label, or for the host name the bin itself. Counts change only through Add and
// Remove, so a Group is always exact for what was placed. Host domains are counted per bin and have minimum zero,
// because a new node is always a new, empty domain.
package spread

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// Host is the key of groups by host name: each bin is a domain.
const Host = -1

// A Kind is what a group asks of its owners.
type Kind uint8

// The kinds.
const (
	Spread   Kind = iota // counts may differ by at most MaxSkew
	Affinity             // only where matching pods are
	Anti                 // only where no matching pods are
)

// A Group is one constraint, shared by all pods that own it. Everything but Universe and the counts is constant.
type Group struct {
	Kind       Kind
	Key        int // topology key, or Host
	MaxSkew    int32
	MinDomains int32
	Required   bool // anti-affinity: owners also keep matching pods away
	// Universe is the domains of nodes that a spread counts; nil for other kinds and for Host. An owner also counts
	// the domains in which it could get a new node (reach).
	Universe bits.Set
	// Nodes are the existing nodes on which pods are counted, nil for all. Templates and Filter say the same of new ones:
	// tolerated templates (nil for all), and requirement sets of which one must be met (nil for none).
	Nodes     bits.Set
	Templates bits.Set
	Filter    []int
	// Beside are the topology keys of the owners' other spreads: nodes without one of these labels are not counted.
	Beside []int
	// Others are the topology keys of the owners' other terms of affinity. Elsewhere counts matching pods that have no
	// domain of Key, but one of Others.
	Others    []int
	Elsewhere int

	Name string // for explanations and Check: a canonical text of the constraint

	Count  []int32 // matching pods by domain
	Owners []int32 // owning pods by domain: of anti-affinity, and of a spread where daemons are counted
	Total  int     // sum of Count
}

// Clone returns a copy whose counts and domains can change on their own.
func (g *Group) Clone() Group {
	c := *g
	c.Universe, c.Count, c.Owners = slices.Clone(g.Universe), slices.Clone(g.Count), slices.Clone(g.Owners)
	return c
}

// at returns the count of domain d, 0 for a domain that has none or for no domain.
func at(counts []int32, d int) int32 {
	if d < 0 || d >= len(counts) {
		return 0
	}
	return counts[d]
}

// At returns how many matching pods are in domain d, OwnersAt how many owners.
func (g *Group) At(d int) int32       { return at(g.Count, d) }
func (g *Group) OwnersAt(d int) int32 { return at(g.Owners, d) }

// Add records n matching pods in domain d; n may be negative.
func (g *Group) Add(d int, n int32) {
	g.Count = grown(g.Count, d)
	g.Count[d] += n
	g.Total += int(n)
}

// nowhere reports whether no matching pod is in a domain of any of the owners' affinity terms.
func (g *Group) nowhere() bool { return g.Total == 0 && g.Elsewhere == 0 }

// Know records that there is a node in domain d. It matters to spreads over a label only.
func (g *Group) Know(d int) {
	if g.Kind == Spread && g.Key != Host {
		g.Universe = g.Universe.Grow(d)
		g.Universe.Add(d)
	}
}

// AddOwners records n owners in domain d; n may be negative.
func (g *Group) AddOwners(d int, n int32) {
	g.Owners = grown(g.Owners, d)
	g.Owners[d] += n
}

// grown returns counts with zeros appended, so that domain d has one.
func grown(counts []int32, d int) []int32 {
	for d >= len(counts) {
		counts = append(counts, 0)
	}
	return counts
}

// Least returns the smallest count over the domains of Universe and reach; −1 if there are none. With fewer domains than MinDomains it is
// zero.
func (g *Group) Least(reach bits.Set) int32 {
	least, n := int32(-1), int32(0)
	for w := range max(len(g.Universe), len(reach)) {
		word := uint64(0)
		if w < len(g.Universe) {
			word = g.Universe[w]
		}
		if w < len(reach) {
			word |= reach[w]
		}
		for d := w << 6; word != 0; d, word = d+1, word>>1 {
			if word&1 == 0 {
				continue
			}
			n++
			if c := at(g.Count, d); least < 0 || c < least {
				least = c
			}
		}
	}
	if n < g.MinDomains {
		return 0
	}
	return least
}

// Admits reports whether one more owner may go to domain d; d is below 0 for no domain. self reports that the group counts the owner;
// reach is the domains in which the owner could get a new node.
func (g *Group) Admits(d int, self bool, reach bits.Set) bool {
	switch g.Kind {
	case Spread:
		if d < 0 && g.Key != Host {
			return false
		}
		one := int32(0)
		if self {
			one = 1
		}
		if g.Key == Host {
			return g.At(d)+one <= g.MaxSkew
		}
		return (g.Universe.Has(d) || reach.Has(d)) && g.At(d)+one-g.Least(reach) <= g.MaxSkew
	case Affinity: // the first of a group may choose freely, as long as no pod that it looks for is anywhere at all
		return g.At(d) > 0 || self && d >= 0 && g.nowhere()
	default:
		return g.At(d) == 0
	}
}

// Repels reports whether owners of an anti-affinity keep matching pods out of domain d.
func (g *Group) Repels(d int) bool { return g.Required && g.OwnersAt(d) > 0 }

// HostRoom returns how many more owners of a host-level group may join bin, at most limit. self reports that the group counts them.
func (g *Group) HostRoom(bin int, self bool, limit int) int {
	switch g.Kind {
	case Spread:
		if !self {
			if g.At(bin) <= g.MaxSkew {
				return limit
			}
			return 0
		}
		return min(limit, max(0, int(g.MaxSkew-g.At(bin))))
	case Affinity:
		if g.At(bin) > 0 || self && g.nowhere() {
			return limit
		}
		return 0
	default:
		if g.At(bin) > 0 {
			return 0
		}
		if self {
			return min(limit, 1)
		}
		return limit
	}
}
