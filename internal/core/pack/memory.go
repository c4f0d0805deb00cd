package pack

import (
	"cmp"
	"encoding/binary"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
)

// A Memory is what one answer leaves for the next question: where items went and what room was worth. When nearly the same is asked
// again, the fleet is kept but for what changed, and the bound follows from the old prices of room, which prove one for any items as
// long as cells are the same. A Memory never changes.
//
// It is the observation that prices of room outlive the items that they were found with. Room of a cell is priced so that a full one is
// worth its price; that says nothing of any item. So for new items in the same cells the old prices prove a bound right away, and it is as
// good as before as long as demand has about the same proportions, since those are what prices come from.
//
// The fleet outlives a change, too: what is gone leaves room, what is new goes there or is packed with the items of the nodes that waste
// most. Whether that was good enough is measured, not hoped for: if fleet and bound are farther apart than they were, the question is
// asked from the beginning.
type Memory struct {
	over  int // cells up to so many steps too large were open to every class
	cells []Cell
	kinds map[string]int // items by kind
	total int
	fleet []Pattern // classes are those of labels
	names []string  // kind of each class of the fleet
	room  []float64 // cell*dims: nano-dollars of a unit of room; 0 where a cell was not looked at
	dims  int
	ratio float64 // price of the fleet over the bound that room proves; 0 without a fleet
}

const (
	// memoryLeast is from how many items on remembering is worth the trouble.
	memoryLeast = 200
	// memoryChange is which part of the items may be others, one of so many.
	memoryChange = 50
	// memorySlip is how much farther from the bound the kept fleet may get, in parts, before everything is looked at again.
	memorySlip = 3e-3
	// memoryProof is how much better than by prices of room a bound may be known, in parts. Beyond it, forgetting it would show.
	memoryProof = 5e-4
)

// kindOf identifies all classes that are the same to a packer.
func kindOf(c *Class) string {
	key := make([]byte, 0, 8*(len(c.Need)+len(c.Cells)+2))
	for _, n := range c.Need {
		key = binary.LittleEndian.AppendUint64(key, uint64(n))
	}
	key = binary.LittleEndian.AppendUint64(key, uint64(c.PerNode))
	if c.Cells != nil {
		key = append(key, 's')
		for _, w := range c.Cells {
			key = binary.LittleEndian.AppendUint64(key, w)
		}
	}
	return string(key)
}

// remember makes the memory of an answer, or nil where there is nothing to gain: proven is the solution that proves the bound.
//
// Nothing is remembered of what would not be proven by prices of room alone: a part that was bounded by the configuration LP or in whole
// nodes would answer the next question with a worse bound than it had, and a reader of both would wonder.
func remember(p *Problem, proven *solution, fleet []Pattern) *Memory {
	m := &Memory{over: proven.over, kinds: map[string]int{}, fleet: fleet}
	if len(p.Conflicts) > 0 || len(p.Classes) == 0 {
		return nil
	}
	for i := range p.Classes {
		m.total += p.Classes[i].Count
	}
	if m.total < memoryLeast {
		return nil
	}
	m.cells, m.dims = p.Cells, len(p.Classes[0].Need)
	for i := range p.Classes {
		kind := kindOf(&p.Classes[i])
		m.names = append(m.names, kind)
		m.kinds[kind] += p.Classes[i].Count
	}
	m.room = make([]float64, len(p.Cells)*m.dims)
	var bound float64
	for _, r := range proven.runs {
		if r.unit.cells == nil || r.best.lost > 0 {
			return nil
		}
		bound += float64(r.p.lagrange(r.pricing) * float64(1+len(r.twins)))
		for _, q := range append([]*part{r.p}, r.twins...) {
			m.note(q, r.unit)
		}
	}
	if bound <= 0 || proven.bound() > bound*(1+memoryProof) {
		return nil
	}
	if fleet != nil {
		m.ratio = float64(verify.Price(p, fleet)) / bound
	}
	return m
}

func (m *Memory) note(q *part, w *unitWorth) {
	for c := range q.cells {
		for i, d := range q.axis {
			m.room[q.cells[c].origin*m.dims+d] = w.cells[c*q.dims+i] / float64(q.unit[i])
		}
	}
}

// near reports whether p asks nearly the same, and how many items are others.
//
// Cells must be equal to the last dollar. Old prices of room prove nothing once a machine is cheaper than they say, and finding out which
// ones changed would be the work that is to be spared.
func (m *Memory) near(p *Problem) (changed int, ok bool) {
	if m == nil || len(p.Conflicts) > 0 || len(p.Classes) == 0 || len(p.Classes[0].Need) != m.dims {
		return 0, false
	}
	if !slices.EqualFunc(p.Cells, m.cells, func(a, b Cell) bool {
		return a.Price == b.Price && a.Own == b.Own && a.Over == b.Over && a.Stock == b.Stock && slices.Equal(a.Room, b.Room)
	}) {
		return 0, false
	}
	now := make(map[string]int, len(p.Classes))
	for i := range p.Classes {
		now[kindOf(&p.Classes[i])] += p.Classes[i].Count
	}
	for kind, n := range now {
		changed += max(n-m.kinds[kind], 0)
	}
	for kind, n := range m.kinds {
		changed += max(n-now[kind], 0)
	}
	return changed, changed*memoryChange <= m.total
}

// patterns translates the fleet to the classes of p. Nodes with items that are no longer known are left out.
func (m *Memory) patterns(p *Problem) []Pattern {
	class := make(map[string]int, len(p.Classes))
	for i := range p.Classes {
		class[kindOf(&p.Classes[i])] = i
	}
	out := make([]Pattern, 0, len(m.fleet))
	for _, pat := range m.fleet {
		items := make([]Item, 0, len(pat.Items))
		for _, it := range pat.Items {
			k, ok := class[m.names[it.Class]]
			if !ok {
				break
			}
			items = append(items, Item{Class: k, Count: it.Count})
		}
		if len(items) == len(pat.Items) {
			out = append(out, Pattern{Cell: pat.Cell, Nodes: pat.Nodes, Items: items})
		}
	}
	return out
}

// recall prices room as the memory knows it. It returns false for a cell of which nothing is known.
//
// Old prices are scaled to what a node costs again, because the units of the new part may be others: what no item asks for any more has
// been dropped, and what is counted by fours may now be counted by twos.
func (r *run) recall(m *Memory) bool {
	p := r.p
	w := &unitWorth{dims: p.dims, cells: make([]float64, len(p.cells)*p.dims), limit: make([]float64, len(p.limits))}
	cells := r.open()
	for _, c := range cells {
		cell := &p.cells[c]
		room := w.cells[c*p.dims : (c+1)*p.dims]
		known := false
		for i, d := range p.axis {
			room[i] = float64(m.room[cell.origin*m.dims+d] * float64(p.unit[i]))
			known = known || room[i] > 0 && cell.room[i] > 0
		}
		if !known || cell.stock > 0 || cell.price == 0 {
			return false
		}
		cell.settle(room)
	}
	worth, _, ok := p.leastWorth(w, cells)
	r.b.charge(len(cells) * p.classes() * (p.dims + 2))
	if ok {
		r.guiding = nil
		r.use(pricing{worth, w})
	}
	return ok
}

// refill takes the nodes apart that hold the least for their price, to give the items that are new a better place.
//
// How much to take apart is not known beforehand: little keeps what was good, much finds better places for what is new. The greedy is
// quick enough to try three amounts and keep the best.
func (r *run) refill() {
	if r.best == nil || r.best.lost > 0 {
		return
	}
	kept := slices.Clone(r.best.nodes)
	waste := func(n *nodes) float64 { return 1 - n.worth(r.worth)/float64(max(r.p.cells[n.cell].price, 1)) }
	slices.SortStableFunc(kept, func(a, b nodes) int { return cmp.Compare(waste(&a), waste(&b)) })
	for _, share := range []int{50, 20, 8} { // one of so many groups of equal nodes is taken apart
		t := r.newPartial()
		for i := range kept[:len(kept)-len(kept)/share] {
			t.buy(&kept[i].load, kept[i].n)
		}
		if r.b.over {
			return
		}
		r.complete(t, r.worth)
	}
}

// answer answers a question that is nearly the question of the memory, or returns nil: what did not change stays where it was, the
// rest is packed greedily. That is given up where the fleet gets noticeably farther from the bound.
//
// The memory that goes with such an answer is the old one, not one of this answer. A chain of small changes is so compared with the fleet
// at its beginning each time, and cannot drift away by a little at each link.
func (m *Memory) answer(p *Problem, b *budget) *Result {
	changed, near := m.near(p)
	if !near || m.ratio == 0 {
		return nil
	}
	s := newSolution(openUpTo(split(p), m.over), b, m.over)
	start := m.patterns(p)
	for _, r := range s.runs {
		if !r.recall(m) {
			return nil
		}
		r.warm(start)
		if changed > 0 {
			r.refill()
		}
		if r.best == nil {
			return nil
		}
	}
	if price, lost := s.sum(); lost > 0 || b.over || float64(price) > s.bound()*m.ratio*(1+memorySlip) {
		return nil
	}
	out := s.result(p, b)
	out.Memory = m
	return out
}

// bound proves a bound for a question that is nearly the question of the memory, or returns nil. Cells up to so many steps too large are
// open to all.
func (m *Memory) bound(p *Problem, over int) *Result {
	if _, near := m.near(p); !near {
		return nil
	}
	s := newSolution(openUpTo(split(p), over), newBudget(Options{}), over)
	for _, r := range s.runs {
		if !r.recall(m) {
			return nil
		}
		r.best = &fleet{}
	}
	out := &Result{Memory: m}
	s.prove(p, out)
	return out
}
