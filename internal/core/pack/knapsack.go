package pack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/work"
)

// A knapsack looks for the most valuable contents of one node by depth-first search. Classes are tried in the order of what they are
// worth per weighted room, many items first; a branch is cut when the room that is left, sold at the best rates of the classes still
// to come, cannot beat what is known.
//
// Two bounds cut the search. One sells the room that is left at the prices of the fractional knapsack, class after class in the order of
// their rates, as one fills a sack with sand. The other takes each dimension by itself: no contents are worth more than the room left in
// it at the best rate of any class still to come. The first is close where several dimensions run out together, the second where one does;
// the lower one counts.
//
// When its nodes are used up it does not stop being right: upper collects what the branches that were not looked at may hold, so that the
// answer is a ceiling in any case. A search that was cut short costs some of the bound, never its truth.
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
	nodes  int     // budget
	deep   int     // questions of a division, where looks do not come to the end; 0 for none
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

// search returns a value that no contents of cell c exceed. If some are worth more than floor, the best found are in k.found (else
// it is empty). forced, if not negative, is a class that must be there at least once. nodes bounds the work.
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

// candidates lists the classes that are worth something and fit.
func (k *knapsack) candidates(c, forced int) {
	p := k.p
	k.order = k.order[:0]
	for i, v := range k.value {
		if v > 0 && k.most(i, forced) > 0 && p.cells[c].open.Has(p.group[i]) && fits(p.needs(i), k.room) {
			k.order = append(k.order, i)
		}
	}
}

// weigh solves the knapsack in fractions: it returns the value of the best contents when items can be cut, and sets what a unit of
// each dimension of room is worth then.
//
// One pass of the small simplex does two things: its value cuts cells that cannot be worth their price at all, which are most, and its
// prices say by what to order the classes of those that can.
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

// rank orders the candidates by what they are worth per weighted room.
//
// With many of the best class first, the first descent is the greedy filling; that is a good one, and a good one found early is what cuts
// the rest.
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

func (k *knapsack) most(i, forced int) int {
	if i == forced {
		return k.limit[i] - 1
	}
	return k.limit[i]
}

func (k *knapsack) mark(class, n int) {
	if k.p.foes == nil {
		return
	}
	for _, f := range k.p.foes[class] {
		k.class.banned[f] += n
	}
}

// descend decides on the class at position i. The room left is in k.rooms at depth i, v is what the earlier positions hold.
func (k *knapsack) descend(i int, v float64, forced int) {
	p := k.p
	if v > k.best && (i > 0 || forced >= 0) {
		k.best = v
		k.keep(i, forced)
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

func (k *knapsack) keep(depth, forced int) {
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

// bound is more than the classes from position i on can be worth in room.
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
