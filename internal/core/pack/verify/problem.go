package verify

import "karpenter.sh/karpenter/internal/core/bits"

// A Problem asks for a cheap fleet.
type Problem struct {
	Classes   []Class
	Cells     []Cell
	Conflicts [][2]int // pairs of classes that may not share a node
	Limits    []Limit
}

// A Class is a number of equal items.
type Class struct {
	Need    []int64 // per dimension, not negative
	Count   int
	PerNode int      // one node holds at most so many; 0 means any number
	Cells   bits.Set // where items may go; nil means everywhere
}

// A Cell is a kind of machine that can be had at a price.
type Cell struct {
	Room  []int64 // per dimension
	Price int64   // of one node; 0 for room that is there already
	Own   int64   // the part of the price that is on no bill, such as the cost of agents on each node
	Stock int     // at most so many nodes; 0 means any number
	Over  int     // how many steps too large it is: used only for classes that fit no better one, or for a gain
}

// A Limit bounds a sum over all nodes of the fleet.
type Limit struct {
	Use []int64 // by cell, not negative
	Max int64
	// Parts is set if bounds must allow parts of nodes under this limit: then a cell of which a single node exceeds Max is not ruled out.
	// In a fleet, whole nodes count in any case.
	Parts bool
}

// An Item is a number of items of one class on a node.
type Item struct{ Class, Count int }

// A Pattern is a number of equal nodes with equal contents.
type Pattern struct {
	Cell, Nodes int
	Items       []Item // by class, counts positive
}

// Price is what a fleet costs.
func Price(p *Problem, fleet []Pattern) int64 {
	var sum int64
	for _, pat := range fleet {
		sum += p.Cells[pat.Cell].Price * int64(pat.Nodes)
	}
	return sum
}

// A Certificate proves a bound: every item gets a worth, and no node may hold items worth more than it costs. Then all fleets cost at least
// the worth of all items.
//
// A cell that uses limits costs its price and its use at LimitWorth; the worth of the whole limits is taken off the bound. A cell in short
// stock may hold more than it costs; this surplus, times the stock, is taken off too.
type Certificate struct {
	Bound      int64
	Worth      []int64 // per class, of one item
	LimitWorth []int64 // per limit, of two to the power of LimitShift units: one is often worth less than a nano-dollar
	Over       int     // cells up to so many steps too large are open to every class in the fleets that are bounded
	Trees      []Tree  // prove the bounds of small parts of the problem, whose classes then need no Worth
}
