package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/work"
)

// A ruledSack is the knapsack of one node under the rules of a branch. A rule about contents adds its toll, or takes it off, from some
// number of items of one class on: then what a number of items is worth is no longer in proportion to it, but still independent of the
// other classes. The search is that of a knapsack; what is still to come is bounded by prices of room,
//
//	Σ price·room + Σ over classes max over n (value(n) − n·price·need).
type ruledSack struct {
	p      *part
	limit  []int     // per class: at most so many
	room   *knapsack // for prices of room
	cell   int
	ruled  bool      // some rule is about contents; else the rest is not used
	start  []int     // per class: where its numbers begin in
	value  []float64 // what so many items of it are worth
	order  []int
	above  []float64 // per position: what classes from there on may be worth above their room
	rate   []float64 // position*dims: the best worth per unit of room from there on
	rooms  []int64   // position*dims: what is left there
	counts []int     // per position
	must   int       // a class without which the cell may not be used; −1: none
	best   float64
	upper  float64 // of what was not looked at
	found  load
	nodes  int
	steps  work.Steps
}

// branchNodes is the search effort per cell.
const branchNodes = 2000

func newRuledSack(p *part) *ruledSack {
	return &ruledSack{p: p, limit: p.limit, room: newKnapsack(p), start: make([]int, p.classes())}
}

// set works out what numbers of items are worth on cell c.
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

func (s *ruledSack) worth(k, n int) float64 { return s.value[s.start[k]+n] }

// search returns a value that no contents exceed, and contents worth more than floor if it found some.
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

// searchPlain does so where no rule is about contents.
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

// prepare orders the classes that fit by what they are worth per priced room.
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

// priced is what the room of an item is worth.
func (s *ruledSack) priced(k int) float64 {
	var sum float64
	for d, u := range s.p.needs(k) {
		sum += float64(s.room.weight[d] * float64(u))
	}
	return sum
}

// descend decides on the class at position i; v is what the earlier ones are worth.
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
