package shape

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A Market is what claims of one pool can be bought as, while they allow certain shapes and offers. A claim lists every shape that
// holds its pods, so that what it costs follows from what they use.
type Market struct {
	c      *Catalog
	band   Band
	room   []quantity.Vec // by shape: what pods may use
	shapes []int          // that can be bought, and whose on-demand price bounds what is
	reach  []Sent         // the cheapest on-demand offering of each shape, whether it is allowed or not; by price
	wares  [Kinds][]ware
	bySize []int // shapes that can be bought, the smallest first
	zones  int   // the most spot offerings of one shape

	axes  []int         // what ranks are of
	value [][]int64     // by axis: what shapes have, ascending
	rank  [][axes]int16 // by shape: the place of what it has among values, from 1

	low   quantity.Vec // scratch
	named []int32      // wares
	sums  []int64
}

// A choice is the wares that are left of a market, in the same order.
type choice struct {
	wares [Kinds][]int32
	reach []Sent
}

// axes is how many resources a market can tell lists apart by.
const axes = 4

// A ware is a shape with the prices of its allowed offerings of one kind, ascending. Wares are listed by the first of them.
type ware struct {
	first  Sent
	prices []int64
}

// A List is what a launch sends for any claim whose pods use no more than Room.
type List struct {
	Room  quantity.Vec
	First Sent
	// Cost is what decisions reckon with, and Floor the lowest price; see Launch.
	Cost, Floor int64
	VCPU        int64 // of the smallest shape that has the room

	asked [][axes]int16 // what pods use more than, to whom it is the answer
}

// A Fill says what is known of the pods that markets are asked for.
type Fill struct {
	Axes  []int        // resources of which they may use all that a machine has
	Least quantity.Vec // no pod needs less
	Pods  int64        // how many there are
}

// mostQuestions is how many lists are worked out at most.
const mostQuestions = 20_000

// Market returns what can be bought under shapes and offers. rooms says what pods may use of each shape.
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

// all is the choice of everything.
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

// full reports whether a machine holds nothing, because there is less of something than daemons take.
func full(room quantity.Vec) bool { return len(room) > 0 && slices.Min(room) < 0 }

// measure ranks the shapes by what they have of the axes.
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
			m.rank[s][i] = 1 // enough
		}
	}
}

// rankOf returns how many values of an axis are at most x.
func (m *Market) rankOf(axis int, x int64) int16 {
	n, _ := slices.BinarySearch(m.value[axis], x+1)
	return int16(n)
}

func (m *Market) exceeds(shape int, above *[axes]int16) bool {
	r := &m.rank[shape]
	return r[0] > above[0] && r[1] > above[1] && r[2] > above[2] && r[3] > above[3]
}

// sift makes c what is left of another choice, or of itself, for pods that use more than above.
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

// trim drops what comes first and is too small.
func (c *choice) trim(m *Market, above *[axes]int16) {
	for k := range c.wares {
		for len(c.wares[k]) > 0 && !m.exceeds(m.wares[k][c.wares[k][0]].first.Shape, above) {
			c.wares[k] = c.wares[k][1:]
		}
	}
	for len(c.reach) > 0 && !m.exceeds(c.reach[0].Shape, above) {
		c.reach = c.reach[1:]
	}
}

// Anchored returns what is sent for pods that fill a shape's CPU and memory, and use something of whatever else it has that is rare.
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

// A sieve is what pods use: more than above, and all that is rare.
type sieve struct {
	above [axes]int16
	rare  quantity.Vec
}

func (m *Market) passes(shape int, s *sieve) bool {
	return m.exceeds(shape, &s.above) && (s.rare == nil || s.rare.Fits(m.room[shape]))
}

// Lists returns every list that launches may send for pods, the cheapest first, and whether these are all: whatever pods use, there is a
// list with as much room that costs as much as the launch.
//
// What a claim sends changes only when its pods use more of some resource than one of the shapes that are sent has. So it goes from list
// to list along the second axis, for each amount of the first one at which some list ended, and for all amounts of the others.
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

// singles returns the lists of launches that pay for one shape: each of those that no cheaper one contains, as small or smaller.
//
// A larger shape may cost less than a small one, as among machines with GPUs. Pods that were placed for the small
// one are on the larger one then, because a launch lists both; what both have room for is a list as small as the
// small one at the price of the other.
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

// A tour collects the lists of a market.
type tour struct {
	m         *Market
	fill      *Fill
	lists     []List
	known     map[[axes]int16]int         // by the ranks of their room
	answers   map[[axes]int16][axes]int16 // by question: the ranks of the room of the answer
	questions int
	left      [axes]choice // scratch
}

// levels goes through the amounts of the axes from one on, and for each through the lists of what is left.
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
			for i, r := range t.m.axes { // so many pods use much else
				if i != axis {
					next[i] = max(next[i], t.m.rankOf(i, pods*t.fill.Least[r]-1))
				}
			}
		}
		t.left[axis].sift(left, t.m, &next)
		t.levels(axis+1, next, &t.left[axis])
	}
}

// sweep goes along the second axis for each amount of the first one.
func (t *tour) sweep(above [axes]int16, left *choice) {
	for rank := above[0]; rank >= 0; {
		above[0] = rank
		rank = t.along(above, left)
	}
}

// along goes from list to list along the second axis, and returns the least rank of the first one at which a list ended, −1 if there
// was none.
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
			left.trim(t.m, &above)
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

// answered looks for the answer to a question among those about the same amounts of all but the last axis: it is the same where every
// shape of that list has enough.
func (t *tour) answered(above *[axes]int16) (top [axes]int16, ok bool) {
	last := len(t.m.axes) - 1
	if last < 2 {
		return top, false
	}
	top, ok = t.answers[t.but(above, last)]
	return top, ok && top[last] > above[last]
}

func (t *tour) but(above *[axes]int16, axis int) [axes]int16 {
	key := *above
	key[axis] = 0
	return key
}

// ask adds the answer to a question to the lists.
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
	t.answers[t.but(above, len(t.m.axes)-1)] = top
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

func (m *Market) ranksOf(room quantity.Vec) (out [axes]int16) {
	for i, r := range m.axes {
		out[i] = m.rankOf(i, room[r])
	}
	return out
}

// list makes l what is sent for pods, and returns false if nothing is. Its room is valid until the next question.
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

// next returns the first ware from i on that is enough for the pods and is exotic or not.
func (m *Market) next(k Kind, wares []int32, i int, s *sieve, exotic bool) int {
	for ; i < len(wares); i++ {
		if sh := m.wares[k][wares[i]].first.Shape; m.passes(sh, s) && m.c.Exotic.Has(sh) == exotic {
			return i
		}
	}
	return -1
}

// bounds are what on-demand prices say about spot, and the shapes that say it; −1 for none.
type bounds struct {
	most, reach     int64
	bySale, byReach int
}

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

// spot makes l the list of a launch of spot, from the ware at on.
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
		for _, sh := range []int{b.bySale, b.byReach} { // without it the list would be another one
			if sh >= 0 {
				l.cut(m.room[sh])
			}
		}
	}
	l.Cost = m.band.cost(types, m.mean(edge), l.Floor, b.most)
}

func (l *List) cut(room quantity.Vec) {
	for r, x := range room {
		l.Room[r] = min(l.Room[r], x)
	}
}

// mean is what is paid for the named wares: the mean of their offerings up to edge.
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

// Relax makes a list a bound on others: on what is sent for pods that use as much of the axes, whatever they use of other resources, and
// whatever shapes and offers are ruled out for them besides.
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

// least is no more than any launch costs for pods that use more than above. Which of the shapes it may send, and how many offerings of
// each, is not known, so that the cheapest may weigh most.
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

// meanOfCheapest is the lowest mean of prices, ascending, of which each counts once or up to most times.
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
