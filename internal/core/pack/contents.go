package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/work"
)

// A ruledSack is the knapsack of one node under the rules of a branch (branch.go). A rule about contents adds its toll, or takes it off, if
// the node holds at least some number of items of a class. So the worth of n items of a class is not in proportion to n, but it does not
// depend on other classes. The search is that of a knapsack. The items still to come are bounded by prices of room,
//
//	Σ price·room + Σ over classes max over n (value(n) − n·price·need),
//
// and by the best rate of one dimension, whichever is lower.
type ruledSack struct {
	p      *part
	limit  []int     // per class: at most so many
	room   *knapsack // finds prices of room; also searches if no rule is about contents
	cell   int
	ruled  bool      // some rule is about contents; else the fields below are not used
	start  []int     // per class: index in value of the worth of 0 items
	value  []float64 // what n items of class k are worth: value[start[k]+n]
	order  []int     // classes by their worth per priced room
	above  []float64 // per position: what classes from there on may be worth above their room
	rate   []float64 // position*dims: the best worth per unit of room from there on
	rooms  []int64   // position*dims: room that is left before the class there
	counts []int     // per position: items
	must   int       // a class that has to be on the node because it justifies a large cell; −1: none
	best   float64
	upper  float64 // bound of the branches that were not looked at
	found  load    // contents worth best
	nodes  int     // search nodes that may still be looked at
	steps  work.Steps
}

// branchNodes is the most search nodes for one cell.
const branchNodes = 2000

func newRuledSack(p *part) *ruledSack {
	return &ruledSack{p: p, limit: p.limit, room: newKnapsack(p), start: make([]int, p.classes())}
}

// set prepares a search of cell c: it computes what each number of items is worth there, under the worths and tolls of b.
func (s *ruledSack) set(b *branching, c int) {
	s.cell, s.value = c, s.value[:0]
	s.room.value = b.worth
	price := s.p.cells[c].price
	s.ruled = false
	for i := range b.rules {
		s.ruled = s.ruled || b.rules[i].aboutContents() && price >= b.rules[i].Price && b.toll[i] > 0
	}
	if !s.ruled {
		return
	}
	for k, w := range b.worth {
		s.start[k] = len(s.value)
		for n := range s.limit[k] + 1 {
			s.value = append(s.value, w*float64(n))
		}
		for i := range b.rules {
			if x := &b.rules[i]; x.aboutContents() && x.Class == k && price >= x.Price {
				for n := x.Least; n <= s.limit[k]; n++ {
					s.value[s.start[k]+n] += float64(x.sign() * b.toll[i])
				}
			}
		}
	}
}

// worth returns what n items of class k are worth, tolls included.
func (s *ruledSack) worth(k, n int) float64 { return s.value[s.start[k]+n] }

// search returns a value that no contents exceed, and the best contents that it found worth more than floor, or nil. The contents are valid
// until the next search.
func (s *ruledSack) search(floor float64) (float64, *load) {
	cell := &s.p.cells[s.cell]
	if !s.ruled {
		return s.searchPlain(floor)
	}
	s.prepare()
	s.best, s.upper, s.nodes = floor, 0, branchNodes
	s.found.reset(s.cell)
	s.must = -1
	if !cell.large {
		s.descend(0, 0)
	} else {
		for k, least := range s.p.least {
			if s.must = k; least >= cell.over && slices.Contains(s.order, k) {
				s.descend(0, 0)
			}
		}
	}
	if len(s.found.classes) == 0 {
		return max(s.best, s.upper), nil
	}
	return max(s.best, s.upper), &s.found
}

// searchPlain is search if no rule is about contents. A plain knapsack is enough then.
func (s *ruledSack) searchPlain(floor float64) (float64, *load) {
	k, cell := s.room, &s.p.cells[s.cell]
	if !cell.large {
		upper := k.search(s.cell, k.value, s.limit, floor, -1, branchNodes)
		s.steps += work.Steps(k.steps.Take())
		if len(k.found.classes) == 0 {
			return upper, nil
		}
		return upper, &k.found
	}
	s.found.reset(s.cell)
	upper := floor
	for i, least := range s.p.least {
		if least < cell.over || s.limit[i] == 0 || !s.p.mayUse(i, s.cell) {
			continue
		}
		upper = max(upper, k.search(s.cell, k.value, s.limit, max(floor, s.found.worth(k.value)), i, branchNodes))
		if len(k.found.classes) > 0 {
			s.found = k.found.clone()
		}
	}
	s.steps += work.Steps(k.steps.Take())
	if len(s.found.classes) == 0 {
		return upper, nil
	}
	return upper, &s.found
}

// prepare orders the classes that fit by their worth per priced room, and computes what the bounds in descend need (above, rate).
func (s *ruledSack) prepare() {
	p, k := s.p, s.room
	k.limit = s.limit
	k.room = append(k.room[:0], p.cells[s.cell].room...)
	k.order = k.order[:0]
	for i := range p.count {
		if p.mayUse(i, s.cell) && fits(p.needs(i), k.room) {
			k.order = append(k.order, i)
		}
	}
	k.weigh(-1)
	s.steps += work.Steps(k.steps.Take())
	s.order = append(s.order[:0], k.order...)
	slices.SortFunc(s.order, func(x, y int) int {
		return cmp.Or(cmp.Compare(k.value[y]/(s.priced(y)+1), k.value[x]/(s.priced(x)+1)), cmp.Compare(x, y))
	})
	n := len(s.order)
	s.above = resize(s.above, n+1)
	s.above[n] = 0
	s.rate = resize(s.rate, (n+1)*p.dims)
	clear(s.rate[n*p.dims:])
	for i, j := range slices.Backward(s.order) {
		each, high := s.priced(j), 0.0
		for m := 1; m <= holds(p.needs(j), k.room, s.limit[j]); m++ {
			high = max(high, s.worth(j, m)-float64(each*float64(m)))
		}
		s.above[i] = s.above[i+1] + high
		for d, u := range p.needs(j) {
			rate := math.Inf(1)
			if u > 0 {
				rate = 0
				for m := 1; m <= holds(p.needs(j), k.room, s.limit[j]); m++ {
					rate = max(rate, s.worth(j, m)/float64(m)/float64(u))
				}
			}
			s.rate[i*p.dims+d] = max(s.rate[(i+1)*p.dims+d], rate)
		}
	}
	s.steps += work.Steps(len(s.value) + 20*n)
	s.rooms, s.counts = resize(s.rooms, (n+1)*p.dims), resize(s.counts, n)
	copy(s.rooms, k.room)
}

// priced returns what the room of an item of class k is worth.
func (s *ruledSack) priced(k int) float64 {
	var sum float64
	for d, u := range s.p.needs(k) {
		sum += float64(s.room.weight[d] * float64(u))
	}
	return sum
}

// descend tries all numbers of items of the class at position i, and all contents of later positions with each. v is what the items of
// earlier positions are worth.
func (s *ruledSack) descend(i int, v float64) {
	p := s.p
	if i == len(s.order) {
		if v > s.best {
			s.best = v
			s.found.reset(s.cell)
			for j, n := range s.counts {
				if n > 0 {
					s.found.add(s.order[j], n)
				}
			}
		}
		return
	}
	room, next := s.rooms[i*p.dims:(i+1)*p.dims], s.rooms[(i+1)*p.dims:(i+2)*p.dims]
	priced, rated := s.above[i], math.Inf(1)
	for d, r := range room {
		priced += float64(s.room.weight[d] * float64(r))
		if rate := s.rate[i*p.dims+d]; !math.IsInf(rate, 1) {
			rated = min(rated, rate*float64(r))
		}
	}
	bound := v + min(priced, rated)
	s.steps += work.Steps(8 + 4*p.dims)
	if bound = bound * (1 + 1e-12); bound <= s.best {
		return
	}
	if s.nodes <= 0 {
		s.upper = max(s.upper, bound)
		return
	}
	s.nodes--
	k := s.order[i]
	least := 0
	if k == s.must {
		least = 1
	}
	for n := holds(p.needs(k), room, s.limit[k]); n >= least; n-- {
		for d, u := range p.needs(k) {
			next[d] = room[d] - u*int64(n)
		}
		s.counts[i] = n
		s.descend(i+1, v+s.worth(k, n))
	}
}
