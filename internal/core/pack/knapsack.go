package pack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/work"
)

// A knapsack looks for the most valuable contents of one node by depth-first search. Classes are tried in the order of their worth per
// weighted room, many items first. A branch is cut if a bound shows that it cannot beat the best contents so far.
//
// The bound is the lower one of two (see bound). The first fills the room that is left with fractions of items, class after class, at the
// prices of the fractional knapsack. The second looks at one dimension at a time: no contents are worth more than the room left in it at
// the best rate of any class still to come. The first is close if several dimensions run out together, the second if one does.
//
// The number of search nodes is limited. upper then has the bound of the branches that were not looked at, so the answer is a ceiling in
// any case: a search that is cut short gives a weaker bound, never a wrong one.
type knapsack struct {
	p     *part
	value []float64 // per class
	limit []int     // per class: at most so many

	sack   *lp.Fractional
	order  []int     // candidates
	size   []float64 // per position: weighted need of one item
	dense  []float64 // position*dims: best value per unit of room among this position and later ones
	weight []float64 // per dimension: what a unit of room is worth
	need   []float64
	room   []int64 // of the empty node
	rooms  []int64 // depth*dims
	counts []int   // per position
	best   float64
	found  load
	upper  float64 // what branches that were not looked at may hold
	nodes  int     // search nodes that may still be looked at
	deep   int     // if the search is cut short: how many questions divide may ask; 0 means that divide is not called
	steps  work.Steps
	class  perClass
}

// A perClass is scratch memory of a knapsack, by class.
type perClass struct {
	rates  []float64 // value per weighted need
	sizes  []float64 // weighted need
	banned []int     // branches in which the class is left out
}

func newKnapsack(p *part) *knapsack {
	return &knapsack{p: p, sack: lp.NewFractional(p.dims), weight: make([]float64, p.dims), need: make([]float64, p.dims),
		class: perClass{rates: make([]float64, p.classes()), sizes: make([]float64, p.classes()), banned: make([]int, p.classes())}}
}

// search returns a value that no contents of cell c exceed. If it finds contents worth more than floor, the best are in k.found; else
// k.found is empty. value and limit are per class: the worth of an item, and the most items. forced, if not negative, is a class that must
// be there at least once. nodes is how many search nodes it may look at.
func (k *knapsack) search(c int, value []float64, limit []int, floor float64, forced, nodes int) float64 {
	k.found.reset(c)
	k.value, k.limit, k.best, k.nodes = value, limit, floor, nodes
	k.upper = 0
	k.room = append(k.room[:0], k.p.cells[c].room...)
	sure := 0.0
	if forced >= 0 {
		sure = value[forced]
		if !fits(k.p.needs(forced), k.room) {
			return 0
		}
		for d, u := range k.p.needs(forced) {
			k.room[d] -= u
		}
		k.mark(forced, 1)
		defer k.mark(forced, -1)
	}
	k.candidates(c, forced)
	if cut := sure + k.weigh(forced); cut <= floor {
		return cut
	}
	k.rank()
	k.descend(0, sure, forced)
	if k.deep > 0 && k.upper > k.best {
		k.upper = 0
		k.divide(sure, forced)
	}
	return max(k.best, k.upper)
}

// candidates sets k.order to the classes that are worth something, may use cell c and fit into k.room.
func (k *knapsack) candidates(c, forced int) {
	p := k.p
	k.order = k.order[:0]
	for i, v := range k.value {
		if v > 0 && k.most(i, forced) > 0 && p.cells[c].open.Has(p.group[i]) && fits(p.needs(i), k.room) {
			k.order = append(k.order, i)
		}
	}
}

// weigh solves the knapsack in fractions. It returns the value of the best contents when items can be cut, and sets k.weight to what a unit
// of each dimension of room is worth then.
//
// The value shows that most cells cannot be worth their price, so they need no search. The prices order the classes for the others (rank).
func (k *knapsack) weigh(forced int) float64 {
	k.sack.Reset(k.room)
	for _, i := range k.order {
		need := k.p.needs(i)
		for d, u := range need {
			k.need[d] = float64(u)
		}
		k.sack.Add(k.need, k.value[i], float64(holds(need, k.room, k.most(i, forced))))
	}
	value := k.sack.Solve()
	k.steps += work.Steps(k.sack.Steps.Take() + len(k.value)*4 + len(k.order)*40)
	copy(k.weight, k.sack.Price())
	// Rounding may have cut a little off.
	return value * (1 + 1e-9)
}

// rank orders the candidates by their worth per weighted room, and computes what bound needs (size, dense).
//
// In this order the first descent is a greedy filling. It is a good one, and good contents that are found early cut most other branches.
func (k *knapsack) rank() {
	p := k.p
	for _, i := range k.order {
		s := 0.0 // of classes whose number is what limits them, room may be worth nothing
		for d, u := range p.needs(i) {
			s += float64(k.weight[d] * float64(u))
		}
		k.class.rates[i], k.class.sizes[i] = k.value[i]/s, s
	}
	slices.SortFunc(k.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(k.class.rates[b], k.class.rates[a]), cmp.Compare(k.class.sizes[b], k.class.sizes[a]), cmp.Compare(a, b))
	})
	n := len(k.order)
	k.size = k.size[:0]
	for _, i := range k.order {
		k.size = append(k.size, k.class.sizes[i])
	}
	k.counts = resize(k.counts, n)
	clear(k.counts)
	k.rooms = resize(k.rooms, (n+1)*p.dims)
	copy(k.rooms, k.room)
	k.dense = resize(k.dense, (n+1)*p.dims)
	for d := range p.dims {
		k.dense[n*p.dims+d] = 0
	}
	for i := n - 1; i >= 0; i-- {
		class := k.order[i]
		for d, u := range p.needs(class) {
			rate := 1e300
			if u > 0 {
				rate = k.value[class] / float64(u)
			}
			k.dense[i*p.dims+d] = max(k.dense[(i+1)*p.dims+d], rate)
		}
	}
}

// most returns how many items of class i may be added; the forced item is not counted.
func (k *knapsack) most(i, forced int) int {
	if i == forced {
		return k.limit[i] - 1
	}
	return k.limit[i]
}

// mark bans the classes that may not meet the given one (n is 1), or takes this ban back (n is −1).
func (k *knapsack) mark(class, n int) {
	if k.p.foes == nil {
		return
	}
	for _, f := range k.p.foes[class] {
		k.class.banned[f] += n
	}
}

// descend tries all numbers of items of the class at position i, and all contents of later positions with each. The room that is left is
// in k.rooms at depth i; v is what the items of earlier positions are worth. forced is the class of an item that is on the node already,
// −1 for none. Branches with an item of the class ban the classes that it may not meet.
func (k *knapsack) descend(i int, v float64, forced int) {
	p := k.p
	if v > k.best && (i > 0 || forced >= 0) {
		k.best = v
		k.keepFound(i, forced)
	}
	n := len(k.order)
	room := k.rooms[i*p.dims : (i+1)*p.dims]
	for i < n && (k.class.banned[k.order[i]] > 0 || !fits(p.needs(k.order[i]), room)) {
		k.counts[i] = 0
		copy(k.rooms[(i+1)*p.dims:(i+2)*p.dims], room)
		i++
		room = k.rooms[i*p.dims : (i+1)*p.dims]
	}
	if i == n {
		return
	}
	bound := v + k.bound(i, room, forced)
	if bound <= k.best+1e-9 {
		return
	}
	if k.nodes <= 0 {
		k.upper = max(k.upper, bound)
		return
	}
	k.nodes--
	class := k.order[i]
	need := p.needs(class)
	most := holds(need, room, k.most(class, forced))
	next := k.rooms[(i+1)*p.dims : (i+2)*p.dims]
	for c := most; c >= 0; c-- {
		k.counts[i] = c
		for d, u := range need {
			next[d] = room[d] - u*int64(c)
		}
		if c == most && c > 0 {
			k.mark(class, 1)
		}
		if c == 0 && most > 0 {
			k.mark(class, -1)
		}
		k.descend(i+1, v+float64(k.value[class]*float64(c)), forced)
	}
	k.counts[i] = 0
}

// keepFound writes the items of the positions below depth, and the forced one, to k.found.
func (k *knapsack) keepFound(depth, forced int) {
	k.found.classes, k.found.counts = k.found.classes[:0], k.found.counts[:0]
	if forced >= 0 {
		k.found.add(forced, 1)
	}
	for j := range depth {
		if k.counts[j] > 0 {
			k.found.add(k.order[j], k.counts[j])
		}
	}
}

// bound returns a value that items of the classes from position i on cannot exceed in room: the lower one of the two bounds of knapsack.
func (k *knapsack) bound(i int, room []int64, forced int) float64 {
	p := k.p
	low := 1e300
	var left float64
	for d, r := range room {
		if rate := k.dense[i*p.dims+d]; rate < 1e300 {
			low = min(low, float64(rate*float64(r)))
		}
		left += float64(k.weight[d] * float64(r))
	}
	var sum float64
	k.steps += 40
	for j := i; j < len(k.order); j++ {
		class := k.order[j]
		k.steps += 6
		if !fits(p.needs(class), room) {
			continue
		}
		whole := float64(k.size[j] * float64(k.most(class, forced)))
		if whole <= left {
			sum += float64(k.value[class] * float64(k.most(class, forced)))
			left -= whole
			continue
		}
		sum += float64(k.value[class]*left) / k.size[j]
		break
	}
	return min(low, sum)
}
