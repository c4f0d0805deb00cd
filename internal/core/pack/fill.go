package pack

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"karpenter.sh/karpenter/internal/core/work"
)

// A load is what one node of a cell holds: how many of which class, in the order they were put there.
type load struct {
	cell    int
	classes []int
	counts  []int
}

// reset makes the load an empty one of cell c, and keeps its memory.
func (l *load) reset(c int) {
	l.cell, l.classes, l.counts = c, l.classes[:0], l.counts[:0]
}

// add adds n items of class k.
func (l *load) add(k, n int) {
	for i, c := range l.classes {
		if c == k {
			l.counts[i] += n
			return
		}
	}
	l.classes, l.counts = append(l.classes, k), append(l.counts, n)
}

func (l *load) clone() load {
	return load{l.cell, slices.Clone(l.classes), slices.Clone(l.counts)}
}

// worth returns what the contents are worth if an item of class k is worth v[k].
func (l *load) worth(v []float64) float64 {
	var sum float64
	for i, k := range l.classes {
		sum += float64(v[k] * float64(l.counts[i]))
	}
	return sum
}

// A filler fills single nodes. It owns scratch memory and is used by one run.
//
// Filling one node is a knapsack in several dimensions. It is done thousands of times, so it is done greedily: the score of an item is its
// worth per share of the room that is left, with each dimension weighed by 1/(what is left of it). So a node that has much memory and few
// cores left takes items that need memory next. Mostly the last items are wrong then; polish exchanges some.
//
// Calls come in this order: setWorth, begin, then fill and used for one node after the other.
type filler struct {
	p      *part
	room   []int64   // per dimension: room that is left on the node
	weight []float64 // per dimension: 1/room
	cand   []int     // classes that may still go to the node
	banned []int     // per class: above 0 if a class that it may not meet is on the node
	out    load      // the contents so far
	guide  guide

	worth  []float64 // per class, as given to setWorth
	ranked []int     // classes by worth, the highest first
	live   []int     // those of them with items
	whole  *tree     // of all classes, made when it is first needed
	tree   *tree     // whole while there are more than treeClasses classes with items, else nil
	quota  []int     // per candidate class: at most so many before polish
	turn   int       // calls of fairShares that cut; shifts where rounding begins
	top    []float64 // scratch: see unitWorth.top
	need   []int64   // scratch: the room that is left after one item is taken off
	steps  work.Steps
}

// treeClasses is the number of classes above which a tree is faster than a pass over all of them.
const treeClasses = 320

func newFiller(p *part) *filler {
	return &filler{p: p, room: make([]int64, p.dims), weight: make([]float64, p.dims), banned: make([]int, p.classes()),
		quota: make([]int, p.classes()), top: make([]float64, p.dims), need: make([]int64, p.dims)}
}

// setWorth sets what an item of each class is worth in the fillings to come.
func (f *filler) setWorth(v []float64) {
	f.worth = v
	f.ranked = f.ranked[:0]
	for k := range v {
		f.ranked = append(f.ranked, k)
	}
	slices.SortFunc(f.ranked, func(a, b int) int { return cmp.Or(cmp.Compare(v[b], v[a]), cmp.Compare(a, b)) })
	f.whole = nil
}

// begin starts a series of fillings with the items in rem, per class. classes lists the classes that have items; nil stands for all
// classes.
func (f *filler) begin(rem []int, classes []int) {
	f.live = append(f.live[:0], classes...)
	if classes == nil {
		f.live = append(f.live, f.ranked...)
	} else {
		v := f.worth
		slices.SortFunc(f.live, func(a, b int) int { return cmp.Or(cmp.Compare(v[b], v[a]), cmp.Compare(a, b)) })
	}
	f.live = slices.DeleteFunc(f.live, func(k int) bool { return rem[k] == 0 })
	f.tree = nil
	if len(f.live) > treeClasses {
		if f.whole == nil {
			f.whole = newTree(f.p, f.worth)
		}
		f.tree = f.whole
		f.tree.setItems(rem)
	}
}

// used has to be called when items of class k were placed and left of them remain.
func (f *filler) used(k, left int) {
	if left == 0 && f.tree != nil {
		f.tree.remove(k)
	}
}

// fill returns valuable contents of one node of cell c, with at most rem[k] items of class k. At each step it adds items of the class with
// the highest score (see filler); at the end it polishes. forced, if not negative, is a class of which one item must be there. unit has the
// prices of room, for fair shares and polish; nil if they are not known. The result is valid until the next call.
//
// A step adds about a sixth of the items that would fit, so that a node of fifty equal pods does not take fifty steps.
func (f *filler) fill(c int, rem []int, forced int, unit *unitWorth) *load {
	p, cell := f.p, &f.p.cells[c]
	copy(f.room, cell.room)
	f.out.reset(c)
	f.candidates(cell, rem, unit)
	if forced >= 0 {
		f.put(forced, 1)
		f.quota[forced]--
	}
	for len(f.cand) > 0 {
		for d, r := range f.room {
			f.weight[d] = 0
			if r > 0 {
				f.weight[d] = 1 / float64(r)
			}
		}
		k, n := f.choose()
		if k < 0 {
			break
		}
		f.put(k, n)
		f.quota[k] -= n
	}
	f.polish(cell, rem, forced, unit)
	if p.foes != nil {
		clear(f.banned)
	}
	return &f.out
}

// candidates sets f.cand and f.quota to the classes to start with and how many items of each: all that may go to the cell and fit, or, with
// a share in the guide, a fair share of those that are worth their room here, so that later nodes find the same mix.
func (f *filler) candidates(cell *cell, rem []int, unit *unitWorth) {
	f.cand = f.cand[:0]
	f.steps += work.Steps(len(f.live)*(f.p.dims+5) + 100)
	f.live = slices.DeleteFunc(f.live, func(k int) bool { return rem[k] == 0 })
	for _, k := range f.live {
		if cell.open.Has(f.p.group[k]) && fits(f.p.needs(k), cell.room) {
			f.cand = append(f.cand, k)
			f.quota[k] = min(rem[k], f.p.limit[k])
		}
	}
	if unit != nil && f.guide.share > 0 {
		f.fairShares(cell, rem, unit)
	}
}

// fairShares cuts the candidates to a sample of the classes that belong on the cell: an item of such a class is worth at least 98 % of what
// its room costs here. If no class belongs here, the candidates stay as they are.
//
// Let B be the worth of all items of these classes. A node holds about (worth of its room)/B of them, times guide.share; of each class it
// gets this part. The part is rarely a whole number of items, so the rest is carried from class to class (at), as when a line is drawn in
// pixels. The first carry differs from node to node, so that it is not always the same class that gets an item more.
func (f *filler) fairShares(cell *cell, rem []int, unit *unitWorth) {
	unit.top(f.p, f.out.cell, f.top)
	var room, belong float64
	for d, r := range cell.room {
		room += float64(f.top[d] * float64(r))
	}
	mine := 0
	f.steps += work.Steps(len(f.cand) * (2*f.p.dims + 6))
	for i, k := range f.cand {
		var cost float64
		for d, u := range f.p.needs(k) {
			cost += float64(f.top[d] * float64(u))
		}
		if f.worth[k] >= cost*0.98 {
			f.cand[i], f.cand[mine] = f.cand[mine], k
			mine++
			belong += float64(f.worth[k] * float64(rem[k]))
		}
	}
	if mine == 0 {
		return
	}
	f.cand = f.cand[:mine]
	part := float64(room*f.guide.share) / belong
	if part >= 1 {
		return
	}
	f.turn++
	at := float64(f.turn%97) / 97
	sample := 0
	for i, k := range f.cand {
		next := at + float64(part*float64(rem[k]))
		n := int(next) - int(at)
		at = next - float64(int(at))
		at -= float64(n)
		if n > 0 {
			f.quota[k] = min(f.quota[k], n)
			f.cand[i], f.cand[sample] = f.cand[sample], k
			sample++
		}
	}
	if sample > 0 {
		f.cand = f.cand[:sample]
	}
}

// polish makes up to 40 exchanges: it removes one item or none, and adds the most valuable item that then fits. It stops when the best
// exchange gains too little.
//
// If unit is known, the worth of the room that is left bounds the gain of any exchange. So on a full node it stops at once.
func (f *filler) polish(cell *cell, rem []int, forced int, unit *unitWorth) {
	if f.p.foes != nil {
		return // an exchange could bring foes together
	}
	most := math.Inf(1)
	total := f.out.worth(f.worth)
	for range 40 {
		if unit != nil {
			most = f.spare(unit)
			if most < total*3e-4 {
				return
			}
		}
		gain, old, replacement := f.exchange(cell, rem, forced, most)
		if replacement < 0 || gain <= total*1e-6 {
			return
		}
		if old >= 0 {
			f.removeOne(old)
		}
		f.put(replacement, 1)
		total += gain
	}
}

// spare returns what the room that is left is worth at most.
func (f *filler) spare(unit *unitWorth) float64 {
	unit.top(f.p, f.out.cell, f.top)
	var sum float64
	for d, r := range f.room {
		sum += float64(f.top[d] * float64(r))
	}
	return sum
}

// exchange finds the best single exchange: the class that loses an item (−1: none) and the class that gets one (−1: no exchange gains). It
// looks for gains up to most.
func (f *filler) exchange(cell *cell, rem []int, forced int, most float64) (gain float64, old, replacement int) {
	old, replacement = -1, -1
	for i := -1; i < len(f.out.classes); i++ {
		base, a := 0.0, -1
		copy(f.need, f.room)
		if i >= 0 {
			a = f.out.classes[i]
			if a == forced && f.out.counts[i] == 1 || f.out.counts[i] == 0 {
				continue
			}
			base = f.worth[a]
			for d, u := range f.p.needs(a) {
				f.need[d] += u
			}
		}
		if b := f.highest(cell, rem, base+gain, base+most); b >= 0 {
			gain, old, replacement = f.worth[b]-base, a, b
		}
	}
	return gain, old, replacement
}

// highest returns the class with the highest worth above low and at most high that fits into f.need and has items that are not on the node
// yet; −1 if there is none. With a tree it ignores high, which only serves to skip classes that cannot fit.
func (f *filler) highest(cell *cell, rem []int, low, high float64) int {
	p := f.p
	if f.tree != nil {
		defer func() { f.steps += work.Steps(f.tree.steps.Take()) }()
		return f.tree.highest(f.need, low, func(b int) bool {
			return cell.open.Has(p.group[b]) && min(rem[b], p.limit[b]) > f.on(b)
		})
	}
	from := 0
	if !math.IsInf(high, 1) {
		from = sort.Search(len(f.live), func(i int) bool { return f.worth[f.live[i]] <= high })
	}
	for i, b := range f.live[from:] {
		if i%16 == 0 {
			f.steps += 16 * 4
		}
		if f.worth[b] <= low {
			return -1
		}
		if rem[b] == 0 || !fits(p.needs(b), f.need) || !cell.open.Has(p.group[b]) {
			continue
		}
		if min(rem[b], p.limit[b]) > f.on(b) {
			return b
		}
	}
	return -1
}

// removeOne removes one item of class k from the node. It lifts no bans: its caller, polish, does not run where classes may not meet.
func (f *filler) removeOne(k int) {
	for i, c := range f.out.classes {
		if c == k {
			f.out.counts[i]--
			if f.out.counts[i] == 0 {
				f.out.classes = slices.Delete(f.out.classes, i, i+1)
				f.out.counts = slices.Delete(f.out.counts, i, i+1)
			}
			break
		}
	}
	for d, u := range f.p.needs(k) {
		f.room[d] += u
	}
}

// put adds n items of class k to the node, and bans the classes that may not meet it.
func (f *filler) put(k, n int) {
	f.out.add(k, n)
	for d, u := range f.p.needs(k) {
		f.room[d] -= u * int64(n)
	}
	if f.p.foes != nil {
		for _, x := range f.p.foes[k] {
			f.banned[x] = 1
		}
	}
}

// on returns how many items of class k are on the node.
func (f *filler) on(k int) int {
	for i, c := range f.out.classes {
		if c == k {
			return f.out.counts[i]
		}
	}
	return 0
}

// choose returns the class with the highest score and how many of its items to add, or −1 if none fits. It drops candidates that no longer
// fit: room only gets less.
//
// It is the innermost loop of the package: most of the work of a plan for thousands of shapes is done here.
func (f *filler) choose() (int, int) {
	p := f.p
	best, pick := -1.0, -1
	kept := f.cand[:0]
	f.steps += work.Steps(len(f.cand)*(3*p.dims+5) + 30)
	dims := p.dims
	for _, k := range f.cand {
		if f.quota[k] <= 0 {
			continue
		}
		need := p.need[k*dims : k*dims+dims]
		var share, most float64
		ok := true
		for d, u := range need {
			if u > f.room[d] {
				ok = false
				break
			}
			s := float64(float64(u) * f.weight[d])
			share += s
			most = max(most, s)
		}
		if !ok || f.banned[k] > 0 {
			continue
		}
		kept = append(kept, k)
		score := f.worth[k] / (share + 1e-12)
		score += float64(score * float64(f.guide.bonus*most))
		if score > best {
			best, pick = score, k
		}
	}
	f.cand = kept
	if pick < 0 {
		return -1, 0
	}
	n := holds(p.needs(pick), f.room, f.quota[pick])
	return pick, max(1, min(n, (holds(p.needs(pick), f.room, 1<<30)+5)/6))
}
