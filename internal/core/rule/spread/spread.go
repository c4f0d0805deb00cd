// Package spread counts matching pods per topology domain and says where one more may go. It serves topology spread,
// pod affinity and pod anti-affinity with its inverse.
//
// A domain is a dense number: the value of a label, or for the host name the bin itself. Counts change only through Add and
// Remove, so a Group is always exact for what was placed. Host domains are counted per bin and have minimum zero,
// because a new node is always a new, empty domain.
package spread

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

// Host is the key of groups whose domains are the bins themselves.
const Host = -1

// A Kind is what a group asks of its owners.
type Kind uint8

// The kinds.
const (
	Spread   Kind = iota // counts may differ by at most MaxSkew
	Affinity             // only where matching pods are
	Anti                 // only where no matching pods are
)

// A Group is one constraint, shared by all pods that own it. Everything but the counts is constant.
type Group struct {
	Kind       Kind
	Key        int // topology key, or Host
	MaxSkew    int32
	MinDomains int32
	Required   bool // anti-affinity: owners also keep matching pods away
	// Universe is the domains of nodes that a spread counts; nil for other kinds and for Host. For an owner those
	// exist besides in which it could get a new node.
	Universe bits.Set
	// Nodes are the existing nodes whose pods are counted, nil for all. Templates and Filter say the same of new ones:
	// tolerated templates (nil for all), and requirement sets of which one must be met (nil for none).
	Nodes     bits.Set
	Templates bits.Set
	Filter    []int
	// Beside are the topology keys of the owners' other spreads: nodes without one of these labels are not counted.
	Beside []int
	// Others are the topology keys of the owners' other terms of affinity. A term is about pods wherever they are:
	// Elsewhere counts those that match and have no domain here, but one of another term.
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

// nowhere reports whether no pod that an affinity looks for is in a domain of any of the owners' terms.
func (g *Group) nowhere() bool { return g.Total == 0 && g.Elsewhere == 0 }

// Know records that there is a node in domain d.
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

func grown(counts []int32, d int) []int32 {
	for d >= len(counts) {
		counts = append(counts, 0)
	}
	return counts
}

// Least returns the smallest count over the domains that exist for an owner which could get a new node in those of reach. With fewer
// domains than MinDomains it is zero.
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

// Admits reports whether one more owner may go to domain d. self says that the owner matches the group's selector; reach
// are the domains in which it could get a new node.
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

// HostRoom returns how many more pods that own and match (self) the host-level group may join bin, at most limit.
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
