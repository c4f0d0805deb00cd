package pack

import (
	"errors"
	"fmt"
	"math/bits"

	"karpenter.sh/karpenter/internal/core/work"
)

// A Set is a set of small numbers: cells of a problem.
type Set []uint64

// NewSet returns an empty set with room for the numbers below n.
func NewSet(n int) Set { return make(Set, (n+63)/64) }

// Add puts i into the set, which must have room for it.
func (s Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Has says whether i is in the set.
func (s Set) Has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

func (s Set) includes(t Set) bool {
	for i, w := range t {
		if i >= len(s) && w != 0 || i < len(s) && w&^s[i] != 0 {
			return false
		}
	}
	return true
}

func (s Set) meets(t Set) bool {
	for i, w := range t {
		if w&s[i] != 0 {
			return true
		}
	}
	return false
}

func (s Set) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

func (s Set) each(f func(int)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			f(i*64 + bits.TrailingZeros64(w))
		}
	}
}

// A Problem asks for a cheap fleet. Solve does not modify it.
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
	PerNode int // one node holds at most so many; 0 means any number
	Cells   Set // where items may go; nil means everywhere
}

// A Cell is a kind of machine that can be had at a price.
type Cell struct {
	Room  []int64 // per dimension
	Price int64   // of one node; 0 for room that is there already
	Own   int64   // the part of the price that nobody is billed
	Stock int     // at most so many nodes; 0 means any number
	Over  int     // how many steps too large it is: used only for classes that fit no better one, or for a gain
}

// A Limit bounds a sum over all nodes of the fleet.
type Limit struct {
	Use []int64 // by cell, not negative
	Max int64
}

// Options say how long and how hard to look.
type Options struct {
	Fast   bool        // greedy fleets and the volume bound only
	Enough int64       // the search ends when a fleet is within so many millionths of the bound
	Meter  *work.Meter // counts the work, and may cut it, but not before there is a fleet and a bound; nil for one of its own
	Least  work.Units  // so much work is done after the first fleet whatever is at stake; 0 means that stakes are not looked at
	Most   work.Units  // at most so much work after the first fleet; 0 means any amount
	Gain   int64       // cells that are too large are for all only if each step makes the bill lower by more than so many thousandths
	Start  []Pattern   // a known fleet; when it holds everything the result is never dearer
	Memory *Memory     // of an earlier answer; nil for none
	Known  Answers     // to the very same questions
	Price  int64       // of a known fleet, for Bound
}

// An Item is a number of items of one class on a node.
type Item struct{ Class, Count int }

// A Pattern is a number of equal nodes with equal contents.
type Pattern struct {
	Cell, Nodes int
	Items       []Item // by class, counts positive
}

// A Result is a fleet and what is known about cheaper ones.
type Result struct {
	Fleet       []Pattern
	Left        []int // per class, items without a place
	Price       int64
	VolumeBound int64 // no fleet that holds all items costs less, by volume alone
	ConfigBound int64 // the same by the configuration LP; 0 when it was not looked for
	Certificate Certificate
	Work        work.Units
	Partial     bool    // the budget ended the search
	Memory      *Memory // for the next question; nil where it would not help
	Known       Answers // those of the options, and this one if it took a search
}

// Bound is the best proven bound.
func (r *Result) Bound() int64 { return max(r.VolumeBound, r.ConfigBound) }

// Gap is how much dearer the fleet is than the bound, as a fraction.
func (r *Result) Gap() float64 {
	if r.Bound() <= 0 {
		return 0
	}
	return float64(r.Price)/float64(r.Bound()) - 1
}

// Check says in plain code why a fleet, with the items left out, is no answer to the problem, or returns nil.
func Check(p *Problem, fleet []Pattern, left []int) error {
	placed := make([]int, len(p.Classes))
	nodes := make([]int, len(p.Cells))
	for i, pat := range fleet {
		if err := checkPattern(p, pat); err != nil {
			return fmt.Errorf("pattern %d: %w", i, err)
		}
		nodes[pat.Cell] += pat.Nodes
		for _, it := range pat.Items {
			placed[it.Class] += it.Count * pat.Nodes
		}
	}
	for k, c := range p.Classes {
		if placed[k]+left[k] != c.Count || left[k] < 0 {
			return fmt.Errorf("class %d: %d placed and %d left of %d", k, placed[k], left[k], c.Count)
		}
	}
	for c, n := range nodes {
		if s := p.Cells[c].Stock; s > 0 && n > s {
			return fmt.Errorf("cell %d: %d nodes of %d in stock", c, n, s)
		}
	}
	for l, lim := range p.Limits {
		var sum int64
		for c, n := range nodes {
			sum = addTimes(sum, lim.Use[c], n)
		}
		if sum > lim.Max {
			return fmt.Errorf("limit %d: %d of %d", l, sum, lim.Max)
		}
	}
	return nil
}

func checkPattern(p *Problem, pat Pattern) error {
	if pat.Cell < 0 || pat.Cell >= len(p.Cells) || pat.Nodes < 1 {
		return errors.New("no such cell or no nodes")
	}
	cell := p.Cells[pat.Cell]
	use := make([]int64, len(cell.Room))
	on := make(map[int]int)
	for _, it := range pat.Items {
		c := p.Classes[it.Class]
		on[it.Class] += it.Count
		if it.Count < 1 {
			return fmt.Errorf("class %d: count %d", it.Class, it.Count)
		}
		if c.Cells != nil && !c.Cells.Has(pat.Cell) {
			return fmt.Errorf("class %d may not use cell %d", it.Class, pat.Cell)
		}
		if c.PerNode > 0 && on[it.Class] > c.PerNode {
			return fmt.Errorf("class %d: %d on one node", it.Class, on[it.Class])
		}
		for d, n := range c.Need {
			use[d] = addTimes(use[d], n, it.Count)
		}
	}
	for d := range use {
		if use[d] > cell.Room[d] {
			return fmt.Errorf("dimension %d: %d needed, cell %d has %d", d, use[d], pat.Cell, cell.Room[d])
		}
	}
	for _, x := range p.Conflicts {
		if x[0] != x[1] && on[x[0]] > 0 && on[x[1]] > 0 {
			return fmt.Errorf("classes %d and %d share a node", x[0], x[1])
		}
	}
	return nil
}

// most is where sums stop: more than any room.
const most = int64(1) << 62

// addTimes returns sum + x*n, at most most.
func addTimes(sum, x int64, n int) int64 {
	return plusTimes(sum, x, int64(n))
}

// Price is what a fleet costs.
func Price(p *Problem, fleet []Pattern) int64 {
	var sum int64
	for _, pat := range fleet {
		sum += p.Cells[pat.Cell].Price * int64(pat.Nodes)
	}
	return sum
}

// A Certificate proves a bound: every item gets a worth, and no node may hold items worth more than it costs.
//
// A cell that uses limits costs its price and its use at LimitWorth; what the limits allow in all is taken off the bound. A cell
// in short stock may hold more than it costs; that surplus, as often as the cell is in stock, is taken off too.
type Certificate struct {
	Bound      int64
	Worth      []int64 // per class, of one item
	LimitWorth []int64 // per limit, of one unit
	Over       int     // cells up to so many steps too large were open to every class
}
