package pack

import "karpenter.sh/karpenter/internal/core/work"

// An enumeration finds the cheapest nodes for a few items by dynamic programming over all sub-multisets of them. It supports no stock, no
// limits and no conflicts.
//
// A multiset of items is a number in a mixed radix: digit i counts items of class i. For each multiset the cheapest cell that holds it is
// found, and then price(S) = min over T ⊆ S of cell(T) + price(S∖T). T always holds an item of the first class in S: some node has to hold
// it, and so every way of dividing S is tried once and not once for each order. There are Π (n+1)(n+2)/2 pairs (S, T).
//
// The result is optimal. The LP's bound is reported all the same, because it can be checked without trusting this search.
type enumeration struct {
	p       *part
	classes []int
	counts  []int
	radix   []int   // weight of each class in the number of a multiset
	single  []int   // per multiset: cheapest cell that holds it, −1 if none
	price   []int64 // per multiset: of the cheapest nodes for it
	first   []int   // per multiset: contents of one of these nodes
	use     []int64 // scratch: per dimension, what a multiset needs
	digits  []int   // scratch: items per class of the multiset in hand
	part    []int   // scratch: items per class of a part of it
	steps   work.Steps
}

// mostPairs is the most pairs of multisets for which a part is enumerated.
const mostPairs = 300_000

// tooDear is the price of a multiset that no nodes can hold.
const tooDear = int64(1) << 60

// countPairs returns how many pairs of a multiset and a sub-multiset there are, at most most+1.
func countPairs(counts []int, most int) int {
	pairs := 1
	for _, n := range counts {
		if n > most {
			return most + 1
		}
		if pairs *= (n + 1) * (n + 2) / 2; pairs > most {
			return most + 1
		}
	}
	return pairs
}

// enumerable reports whether the constraints of the part are those that enumeration knows.
func (p *part) enumerable() bool {
	if p.foes != nil || len(p.limits) > 0 {
		return false
	}
	for i := range p.cells {
		if p.cells[i].stock > 0 {
			return false
		}
	}
	return true
}

func newEnumeration(p *part) *enumeration {
	return &enumeration{p: p, use: make([]int64, p.dims)}
}

// solve returns the cheapest nodes for counts[i] items of classes[i]. ok is false when they cannot all be placed.
func (e *enumeration) solve(classes, counts []int) (ns []nodes, price int64, ok bool) {
	e.classes, e.counts = classes, counts
	e.radix = e.radix[:0]
	size := 1
	for _, n := range counts {
		e.radix = append(e.radix, size)
		size *= n + 1
	}
	e.single, e.price, e.first = resize(e.single, size), resize(e.price, size), resize(e.first, size)
	e.digits, e.part = resize(e.digits, len(counts)), resize(e.part, len(counts))
	e.steps += work.Steps(4 * countPairs(counts, mostPairs))
	for set := 1; set < size; set++ {
		e.single[set] = e.cheapest(set)
	}
	e.price[0] = 0
	for set := 1; set < size; set++ {
		e.best(set)
	}
	if e.price[size-1] >= tooDear {
		return nil, 0, false
	}
	return e.nodes(size - 1), e.price[size-1], true
}

// resize returns a slice of length n, in the memory of s if that is large enough. Its contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// split writes the digits of a multiset, which are the numbers of items per class.
func (e *enumeration) split(set int, into []int) {
	for i := len(e.radix) - 1; i >= 0; i-- {
		into[i] = set / e.radix[i]
		set %= e.radix[i]
	}
}

// cheapest returns the cheapest cell that holds a multiset on one node, −1 if none does. Cells are sorted by price, so it is the first one.
func (e *enumeration) cheapest(set int) int {
	p := e.p
	e.split(set, e.digits)
	clear(e.use)
	least := 0
	for i, n := range e.digits {
		k := e.classes[i]
		if n > p.limit[k] {
			return -1
		}
		if n > 0 {
			least = max(least, p.least[k])
		}
		for d, u := range p.needs(k) {
			e.use[d] = addTimes(e.use[d], u, n)
		}
	}
	for c := range p.cells {
		e.steps += 4
		if cell := &p.cells[c]; fits(e.use, cell.room) && (!cell.large || cell.over <= least) && e.open(cell) {
			return c
		}
	}
	return -1
}

// open reports whether a cell is open to every class in e.digits.
func (e *enumeration) open(c *cell) bool {
	for i, n := range e.digits {
		if n > 0 && !c.open.Has(e.p.group[e.classes[i]]) {
			return false
		}
	}
	return true
}

// best sets price and first of a multiset: the cheapest way to hold some of it, with an item of its first class, on one node, and the rest
// on the cheapest nodes for the rest.
func (e *enumeration) best(set int) {
	e.split(set, e.digits)
	lead := 0
	for e.digits[lead] == 0 {
		lead++
	}
	low, first := tooDear, 0
	clear(e.part)
	sub := 0
	for {
		// Count e.part up to e.digits, the lead class fastest.
		i := lead
		for i < len(e.part) && e.part[i] == e.digits[i] {
			sub -= e.part[i] * e.radix[i]
			e.part[i] = 0
			i++
		}
		if i == len(e.part) {
			break
		}
		e.part[i]++
		sub += e.radix[i]
		if e.part[lead] == 0 || e.single[sub] < 0 {
			continue
		}
		if price := e.p.cells[e.single[sub]].price + e.price[set-sub]; price < low {
			low, first = price, sub
		}
	}
	e.price[set], e.first[set] = low, first
}

// nodes returns the cheapest nodes for a multiset, after solve.
func (e *enumeration) nodes(set int) []nodes {
	var out []nodes
	for set > 0 {
		sub := e.first[set]
		e.split(sub, e.digits)
		l := load{cell: e.single[sub]}
		for i, n := range e.digits {
			if n > 0 {
				l.add(e.classes[i], n)
			}
		}
		out = append(out, nodes{l, 1})
		set -= sub
	}
	return out
}

// enumerate solves a small part to the optimum and makes it the best fleet. It returns false if the part is not small, has constraints that
// enumeration does not support, or has items that no nodes can hold.
func (r *run) enumerate() bool {
	if !r.b.does(enumerating) || !r.p.enumerable() || countPairs(r.p.count, mostPairs) > mostPairs {
		return false
	}
	classes := make([]int, r.p.classes())
	for k := range classes {
		classes[k] = k
	}
	e := newEnumeration(r.p)
	ns, price, ok := e.solve(classes, r.p.count)
	r.b.charge(e.steps.Take())
	if ok {
		r.best = &fleet{nodes: ns, left: make([]int, r.p.classes()), price: price}
		r.optimal = true
	}
	return ok
}
