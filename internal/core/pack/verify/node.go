package verify

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A prover bounds, in whole numbers, what one node can hold. With any prices of room
//
//	worth of the contents ≤ Σ price·room + Σ over classes (most items on a node) · max(0, worth − price·need)
//
// because contents that fit cost at most the room. Prices are hints (hint.go), multiplied by a power of two and rounded up to integers. If
// the sum is not low enough, the prover enumerates contents depth first, with the same kind of bound for the classes still to come.
//
// It does for Verify what the knapsack of package pack does for the search, without shared code. It needs no good contents, only a number
// that no contents exceed, and stops as soon as that is low enough. Any prices that are not negative give a true bound, good ones a low
// one.
//
// The power of two is as large as sums allow, so that rounding prices up costs less than a nano-dollar in all but the largest questions.
// "Scaled" below means multiplied by it.
type prover struct {
	dims  int
	needs []int64 // class*dims
	worth []int64 // per class
	limit []int   // per class
	foes  [][]int // per class; nil without conflicts

	steps [][]step // per class: worths that depend on the number of its items; nil without any

	order  []int
	price  []int64   // per dimension, scaled by 1<<shift
	above  []int64   // per position: what it and later ones are worth above price, scaled
	plus   []int64   // per position: what steps may add from there on, scaled
	rate   [][]int64 // per position and dimension: best scaled worth per unit of room among it and later ones
	shift  uint
	banned []int // per class: how many classes on the node it may not meet
	best   int64 // scaled: what the best contents are worth, at least the goal
	upper  int64 // scaled: bound of the branches that were not looked at
	nodes  int   // search nodes that may still be looked at
}

// A step is added to the worth of a node if it holds at least so many items of a class. Its worth may be negative.
type step struct {
	least int
	worth int64
}

// value returns what n items of class k are worth, steps included.
func (v *prover) value(k, n int) int64 {
	sum := v.worth[k] * int64(n)
	if v.steps != nil {
		for _, s := range v.steps[k] {
			if n >= s.least {
				sum += s.worth
			}
		}
	}
	return sum
}

// extra returns how much steps of class k may add at the most.
func (v *prover) extra(k int) (sum int64) {
	if v.steps != nil {
		for _, s := range v.steps[k] {
			sum += max(s.worth, 0)
		}
	}
	return sum
}

// reach returns how much steps of class k may add or take off at the most.
func (v *prover) reach(k int) (sum int64) {
	if v.steps != nil {
		for _, s := range v.steps[k] {
			sum += max(s.worth, -s.worth)
		}
	}
	return sum
}

func newProver(dims int, needs, worth []int64, limit []int, foes [][]int) *prover {
	return &prover{dims: dims, needs: needs, worth: worth, limit: limit, foes: foes,
		price: make([]int64, dims), banned: make([]int, len(limit))}
}

func (v *prover) need(k int) []int64 { return v.needs[k*v.dims : (k+1)*v.dims] }

// maxScaled keeps sums of scaled worths within 63 bits.
const maxScaled = 1 << 61

// upperBound returns a number that no contents of room made of the given classes are worth more than. It searches at most nodes search
// nodes, and stops when the number is at most enough. forced, if not negative, is a class of which one item must be there.
//
// The search begins with enough as the best worth, so that it cuts every branch that cannot be worth more. In most cells it needs no
// search: the bound of the empty node (root) is low enough.
func (v *prover) upperBound(room []int64, classes []int, enough int64, forced, nodes int) int64 {
	var base int64
	limit := v.limit
	if forced >= 0 {
		if !fits(v.need(forced), room) {
			return 0
		}
		room = slices.Clone(room)
		for d, u := range v.need(forced) {
			room[d] -= u
		}
		base = v.value(forced, 1)
		v.limit = slices.Clone(limit)
		v.limit[forced]--
		defer func(steps [][]step) { v.limit, v.steps = limit, steps }(v.steps)
		v.steps = v.stepsAfterOne(forced)
		v.mark(forced, 1)
		defer v.mark(forced, -1)
	}
	v.prepare(room, classes)
	goal := max(enough-base, 0)
	if root := v.unscale(v.root(room)); root <= goal || nodes == 0 {
		return base + root
	}
	v.rank(room)
	v.best, v.upper, v.nodes = goal<<v.shift, 0, nodes
	rooms := make([]int64, (len(v.order)+1)*v.dims)
	copy(rooms, room)
	v.descend(0, 0, rooms)
	return base + v.unscale(max(v.best, v.upper))
}

// stepsAfterOne returns the steps for further items when one item of class k is on the node. A step at the first item of k is left out,
// because upperBound counts it already (base).
func (v *prover) stepsAfterOne(k int) [][]step {
	if v.steps == nil {
		return nil
	}
	out := slices.Clone(v.steps)
	out[k] = nil
	for _, s := range v.steps[k] {
		if s.least > 1 {
			out[k] = append(out[k], step{s.least - 1, s.worth})
		}
	}
	return out
}

// unscale returns a scaled number in nano-dollars, rounded up.
func (v *prover) unscale(x int64) int64 { return x>>v.shift + min(1, x&(1<<v.shift-1)) }

// prepare sets v.order to the classes that fit and are worth something, and finds the scale and the scaled prices of room.
func (v *prover) prepare(room []int64, classes []int) {
	v.order = v.order[:0]
	var limit []int
	for _, k := range classes {
		if n := holds(v.need(k), room, v.limit[k]); n > 0 && (v.worth[k] > 0 || v.extra(k) > 0) {
			v.order, limit = append(v.order, k), append(limit, n)
		}
	}
	prices := v.pricesOf(room, v.order, limit)
	top := 0.0 // about what the contents are worth
	for d, r := range room {
		top += float64(prices[d] * float64(r))
	}
	for i, k := range v.order {
		top += max(float64(v.worth[k])-v.floatCost(prices, k), 0)*float64(limit[i]) + float64(v.reach(k))
	}
	v.shift = 0
	for v.shift < 40 && top*8*float64(int64(1)<<v.shift) < maxScaled {
		v.shift++
	}
	for d, r := range room {
		v.price[d] = 0
		if r > 0 {
			v.price[d] = int64(math.Ceil(min(prices[d]*float64(int64(1)<<v.shift), maxScaled)))
		}
	}
}

// floatCost returns the price of the room of an item of class k, at prices that are not scaled.
func (v *prover) floatCost(prices []float64, k int) float64 {
	var sum float64
	for d, u := range v.need(k) {
		sum += float64(prices[d] * float64(u))
	}
	return sum
}

// root returns the bound of the empty node, scaled: the sum in the comment of prover.
func (v *prover) root(room []int64) int64 {
	var sum int64
	for d, r := range room {
		sum = plusTimes(sum, v.price[d], r)
	}
	for _, k := range v.order {
		sum = addTimes(sum, v.aboveRoom(k, holds(v.need(k), room, v.limit[k])), 1)
	}
	return sum
}

// aboveRoom returns how much more than the price of their room up to n items of class k may be worth, scaled.
func (v *prover) aboveRoom(k, n int) int64 {
	cost := v.costOf(k)
	if v.steps == nil || len(v.steps[k]) == 0 {
		return addTimes(0, max(0, v.worth[k]<<v.shift-cost), n)
	}
	var best int64
	for i := 1; i <= n; i++ {
		best = max(best, v.value(k, i)<<v.shift-addTimes(0, cost, i))
	}
	return best
}

// rank orders the classes by their worth per priced room, and computes what bound needs (above, plus, rate).
func (v *prover) rank(room []int64) {
	cost := make(map[int]int64, len(v.order))
	for _, k := range v.order {
		cost[k] = v.costOf(k)
	}
	slices.SortFunc(v.order, func(a, b int) int {
		ra := float64(v.worth[a]) / float64(cost[a]+1)
		rb := float64(v.worth[b]) / float64(cost[b]+1)
		return cmp.Or(cmp.Compare(rb, ra), cmp.Compare(cost[b], cost[a]), cmp.Compare(a, b))
	})
	n := len(v.order)
	v.above, v.plus = make([]int64, n+1), make([]int64, n+1)
	v.rate = make([][]int64, n+1)
	v.rate[n] = make([]int64, v.dims)
	for i := n - 1; i >= 0; i-- {
		k := v.order[i]
		count := holds(v.need(k), room, v.limit[k])
		v.above[i] = addTimes(v.above[i+1], v.aboveRoom(k, count), 1)
		v.plus[i] = v.plus[i+1] + v.extra(k)<<v.shift
		v.rate[i] = slices.Clone(v.rate[i+1])
		for d, u := range v.need(k) {
			switch {
			case u == 0:
				v.rate[i][d] = math.MaxInt64
			case v.rate[i][d] < math.MaxInt64:
				v.rate[i][d] = max(v.rate[i][d], (v.worth[k]<<v.shift+u-1)/u)
			}
		}
	}
}

// plusTimes returns sum + x*y, at most most.
func plusTimes(sum, x, y int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	if hi != 0 || lo >= uint64(most-min(sum, most)) {
		return most
	}
	return sum + int64(lo)
}

// costOf returns the price of the room of an item of class k, scaled.
func (v *prover) costOf(k int) int64 {
	var sum int64
	for d, u := range v.need(k) {
		sum = plusTimes(sum, v.price[d], u)
	}
	return sum
}

// bound returns a number, scaled, that items of the classes from position i on cannot exceed in room. It is the lower one of two: by prices
// of room, and by the best rate in one dimension.
func (v *prover) bound(i int, room []int64) int64 {
	sum := v.above[i]
	low := int64(math.MaxInt64)
	for d, r := range room {
		sum = plusTimes(sum, v.price[d], r)
		if rate := v.rate[i][d]; rate < math.MaxInt64 {
			if hi, lo := bits.Mul64(uint64(rate), uint64(r)); hi == 0 && lo < math.MaxInt64 {
				low = min(low, int64(lo))
			}
		}
	}
	return min(sum, addTimes(low, v.plus[i], 1))
}

// mark bans the classes that may not meet class k (n is 1), or takes this ban back (n is −1).
func (v *prover) mark(k, n int) {
	if v.foes == nil {
		return
	}
	for _, f := range v.foes[k] {
		v.banned[f] += n
	}
}

// descend tries all numbers of items of the class at position i, from as many as fit down to none, and all contents of later positions with
// each. It skips only branches whose bound is not above the best. worth is what earlier positions hold, scaled; rooms begins with the room
// that is left.
func (v *prover) descend(i int, worth int64, rooms []int64) {
	room := rooms[:v.dims]
	v.best = max(v.best, worth)
	for i < len(v.order) && (v.banned[v.order[i]] > 0 || !fits(v.need(v.order[i]), room)) {
		i++
	}
	if i == len(v.order) {
		return
	}
	bound := worth + v.bound(i, room)
	if bound <= v.best {
		return
	}
	if v.nodes <= 0 {
		v.upper = max(v.upper, bound)
		return
	}
	v.nodes--
	k := v.order[i]
	need, next := v.need(k), rooms[v.dims:2*v.dims]
	most := holds(need, room, v.limit[k])
	for n := most; n >= 0; n-- {
		for d, u := range need {
			next[d] = room[d] - u*int64(n)
		}
		switch { // its foes are banned while at least one of it is there
		case n == most && n > 0:
			v.mark(k, 1)
		case n == 0 && most > 0:
			v.mark(k, -1)
		}
		v.descend(i+1, worth+v.value(k, n)<<v.shift, rooms[v.dims:])
	}
}

func fits(need, room []int64) bool {
	for d, n := range need {
		if n > room[d] {
			return false
		}
	}
	return true
}

// holds returns how many items with this need fit into room, at most most.
func holds(need, room []int64, most int) int {
	for d, n := range need {
		if n > 0 {
			most = int(min(int64(most), room[d]/n))
		}
	}
	return max(most, 0)
}
