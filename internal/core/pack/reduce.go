package pack

import (
	"cmp"
	"encoding/binary"
	"math"
	mathbits "math/bits"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A part is a problem that shares nothing with the other parts, in the form that the algorithms need: equal classes are merged, dimensions
// without demand dropped, units reduced, and cells that another one dominates removed.
//
// This makes a problem small. A plan for five thousand pods over a thousand machines in three zones has tens of thousands of numbers; a few
// dozen to a few hundred classes and cells are left, so all later stages are quick.
//
// Needs and rooms are counted in the greatest common divisor of the needs: a room of 15.7 GiB for items of 4 GiB is a room of three. So
// cells that differ only by room that no item can use become equal, and one of them is removed.
//
// Invariant: cells are those that no other one dominates, sorted by price. every has all cells: openUpTo and the proof of a tree need them.
type part struct {
	dims    int
	axis    []int   // per dimension: index of the problem's dimension
	unit    []int64 // per dimension: how many of the problem's units are one here
	need    []int64 // class*dims
	count   []int   // per class
	limit   []int   // per class: at most so many on one node
	group   []int   // per class: classes of one group may use the same cells
	foes    [][]int // per class: classes it may not meet; nil without conflicts
	groups  int     // number of groups
	member  [][]int // per class: the equal classes of the problem that were merged
	cells   []cell
	every   []cell  // cells, and those that others dominate
	limits  []int64 // per limit: its maximum
	limitID []int   // per limit: index in the problem
	least   []int   // per class: how many steps too large (Cell.Over) the best cell is that it fits
	total   int     // items
}

// A cell of a part.
type cell struct {
	room   []int64
	price  int64
	own    int64    // the part of the price that is on no bill
	stock  int      // 0: any number
	open   bits.Set // groups that may use it
	over   int      // by how many steps it is too large (Cell.Over)
	large  bool     // only for a node with an item that fits no cell of fewer steps; see "Large cells" in the package comment
	use    []int64  // per limit of the part; nil when it uses none
	origin int      // index in the problem
}

func (p *part) classes() int         { return len(p.count) }
func (p *part) needs(k int) []int64  { return p.need[k*p.dims : (k+1)*p.dims] }
func (c *cell) unlimited() bool      { return c.stock == 0 && c.use == nil }
func (p *part) mayUse(k, c int) bool { return p.cells[c].open.Has(p.group[k]) }

// fits reports whether one item with this need fits into room.
func fits(need, room []int64) bool {
	for d, n := range need {
		if n > room[d] {
			return false
		}
	}
	return true
}

// mostSum is the highest sum: more than any room.
const mostSum = int64(1) << 62

// addTimes returns sum + x*n, at most mostSum.
func addTimes(sum, x int64, n int) int64 {
	hi, lo := mathbits.Mul64(uint64(x), uint64(n))
	if hi != 0 || lo >= uint64(mostSum-min(sum, mostSum)) {
		return mostSum
	}
	return sum + int64(lo)
}

// holds returns how many items with this need fit into room, at most most.
func holds(need, room []int64, most int) int {
	for d, n := range need {
		if n > 0 {
			if q := room[d] / n; q < int64(most) {
				most = int(q)
			}
		}
	}
	return max(most, 0)
}

// split divides a problem into parts. Classes that no cell can hold are in none.
//
// Two groups of classes are in one part if a cell is open to both, because a node may hold items of both; if a limit counts cells of both;
// or if two of their classes may not meet. Pools that share nothing become parts of their own.
func split(p *Problem) []*part {
	g := groupClasses(p)
	open := openCells(p, g)
	g.dropHomeless(p, open)
	joint := newForest(len(g.sets))
	joinCells(p, open, joint)
	for _, x := range p.Conflicts {
		if a, b := g.of[x[0]], g.of[x[1]]; a >= 0 && b >= 0 {
			joint.join(a, b)
		}
	}
	byRoot := make(map[int][]int)
	var roots []int
	for i := range g.sets {
		r := joint.root(i)
		if byRoot[r] == nil {
			roots = append(roots, r)
		}
		byRoot[r] = append(byRoot[r], i)
	}
	parts := make([]*part, 0, len(roots))
	for _, r := range roots {
		if q := buildPart(p, g, open, byRoot[r]); q != nil {
			parts = append(parts, q)
		}
	}
	return parts
}

// A grouping sorts classes into groups of classes that may use the same cells.
//
// The cells that a class may use are a set of perhaps a thousand bits. There are few different sets, because pods say "amd64", "zone a" or
// "pool web". All that follows uses the number of the group instead.
type grouping struct {
	of   []int      // per class: its group; -1 if it has no items or no cell can hold it
	sets []bits.Set // per group: its cells; nil means every cell
	low  [][]int64  // per group: the least need in each dimension
}

// groupClasses groups the classes with items by their sets of cells, and then merges groups where that changes nothing.
func groupClasses(p *Problem) *grouping {
	g := &grouping{of: make([]int, len(p.Classes))}
	byKey := make(map[string]int)
	var members [][]int
	var key []byte
	for k, c := range p.Classes {
		g.of[k] = -1
		if c.Count <= 0 {
			continue
		}
		key = key[:0]
		if c.Cells != nil {
			key = append(key, 's') // tells an empty set, which is no cell, from nil, which is every cell
			for _, w := range c.Cells {
				key = binary.LittleEndian.AppendUint64(key, w)
			}
		}
		i, ok := byKey[string(key)]
		if !ok {
			i = len(g.sets)
			byKey[string(key)] = i
			g.sets, members = append(g.sets, c.Cells), append(members, nil)
		}
		members[i] = append(members[i], k)
	}
	g.merge(p, members)
	return g
}

// merge joins groups whose sets differ only in cells into which the classes of the smaller set do not fit. It sets g.of, g.sets and g.low.
//
// Example: pods of 16 cores that may go to any machine of zone a, and pods of 16 cores that need one of zone a with at least eight cores,
// can use the same machines. Fewer groups are fewer rows of the volume LP, and equal classes of two groups become one.
func (g *grouping) merge(p *Problem, members [][]int) {
	size := func(s bits.Set) int {
		if s == nil {
			return len(p.Cells) + 1
		}
		return s.Count()
	}
	order := make([]int, len(g.sets))
	sizes := make([]int, len(g.sets))
	for i, s := range g.sets {
		order[i], sizes[i] = i, size(s)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	var kept []bits.Set
	for _, i := range order {
		at := slices.IndexFunc(kept, func(s bits.Set) bool { return standsFor(p, s, g.sets[i], members[i]) })
		if at < 0 {
			at = len(kept)
			kept = append(kept, g.sets[i])
			g.low = append(g.low, slices.Clone(p.Classes[members[i][0]].Need))
		}
		for _, k := range members[i] {
			g.of[k] = at
			for d, n := range p.Classes[k].Need {
				g.low[at][d] = min(g.low[at][d], n)
			}
		}
	}
	g.sets = kept
}

// standsFor reports whether the classes, which may use the cells of narrow, may be given the cells of wide instead: narrow is within wide,
// and the classes fit into none of the other cells of wide. A nil set has every cell.
func standsFor(p *Problem, wide, narrow bits.Set, classes []int) bool {
	if narrow == nil || wide != nil && !narrow.Within(wide) {
		return narrow == nil && wide == nil
	}
	for c := range p.Cells {
		if (wide == nil || wide.Has(c)) && !narrow.Has(c) &&
			slices.ContainsFunc(classes, func(k int) bool { return fits(p.Classes[k].Need, p.Cells[c].Room) }) {
			return false
		}
	}
	return true
}

// dropHomeless sets the group of classes that no cell can hold to -1.
func (g *grouping) dropHomeless(p *Problem, open []bits.Set) {
	for k, c := range p.Classes {
		if g.of[k] < 0 {
			continue
		}
		home := false
		for i := 0; i < len(open) && !home; i++ {
			home = open[i].Has(g.of[k]) && fits(c.Need, p.Cells[i].Room)
		}
		if !home {
			g.of[k] = -1
		}
	}
}

// openCells returns, per cell, the groups that may use it. It leaves out groups none of whose classes can fit (it compares the least need
// of the group in each dimension), and cells of which a single node exceeds a limit.
func openCells(p *Problem, g *grouping) []bits.Set {
	open := make([]bits.Set, len(p.Cells))
	over := func(c int) bool { // not even one node of it is within the limits
		return slices.ContainsFunc(p.Limits, func(l Limit) bool { return !l.Parts && l.Use[c] > 0 && l.Use[c] > l.Max })
	}
	words := (len(g.sets) + 63) / 64
	arena := make(bits.Set, len(p.Cells)*words)
	for c := range p.Cells {
		open[c] = arena[c*words : (c+1)*words]
		for i, s := range g.sets {
			if (s == nil || s.Has(c)) && fits(g.low[i], p.Cells[c].Room) && !over(c) {
				open[c].Add(i)
			}
		}
	}
	return open
}

// joinCells joins the groups that a cell is open to, and those of all cells that a limit counts.
func joinCells(p *Problem, open []bits.Set, joint *forest) {
	firstOf := func(s bits.Set) int {
		first := -1
		for i := range s.All() {
			if first < 0 {
				first = i
			}
			joint.join(first, i)
		}
		return first
	}
	for c := range p.Cells {
		firstOf(open[c])
	}
	for _, l := range p.Limits {
		first := -1
		for c := range p.Cells {
			if i := firstOf(open[c]); i >= 0 && l.Use[c] > 0 {
				if first < 0 {
					first = i
				}
				joint.join(first, i)
			}
		}
	}
}

// buildPart returns the part of the given groups, or nil when no cell holds any of its classes.
func buildPart(p *Problem, g *grouping, open []bits.Set, groups []int) *part {
	number := make([]int, len(g.sets)) // group of the problem -> 1 + group of the part
	for i, gr := range groups {
		number[gr] = i + 1
	}
	q := &part{groups: len(groups)}
	q.axis, q.unit = units(p, g, number)
	q.dims = len(q.axis)
	q.addClasses(p, g, number)
	if q.classes() == 0 {
		return nil
	}
	q.addCells(p, open, number)
	q.dropUseless()
	q.every = q.cells
	q.findLeast()
	q.prune()
	return q
}

// units returns the dimensions in which classes of the part have needs, and for each the greatest common divisor of these needs. Needs and
// rooms are counted in it from here on, because room below one such unit can hold nothing. number is above 0 for the groups of the part.
//
// A dimension without needs needs no room, no price and no row. Most parts have two or three dimensions left.
func units(p *Problem, g *grouping, number []int) (dims []int, unit []int64) {
	if len(p.Classes) == 0 {
		return nil, nil
	}
	for d := range p.Classes[0].Need {
		var u int64
		for k, c := range p.Classes {
			if g.of[k] >= 0 && number[g.of[k]] > 0 {
				u = gcd(u, c.Need[d])
			}
		}
		if u > 0 {
			dims, unit = append(dims, d), append(unit, u)
		}
	}
	return dims, unit
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// addCells adds the cells that are open to a group of the part (number above 0), and the limits that count them. Rooms are cut to what all
// items of the part need together, so that larger cells become equal.
func (q *part) addCells(p *Problem, open []bits.Set, number []int) {
	q.cells = make([]cell, 0, len(p.Cells))
	total := q.demand()
	words := (q.groups + 63) / 64
	arena := make(bits.Set, len(p.Cells)*words)
	rooms := make([]int64, 0, len(p.Cells)*q.dims)
	mine := func(c int) bits.Set {
		s := arena[c*words : (c+1)*words]
		for i := range open[c].All() {
			if number[i] > 0 {
				s.Add(number[i] - 1)
			}
		}
		return s
	}
	for c := range p.Cells {
		in := &p.Cells[c]
		s := mine(c)
		if !s.Any() {
			continue
		}
		out := cell{price: in.Price, own: in.Own, over: in.Over, large: in.Over > 0, stock: in.Stock, open: s, origin: c}
		for i, d := range q.axis {
			rooms = append(rooms, min(in.Room[d]/q.unit[i], total[i]))
		}
		out.room = slices.Clip(rooms[len(rooms)-q.dims:])
		q.cells = append(q.cells, out)
	}
	for l, lim := range p.Limits {
		if !slices.ContainsFunc(q.cells, func(c cell) bool { return lim.Use[c.origin] > 0 }) {
			continue
		}
		q.limits, q.limitID = append(q.limits, lim.Max), append(q.limitID, l)
	}
	for i := range q.cells {
		c := &q.cells[i]
		for j, l := range q.limitID {
			if u := p.Limits[l].Use[c.origin]; u > 0 {
				if c.use == nil {
					c.use = make([]int64, len(q.limits))
				}
				c.use[j] = u
			}
		}
	}
}

// demand returns what all items need together, per dimension. No node uses more room than that.
func (p *part) demand() []int64 {
	total := make([]int64, p.dims)
	for k, n := range p.count {
		for d, u := range p.needs(k) {
			total[d] = addTimes(total[d], u, n)
		}
	}
	return total
}

// addClasses adds the classes of the part's groups (number above 0). It merges classes with equal needs, unless they have a limit per node
// or a conflict.
func (q *part) addClasses(p *Problem, g *grouping, number []int) {
	tied := make([]bool, len(p.Classes))
	for _, x := range p.Conflicts {
		tied[x[0]], tied[x[1]] = true, true
	}
	type key struct {
		group int
		need  string
	}
	known := make(map[key]int)
	at := make(map[int]int, len(p.Classes)) // class of the problem -> class of the part
	need := make([]int64, q.dims)
	var text strings.Builder
	for k, c := range p.Classes {
		if g.of[k] < 0 || number[g.of[k]] == 0 {
			continue
		}
		group := number[g.of[k]] - 1
		text.Reset()
		for i, d := range q.axis {
			need[i] = c.Need[d] / q.unit[i]
			for s := range 8 {
				text.WriteByte(byte(need[i] >> (8 * s)))
			}
		}
		id := key{group, text.String()}
		free := c.PerNode == 0 && !tied[k]
		if i, ok := known[id]; ok && free {
			q.count[i] += c.Count
			q.limit[i] = q.count[i]
			q.member[i] = append(q.member[i], k)
			continue
		}
		if free {
			known[id] = q.classes()
		}
		at[k] = q.classes()
		q.need = append(q.need, need...)
		q.count = append(q.count, c.Count)
		q.group = append(q.group, group)
		q.member = append(q.member, []int{k})
		most := c.Count
		if c.PerNode > 0 {
			most = min(most, c.PerNode)
		}
		q.limit = append(q.limit, most)
	}
	for _, n := range q.count {
		q.total += n
	}
	q.addFoes(p.Conflicts, at)
}

// addFoes sets foes from the conflicts of the problem. at maps a class of the problem to its class here.
func (p *part) addFoes(pairs [][2]int, at map[int]int) {
	for _, x := range pairs {
		a, okA := at[x[0]]
		b, okB := at[x[1]]
		if !okA || !okB || a == b {
			continue
		}
		if p.foes == nil {
			p.foes = make([][]int, p.classes())
		}
		p.foes[a], p.foes[b] = append(p.foes[a], b), append(p.foes[b], a)
	}
	for k := range p.foes {
		slices.Sort(p.foes[k])
		p.foes[k] = slices.Compact(p.foes[k])
	}
}

// dropUseless removes cells that hold no class.
func (p *part) dropUseless() {
	p.cells = slices.DeleteFunc(p.cells, func(c cell) bool {
		for k := range p.count {
			if c.open.Has(p.group[k]) && fits(p.needs(k), c.room) {
				return false
			}
		}
		return true
	})
}

// findLeast sets for each class how many steps too large the best cell is into which it fits: 0 for nearly all.
func (p *part) findLeast() {
	p.least = make([]int, p.classes())
	for k := range p.least {
		p.least[k] = math.MaxInt
		for i := range p.every {
			if c := &p.every[i]; c.over < p.least[k] && c.open.Has(p.group[k]) && fits(p.needs(k), c.room) {
				p.least[k] = c.over
			}
		}
	}
}

// prune sets p.cells to the cells of p.every that no other one dominates, sorted by price. Of a thousand machines in a region most are
// dropped, because another one has as much room for less.
//
// Cells that dominated another one recently are tried first, because a cheap and roomy cell dominates a hundred others. So most cells are
// dropped at the first or second comparison.
func (p *part) prune() {
	order := make([]*cell, len(p.every))
	for i := range order {
		order[i] = &p.every[i]
	}
	slices.SortFunc(order, func(a, b *cell) int {
		if a.price != b.price {
			return cmp.Compare(a.price, b.price)
		}
		return cmp.Or(cmp.Compare(b.volume(), a.volume()), cmp.Compare(a.origin, b.origin))
	})
	p.cells = nil
	var recent []int // indexes into p.cells, the latest dominators first
	for _, c := range order {
		at := slices.IndexFunc(recent, func(k int) bool { return p.cells[k].dominates(c) })
		if at < 0 {
			recent = append(recent, len(p.cells))
			p.cells = append(p.cells, *c)
			continue
		}
		k := recent[at]
		copy(recent[1:at+1], recent[:at])
		recent[0] = k
	}
}

// volume returns a rough size of the room. Of cells with one price, prune takes roomy ones first, because these dominate others.
func (c *cell) volume() float64 {
	v := 1.0
	for _, r := range c.room {
		v *= float64(r)
	}
	return v
}

// dominates reports whether c can always be bought in the place of d: it has as much room, costs no more, is open to the same groups at
// least, and is not too large where d is not. A cell with a stock or a limit dominates nothing, because it may be sold out.
func (c *cell) dominates(d *cell) bool {
	if !c.unlimited() || c.price > d.price || c.large && c.over > d.over || !d.open.Within(c.open) {
		return false
	}
	return fits(d.room, c.room)
}

// equal reports whether two parts have the same numbers and so the same best fleet. Teams of a cluster often ask for the same, each in its
// own pool. Parts with limits or conflicts are never equal here.
func (p *part) equal(q *part) bool {
	if p.dims != q.dims || p.groups != q.groups || p.foes != nil || q.foes != nil || len(p.limits)+len(q.limits) > 0 {
		return false
	}
	return slices.Equal(p.need, q.need) && slices.Equal(p.count, q.count) && slices.Equal(p.limit, q.limit) &&
		slices.Equal(p.group, q.group) &&
		slices.EqualFunc(p.cells, q.cells, func(a, b cell) bool {
			return a.price == b.price && a.own == b.own && a.large == b.large && a.over == b.over &&
				a.stock == b.stock && slices.Equal(a.open, b.open) && slices.Equal(a.room, b.room)
		})
}

// A forest joins numbers into disjoint sets (union-find).
type forest struct{ parent []int }

func newForest(n int) *forest {
	f := &forest{parent: make([]int, n)}
	for i := range f.parent {
		f.parent[i] = i
	}
	return f
}

// root returns the number that stands for the set of i. It shortens the path to it on the way.
func (f *forest) root(i int) int {
	for f.parent[i] != i {
		f.parent[i] = f.parent[f.parent[i]]
		i = f.parent[i]
	}
	return i
}

func (f *forest) join(a, b int) {
	a, b = f.root(a), f.root(b)
	f.parent[max(a, b)] = min(a, b)
}
