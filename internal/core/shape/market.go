package shape

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A Market finds the lists that launches of claims of one pool may send, while these claims allow certain shapes and offers. A claim lists
// every shape that holds its pods. So the list, and its cost, follow from what the pods use.
//
// The amounts that pods use are compared by rank. An axis is a resource that makes lists differ (there are at most axes of them). The rank
// of a shape on an axis is the place of its room among all different rooms, from 1. A question is four ranks ("above"): the pods use more
// than these, so only shapes with a higher rank on every axis hold them. The answer is a list.
type Market struct {
	c      *Catalog
	band   Band
	room   []quantity.Vec // by shape: what pods may use
	shapes []int          // shapes that the claims allow and that hold pods, sold or not
	reach  []Sent         // the cheapest on-demand offering of each shape, even if the claims do not allow the offer; by price
	wares  [Kinds][]ware
	bySize []int // shapes that can be bought, the smallest first
	zones  int   // the most spot offerings of one shape

	axes  []int         // resources, by axis
	value [][]int64     // by axis: the different rooms of shapes, ascending
	rank  [][axes]int16 // by shape

	low   quantity.Vec // scratch: the room of a spot list
	named []int32      // scratch: the wares that a spot launch sends
	sums  []int64      // scratch: the prices of their offerings
}

// A choice is the wares of a market that may still be the answer to questions, in the same order. Each is an index in Market.wares.
type choice struct {
	wares [Kinds][]int32
	reach []Sent
}

// axes is how many resources a market can tell lists apart by.
const axes = 4

// A ware is a shape with its allowed offerings of one kind. A market has its wares in the order of their cheapest offering.
type ware struct {
	first  Sent    // the cheapest offering
	prices []int64 // of all offerings, ascending
}

// A List is what a launch sends for any claim whose pods use no more than Room.
type List struct {
	Room  quantity.Vec // what every shape of the list has
	First Sent
	// Cost is the price in decisions, and Floor the lowest price; see Launch.
	Cost, Floor int64
	VCPU        int64 // of the smallest shape that has the room

	asked [][axes]int16 // the questions to which the list is the answer
}

// A Fill describes the pods for which lists are wanted.
type Fill struct {
	Axes  []int        // resources of which they may use all that a machine has
	Least quantity.Vec // by resource: no pod needs less
	Pods  int64        // how many there are
}

// mostQuestions is the most questions that Lists answers.
const mostQuestions = 20_000

// Market returns the market of some shapes and offers. rooms is what pods may use of each shape.
func (c *Catalog) Market(shapes, offers bits.Set, band Band, rooms []quantity.Vec) *Market {
	m := &Market{c: c, band: band, room: rooms}
	known := bits.Make(len(c.Names))
	at := make([]int32, len(c.Names))
	for k := range m.wares {
		clear(at)
		for i := range c.byPrice[k] {
			x := &c.byPrice[k][i]
			if !shapes.Has(x.Shape) || full(rooms[x.Shape]) {
				continue
			}
			if Kind(k) == OnDemand && !known.Has(x.Shape) {
				known.Add(x.Shape)
				m.reach = append(m.reach, *x)
			}
			if !offers.Has(x.Offer) {
				continue
			}
			if at[x.Shape] == 0 {
				m.wares[k] = append(m.wares[k], ware{first: *x})
				at[x.Shape] = int32(len(m.wares[k]))
			}
			w := &m.wares[k][at[x.Shape]-1]
			w.prices = append(w.prices, x.Price)
		}
	}
	for i := range m.wares[Spot] {
		m.zones = max(m.zones, len(m.wares[Spot][i].prices))
	}
	for s := range c.Names {
		if shapes.Has(s) && !full(rooms[s]) {
			m.shapes = append(m.shapes, s)
		}
	}
	sold := bits.Make(len(c.Names))
	for k := range m.wares {
		for i := range m.wares[k] {
			sold.Add(m.wares[k][i].first.Shape)
		}
	}
	m.bySize = slices.SortedStableFunc(sold.All(), func(a, b int) int { return cmp.Compare(c.VCPU[a], c.VCPU[b]) })
	return m
}

// all returns the choice of all wares.
func (m *Market) all() *choice {
	c := &choice{reach: m.reach}
	for k := range m.wares {
		c.wares[k] = make([]int32, len(m.wares[k]))
		for i := range c.wares[k] {
			c.wares[k][i] = int32(i)
		}
	}
	return c
}

// full reports whether a machine holds no pods, because DaemonSets need more of some resource than it has.
func full(room quantity.Vec) bool { return len(room) > 0 && slices.Min(room) < 0 }

// measure sets the axes, and the ranks of all shapes on them. On axes beyond these, all shapes have rank 1, so question 0 never excludes
// any.
func (m *Market) measure(by []int) {
	m.axes, m.value = by, make([][]int64, len(by))
	m.rank = make([][axes]int16, len(m.c.Names))
	for i, r := range by {
		for _, s := range m.shapes {
			m.value[i] = append(m.value[i], m.room[s][r])
		}
		slices.Sort(m.value[i])
		m.value[i] = slices.Compact(m.value[i])
		for _, s := range m.shapes {
			m.rank[s][i] = m.rankOf(i, m.room[s][r])
		}
	}
	for i := len(by); i < axes; i++ {
		for _, s := range m.shapes {
			m.rank[s][i] = 1
		}
	}
}

// rankOf returns how many values of an axis are at most x.
func (m *Market) rankOf(axis int, x int64) int16 {
	n, _ := slices.BinarySearch(m.value[axis], x+1)
	return int16(n)
}

// exceeds reports whether a shape has a higher rank than above on every axis.
func (m *Market) exceeds(shape int, above *[axes]int16) bool {
	r := &m.rank[shape]
	return r[0] > above[0] && r[1] > above[1] && r[2] > above[2] && r[3] > above[3]
}

// sift sets c to what is left of another choice, or of itself, for pods that use more than above.
func (c *choice) sift(from *choice, m *Market, above *[axes]int16) {
	for k := range from.wares {
		out := c.wares[k][:0]
		for _, w := range from.wares[k] {
			if m.exceeds(m.wares[k][w].first.Shape, above) {
				out = append(out, w)
			}
		}
		c.wares[k] = out
	}
	out := c.reach[:0]
	for _, x := range from.reach {
		if m.exceeds(x.Shape, above) {
			out = append(out, x)
		}
	}
	c.reach = out
}

// dropSmallAtFront is a cheap sift for an above that has grown. It drops what is too small from the front of each list only; the rest of
// what is too small stays, because next looks at each ware itself.
func (c *choice) dropSmallAtFront(m *Market, above *[axes]int16) {
	for k := range c.wares {
		for len(c.wares[k]) > 0 && !m.exceeds(m.wares[k][c.wares[k][0]].first.Shape, above) {
			c.wares[k] = c.wares[k][1:]
		}
	}
	for len(c.reach) > 0 && !m.exceeds(c.reach[0].Shape, above) {
		c.reach = c.reach[1:]
	}
}

// Anchored returns the list for pods that use all CPU and memory of a shape, and all that it has of rare resources (those other than CPU,
// memory and the number of pods). It returns nil if nothing holds them.
func (m *Market) Anchored(shape int) *List {
	if len(m.axes) != 2 || m.axes[0] != quantity.CPU || m.axes[1] != quantity.Memory {
		m.measure([]int{quantity.CPU, quantity.Memory})
	}
	s := sieve{above: [axes]int16{m.rank[shape][0] - 1, m.rank[shape][1] - 1}}
	for r, x := range m.room[shape] {
		if r > quantity.Pods && x > 0 {
			s.rare = slices.Clone(m.room[shape])
			clear(s.rare[:quantity.Pods+1])
			break
		}
	}
	var l List
	if !m.list(m.all(), &s, &l) {
		return nil
	}
	return &l
}

// A sieve is what pods use: more than above, and at least rare.
type sieve struct {
	above [axes]int16
	rare  quantity.Vec // nil for nothing
}

// passes reports whether a shape holds pods that use what the sieve says.
func (m *Market) passes(shape int, s *sieve) bool {
	return m.exceeds(shape, &s.above) && (s.rare == nil || s.rare.Fits(m.room[shape]))
}

// Lists returns every list that launches may send for pods, the cheapest first. complete reports that these are all: for any use of pods
// there is a list with enough room that costs what the launch costs.
//
// A list changes only if pods use more of some axis than one of its shapes has. So the search goes from list to list along the second axis
// (along), for each rank of the first one at which some list ended (sweep), and for all ranks of the others (levels).
func (m *Market) Lists(f Fill) (lists []List, complete bool) {
	if len(m.wares[Spot])+len(m.wares[Reserved]) == 0 {
		return m.singles(), true
	}
	m.measure(f.Axes[:min(len(f.Axes), axes)])
	t := &tour{m: m, fill: &f, known: map[[axes]int16]int{}, answers: map[[axes]int16][axes]int16{}}
	t.levels(2, [axes]int16{}, m.all())
	slices.SortStableFunc(t.lists, func(a, b List) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.First.Shape, b.First.Shape))
	})
	return t.lists, t.questions <= mostQuestions && len(f.Axes) <= axes
}

// singles returns the lists of a market with on-demand offerings only, where a launch costs what its cheapest shape costs. It leaves out a
// list if another one has as much room, is no larger (vCPU) and costs no more.
//
// A larger shape may cost less than a smaller one, as among machines with GPUs. A launch lists both, so pods that fit both get the larger
// one. Therefore there is also a list with the room that both have, the size of the smaller and the price of the larger one.
func (m *Market) singles() []List {
	var out []List
	exotic := func(l *List) bool { return m.c.Exotic.Has(l.First.Shape) }
	contained := func(l *List) bool {
		return slices.ContainsFunc(out, func(o List) bool {
			return l.Room.Fits(o.Room) && o.VCPU <= l.VCPU && o.Cost <= l.Cost && exotic(&o) == exotic(l)
		})
	}
	for _, w := range m.wares[OnDemand] {
		l := List{Room: m.room[w.first.Shape], First: w.first, Cost: w.first.Price, Floor: w.first.Price, VCPU: m.c.VCPU[w.first.Shape]}
		if contained(&l) {
			continue
		}
		for _, o := range out {
			if o.VCPU <= l.VCPU || exotic(&o) != exotic(&l) {
				continue
			}
			o.Room, o.VCPU = slices.Clone(o.Room), l.VCPU
			for r := range o.Room {
				o.Room[r] = min(o.Room[r], l.Room[r])
			}
			if !contained(&o) {
				out = append(out, o)
			}
		}
		if !contained(&l) {
			out = append(out, l)
		}
	}
	return out
}

// A tour collects the lists of a market, question by question.
type tour struct {
	m         *Market
	fill      *Fill
	lists     []List
	known     map[[axes]int16]int         // by the ranks of its room: index of a list
	answers   map[[axes]int16][axes]int16 // by question without its last axis: the ranks of the room of the latest answer
	questions int
	left      [axes]choice // scratch, by axis
}

// levels goes through all ranks of the given axis and of those after it, and sweeps the first two axes for each. left are the wares that
// hold pods that use more than above.
func (t *tour) levels(axis int, above [axes]int16, left *choice) {
	if axis == len(t.m.axes) {
		t.sweep(above, left)
		return
	}
	for rank := range t.m.value[axis] {
		above[axis] = int16(rank)
		next := above
		if t.m.axes[axis] == quantity.Pods && rank > 0 {
			pods := t.m.value[axis][rank-1] + 1
			if pods > t.fill.Pods {
				return
			}
			for i, r := range t.m.axes { // so many pods need at least this much of the other axes
				if i != axis {
					next[i] = max(next[i], t.m.rankOf(i, pods*t.fill.Least[r]-1))
				}
			}
		}
		t.left[axis].sift(left, t.m, &next)
		t.levels(axis+1, next, &t.left[axis])
	}
}

// sweep goes along the second axis for each rank of the first one at which a list ended.
func (t *tour) sweep(above [axes]int16, left *choice) {
	for rank := above[0]; rank >= 0; {
		above[0] = rank
		rank = t.along(above, left)
	}
}

// along goes from list to list along the second axis: the next question is above the room of the last answer there. It returns the lowest
// rank on the first axis that any of these lists has, −1 if there was none.
func (t *tour) along(above [axes]int16, all *choice) (end int16) {
	end = -1
	var left choice
	sifted := false
	for {
		top, ok := t.answered(&above)
		if !ok {
			if t.questions++; t.questions > mostQuestions {
				return -1
			}
			if !sifted {
				t.left[0].sift(all, t.m, &above)
				left, sifted = t.left[0], true
			}
			left.dropSmallAtFront(t.m, &above)
			if top, ok = t.ask(&left, &above); !ok {
				return end
			}
		}
		if end < 0 || top[0] < end {
			end = top[0]
		}
		above[1] = top[1]
	}
}

// answered returns a known answer to a question: that to a question that differs only on the last axis, if all shapes of its list have more
// than above there. It returns false if there is none, or with two axes only.
func (t *tour) answered(above *[axes]int16) (top [axes]int16, ok bool) {
	last := len(t.m.axes) - 1
	if last < 2 {
		return top, false
	}
	top, ok = t.answers[without(above, last)]
	return top, ok && top[last] > above[last]
}

// without returns a question with one axis set to 0.
func without(above *[axes]int16, axis int) [axes]int16 {
	key := *above
	key[axis] = 0
	return key
}

// ask adds the answer to a question to the lists, and returns the ranks of its room; false if nothing holds such pods.
func (t *tour) ask(left *choice, above *[axes]int16) (top [axes]int16, ok bool) {
	var l List
	if !t.m.list(left, &sieve{above: *above}, &l) {
		return top, false
	}
	top = t.m.ranksOf(l.Room)
	at, known := t.known[top]
	if !known {
		at = len(t.lists)
		t.known[top] = at
		l.Room, l.VCPU = slices.Clone(l.Room), t.m.smallest(&l)
		t.lists = append(t.lists, l)
	}
	t.lists[at].asked = append(t.lists[at].asked, *above)
	t.answers[without(above, len(t.m.axes)-1)] = top
	return top, true
}

// smallest returns the VCPU of the smallest shape that can be bought and has the room of a list.
func (m *Market) smallest(l *List) int64 {
	for _, s := range m.bySize {
		if l.Room.Fits(m.room[s]) {
			return m.c.VCPU[s]
		}
	}
	return m.c.VCPU[l.First.Shape]
}

// ranksOf returns the ranks of a room on all axes.
func (m *Market) ranksOf(room quantity.Vec) (out [axes]int16) {
	for i, r := range m.axes {
		out[i] = m.rankOf(i, room[r])
	}
	return out
}

// list sets l to what a launch sends for pods that use what s says, out of the wares in from. It returns false if nothing holds them. It
// prefers ordinary to exotic machines, then reserved to spot to on-demand ones. l.Room is valid until the next call.
func (m *Market) list(from *choice, s *sieve, l *List) bool {
	*l = List{}
	for _, exotic := range []bool{false, true} {
		for k := range Kinds {
			at := m.next(k, from.wares[k], 0, s, exotic)
			if at < 0 {
				continue
			}
			l.First = m.wares[k][from.wares[k][at]].first
			if k == Spot {
				b := m.boundsOf(from, s, exotic)
				if b.most < l.First.Price {
					continue
				}
				m.spot(from.wares[k], at, s, exotic, &b, l)
				return true
			}
			l.Room, l.Cost, l.Floor = m.room[l.First.Shape], l.First.Price, l.First.Price
			return true
		}
	}
	return false
}

// next returns the index in wares, from i on, of the first ware that passes the sieve and is exotic or not, as asked for; −1 if there is
// none.
func (m *Market) next(k Kind, wares []int32, i int, s *sieve, exotic bool) int {
	for ; i < len(wares); i++ {
		if sh := m.wares[k][wares[i]].first.Shape; m.passes(sh, s) && m.c.Exotic.Has(sh) == exotic {
			return i
		}
	}
	return -1
}

// A bounds has the on-demand prices that limit a spot list (Band.Cut).
type bounds struct {
	most    int64 // the cheapest on-demand price that the claims allow; Any if they allow none
	reach   int64 // the cheapest on-demand price, even if they do not allow it; Any if there is none
	bySale  int   // the shape of most, −1 for none
	byReach int   // the shape of reach, −1 for none
}

// boundsOf returns the bounds for pods that use what s says.
func (m *Market) boundsOf(from *choice, s *sieve, exotic bool) bounds {
	b := bounds{most: Any, reach: Any, bySale: -1, byReach: -1}
	if at := m.next(OnDemand, from.wares[OnDemand], 0, s, exotic); at >= 0 {
		w := &m.wares[OnDemand][from.wares[OnDemand][at]]
		b.most, b.bySale = w.first.Price, w.first.Shape
	}
	for i := range from.reach {
		if sh := from.reach[i].Shape; m.passes(sh, s) && (exotic || !m.c.Exotic.Has(sh)) {
			b.reach, b.byReach = from.reach[i].Price, sh
			break
		}
	}
	return b
}

// spot sets l to the list of a spot launch that begins with the ware wares[at]. Its room is what all shapes that it sends have. If an
// on-demand price may have decided where the list ends, the room is also cut to the shape of that price: pods that do not fit that shape
// get another list.
func (m *Market) spot(wares []int32, at int, s *sieve, exotic bool, b *bounds, l *List) {
	l.Floor = l.First.Price
	m.named = m.named[:0]
	types, edge := m.band.Cut(func() (int64, bool) {
		if at < 0 {
			return 0, false
		}
		w := wares[at]
		m.named, at = append(m.named, w), m.next(Spot, wares, at+1, s, exotic)
		return m.wares[Spot][w].first.Price, true
	}, b.most, b.reach)
	m.named = m.named[:types]
	m.low = append(m.low[:0], m.room[l.First.Shape]...)
	l.Room = m.low
	for _, w := range m.named {
		l.cut(m.room[m.wares[Spot][w].first.Shape])
	}
	if b.most < m.band.edge(l.Floor, Any) || types < m.band.Fewest || edge >= min(b.most, b.reach) {
		for _, sh := range []int{b.bySale, b.byReach} {
			if sh >= 0 {
				l.cut(m.room[sh])
			}
		}
	}
	l.Cost = m.band.cost(types, m.mean(edge), l.Floor, b.most)
}

// cut reduces the list's room to what it and room both have.
func (l *List) cut(room quantity.Vec) {
	for r, x := range room {
		l.Room[r] = min(l.Room[r], x)
	}
}

// mean returns the mean price of the named wares' offerings that cost at most edge, and of those the MostOverrides cheapest.
func (m *Market) mean(edge int64) int64 {
	m.sums = m.sums[:0]
	for _, w := range m.named {
		for _, p := range m.wares[Spot][w].prices {
			if p <= edge {
				m.sums = append(m.sums, p)
			}
		}
	}
	if len(m.sums) > MostOverrides {
		slices.Sort(m.sums)
		m.sums = m.sums[:MostOverrides]
	}
	sum := int64(0)
	for _, p := range m.sums {
		sum += p
	}
	return (sum + int64(len(m.sums))/2) / int64(len(m.sums))
}

// Relax changes a list so that it bounds all lists for pods that use as much of the axes, but other amounts of other resources, or for
// which further shapes and offers are ruled out: it gets all room of other resources that any of these may have, and the lowest cost.
func (m *Market) Relax(l *List) {
	l.Room = slices.Clone(l.Room)
	for i := range l.asked {
		for _, s := range m.shapes {
			if !m.exceeds(s, &l.asked[i]) {
				continue
			}
			for r, x := range m.room[s] {
				if !slices.Contains(m.axes, r) {
					l.Room[r] = max(l.Room[r], x)
				}
			}
		}
		l.Cost = min(l.Cost, m.least(&l.asked[i]))
	}
	l.Floor = min(l.Floor, l.Cost)
}

// least returns a cost that no launch for pods that use more than above is below. Which shapes and how many offerings of each a launch
// sends is not known here, so it takes the lowest mean that is possible.
func (m *Market) least(above *[axes]int16) int64 {
	low, most := Any, Any
	var floors []int64
	for k := range m.wares {
		for i := range m.wares[k] {
			w := &m.wares[k][i].first
			if !m.exceeds(w.Shape, above) {
				continue
			}
			if Kind(k) == OnDemand {
				most = min(most, w.Price)
			}
			if Kind(k) != Spot {
				low = min(low, w.Price)
				break
			}
			if floors = append(floors, w.Price); len(floors) == m.band.Spot {
				break
			}
		}
	}
	for n := range floors {
		price := meanOfCheapest(floors[:n+1], int64(m.zones))
		low = min(low, m.band.cost(n+1, price, floors[0], most))
	}
	return low
}

// meanOfCheapest returns the lowest mean of ascending prices, if each counts at least once and at most most times.
func meanOfCheapest(prices []int64, most int64) int64 {
	sum, low := int64(0), Any
	for _, p := range prices {
		sum += p
	}
	for i, p := range prices {
		sum += p * (most - 1)
		n := int64(len(prices)) + int64(i+1)*(most-1)
		low = min(low, sum/n)
	}
	return min(low, prices[len(prices)-1])
}
