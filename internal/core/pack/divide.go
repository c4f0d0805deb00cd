package pack

import (
	"container/heap"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/work"
)

// A division looks for the most valuable contents of one node by branch and bound over the fractional knapsack. If the best contents in
// fractions have two and a half items of a class, contents in whole items have at most two or at least three of it. Each case is a question
// like the one before. The question with the highest ceiling is asked first, so that the search can end at any time with a low ceiling.
//
// It is for the few cells whose depth-first search (knapsack.descend) does not finish. That search spends all its nodes on contents that
// begin with many items of the first class. If a machine holds one very large item and several that are worth nearly the same, its ceiling
// does not fall.
type division struct {
	k      *knapsack // its order, rooms and sack are used; a position is an index in k.order
	forced int
	sure   float64 // what the forced item is worth
	tree   []side
	open   sides   // questions that are not divided yet
	low    []int   // per position: items that the rules of the present question demand
	high   []int   // per position: items that they allow
	room   []int64 // room that is left
	at     []int   // per variable of the LP: its position
	counts []int   // per position: contents in whole items
}

// A side is one of the two questions into which a rule divides the question above it: the class at one position has low to high items.
type side struct {
	above int     // −1 for the first question
	at    int     // position of the class
	low   int     // at least so many
	high  int     // at most so many
	most  float64 // its ceiling: no contents are worth more
	// The next rule: the class at position next has at most whole items, or more.
	next, whole int
}

// sides is a heap, the highest ceiling first.
type sides struct {
	d    *division
	list []int
}

func (s *sides) Len() int           { return len(s.list) }
func (s *sides) Less(a, b int) bool { return s.d.tree[s.list[a]].most > s.d.tree[s.list[b]].most }
func (s *sides) Swap(a, b int)      { s.list[a], s.list[b] = s.list[b], s.list[a] }
func (s *sides) Push(x any)         { s.list = append(s.list, x.(int)) }
func (s *sides) Pop() any {
	last := s.list[len(s.list)-1]
	s.list = s.list[:len(s.list)-1]
	return last
}

// divide continues after weigh, rank and descend with a division of at most k.deep questions. It improves k.best and k.found, and sets
// k.upper to the highest ceiling of the questions that are left.
func (k *knapsack) divide(sure float64, forced int) {
	n := len(k.order)
	d := &division{k: k, forced: forced, sure: sure, low: make([]int, n), high: make([]int, n),
		counts: make([]int, n), room: make([]int64, k.p.dims)}
	d.open.d = d
	d.tryWhole()
	if n == 0 {
		return
	}
	d.ask(side{above: -1, high: math.MaxInt})
	for asked := 0; d.open.Len() > 0; asked++ {
		i := heap.Pop(&d.open).(int)
		s := d.tree[i]
		if s.most <= k.best+1e-9 {
			return
		}
		if asked == k.deep {
			k.upper = max(k.upper, s.most)
			return
		}
		d.ask(side{above: i, at: s.next, high: s.whole})
		d.ask(side{above: i, at: s.next, low: s.whole + 1, high: math.MaxInt})
	}
}

// ask computes the ceiling of a question by the fractional knapsack, and tries the whole items of the answer as contents. If the question
// may hold better contents, it is added to d.open.
func (d *division) ask(s side) {
	k := d.k
	held, ok := d.applyRules(&s)
	if !ok {
		return
	}
	k.sack.Reset(d.room)
	d.at = d.at[:0]
	for j, class := range k.order {
		need := k.p.needs(class)
		most := min(d.high[j]-d.low[j], holds(need, d.room, math.MaxInt))
		if most <= 0 {
			continue
		}
		for r, u := range need {
			k.need[r] = float64(u)
		}
		k.sack.Add(k.need, k.value[class], float64(most))
		d.at = append(d.at, j)
	}
	value := k.sack.Solve()
	k.steps += work.Steps(k.sack.Steps.Take() + len(k.order)*(k.p.dims+4) + 40)
	s.most = d.sure + held + float64(value*(1+1e-9))
	if s.most <= k.best+1e-9 {
		return
	}
	divides := d.divisor(&s)
	fit := d.tryWhole()
	switch {
	case divides:
		d.tree = append(d.tree, s)
		heap.Push(&d.open, len(d.tree)-1)
	case !fit: // an amount just below a whole number was rounded up
		k.upper = max(k.upper, s.most)
	}
}

// applyRules sets d.low, d.high and d.room by the rules of a side and of all sides above it. It returns what the items that they demand are
// worth; ok is false if these items cannot be on one node.
func (d *division) applyRules(s *side) (held float64, ok bool) {
	k := d.k
	copy(d.room, k.rooms[:k.p.dims])
	for j, class := range k.order {
		d.low[j], d.high[j] = 0, holds(k.p.needs(class), d.room, k.most(class, d.forced))
		if k.class.banned[class] > 0 {
			d.high[j] = 0
		}
	}
	for r := s; ; r = &d.tree[r.above] {
		d.low[r.at], d.high[r.at] = max(d.low[r.at], r.low), min(d.high[r.at], r.high)
		if r.above < 0 {
			break
		}
	}
	for j, n := range d.low {
		if n == 0 {
			continue
		}
		for i := range k.order {
			if d.foes(i, j) {
				d.high[i] = 0
			}
		}
	}
	for j, n := range d.low {
		if n > d.high[j] {
			return 0, false
		}
		held += float64(k.value[k.order[j]] * float64(n))
		if n > 0 && !d.put(j, n) {
			return 0, false
		}
	}
	return held, true
}

// foes reports whether the classes of two positions may not meet.
func (d *division) foes(i, j int) bool {
	k := d.k
	return k.p.foes != nil && slices.Contains(k.p.foes[k.order[i]], k.order[j])
}

// put takes the room of n items of the class at position j off d.room, and reports whether there was enough.
func (d *division) put(j, n int) bool {
	fit := true
	for r, u := range d.k.p.needs(d.k.order[j]) {
		d.room[r] -= u * int64(n)
		fit = fit && d.room[r] >= 0
	}
	return fit
}

// wholeSlack is how far from a whole number an amount may be and still be one.
const wholeSlack = 1e-7

// divisor sets d.counts to the whole items of the knapsack's answer, and s.next and s.whole to the rule that divides the question: by the
// class whose cut item is worth most, or else by a class that meets one of its foes. It returns false if the answer needs no rule.
func (d *division) divisor(s *side) bool {
	k := d.k
	copy(d.counts, d.low)
	lost, divides := 0.0, false
	for v, x := range k.sack.Contents() {
		j := d.at[v]
		n := math.Floor(x + wholeSlack)
		d.counts[j] += int(n)
		if part := k.value[k.order[j]] * (x - n); x-n > wholeSlack && part > lost {
			lost, divides = part, true
			s.next, s.whole = j, d.counts[j]
		}
	}
	if divides || k.p.foes == nil {
		return divides
	}
	for j, n := range d.counts {
		for i := range d.counts[:j] {
			if n > 0 && d.counts[i] > 0 && d.foes(i, j) {
				s.next, s.whole = j, 0 // none of it, or at least one and none of its foes (applyRules)
				return true
			}
		}
	}
	return false
}

// tryWhole reports whether the whole items in d.counts fit on one node. If so, it adds items to them while there is room, and keeps the
// contents in k.found if they are the best so far.
func (d *division) tryWhole() bool {
	k := d.k
	copy(d.room, k.rooms[:k.p.dims])
	worth := d.sure
	for j, n := range d.counts {
		if n == 0 {
			continue
		}
		if !d.put(j, n) || d.meetsFoe(j) {
			return false
		}
		worth += float64(k.value[k.order[j]] * float64(n))
	}
	for j, class := range k.order {
		n := holds(k.p.needs(class), d.room, k.most(class, d.forced)-d.counts[j])
		if n <= 0 || k.class.banned[class] > 0 || d.meetsFoe(j) {
			continue
		}
		d.put(j, n)
		d.counts[j] += n
		worth += float64(k.value[class] * float64(n))
	}
	if worth > k.best {
		k.best = worth
		copy(k.counts, d.counts)
		k.keepFound(len(k.order), d.forced)
	}
	return true
}

// meetsFoe reports whether the contents have a class that the class at position j may not meet.
func (d *division) meetsFoe(j int) bool {
	if d.k.p.foes == nil {
		return false
	}
	for i, n := range d.counts {
		if n > 0 && i != j && d.foes(i, j) {
			return true
		}
	}
	return false
}
