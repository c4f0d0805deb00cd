package pack

import (
	"cmp"
	"encoding/binary"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
)

// A Memory keeps what one answer has for the next question: where items went, and what room was worth. If the next question is nearly the
// same, the fleet stays except for what changed, and the old prices of room prove the bound. A Memory never changes.
//
// Prices of room prove a bound for any items: the room of a cell is priced so that a full node is worth its price for any items that fill
// it. So old prices prove a bound for new items in the same cells at once. The bound is as good as before while demand has about the same
// proportions, because prices follow from these.
//
// Items that are gone leave room in the fleet. New items go there, or are packed together with the items of the nodes that waste most. If
// fleet and bound are then farther apart than before, the memory is not used, and the question is solved from the beginning.
type Memory struct {
	over  int // cells up to so many steps too large were open to every class
	cells []Cell
	kinds map[string]int // number of items by kind (kindOf)
	total int            // items of all kinds
	fleet []Pattern      // Item.Class is an index in names
	names []string       // kind of each class of the fleet
	room  []float64      // cell*dims: nano-dollars of a unit of room; 0 for cells that were not priced
	dims  int
	ratio float64 // price of the fleet over the bound that room proves; 0 without a fleet
}

const (
	// memoryLeast is the number of items from which a question gets a memory.
	memoryLeast = 200
	// memoryChange: a memory is used if at most one of so many items changed.
	memoryChange = 50
	// memorySlip is by which part the ratio of price to bound may rise before a question is solved from the beginning.
	memorySlip = 3e-3
	// memoryProof is by which part the proven bound may be above the bound by prices of room alone. If it is more, there is no memory.
	memoryProof = 5e-4
)

// kindOf returns a key that is equal for classes with the same needs, the same most per node and the same cells.
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

// remember returns the memory of an answer, or nil if it would not help. proven is the solution that proves the bound; fleet is nil if only
// a bound was asked for.
//
// There is no memory if the bound is clearly better than a bound by prices of room alone, as after the configuration LP or branch and
// price. Otherwise the next question, which is nearly the same, would get a worse bound for no visible reason.
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

// note writes the prices of room of a part, in the cells, dimensions and units of the problem.
func (m *Memory) note(q *part, w *unitWorth) {
	for c := range q.cells {
		for i, d := range q.axis {
			m.room[q.cells[c].origin*m.dims+d] = w.cells[c*q.dims+i] / float64(q.unit[i])
		}
	}
}

// near reports whether p asks nearly the same question, and how many items came or went.
//
// All numbers of the cells must be equal: old prices of room prove nothing once a machine costs less.
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

// patterns returns the fleet with the classes of p. It leaves out nodes with an item whose class p does not have.
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

// recall makes the memory's prices of room the pricing of the run. It returns false, and changes nothing, if the memory has no prices for
// one of the cells, if a cell is free or in short stock, or if a class fits no cell.
//
// settle scales the old prices to the price of each node again: the new part may have dropped a dimension that no item needs any more.
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

// refill improves the best fleet by emptying the nodes that hold the least for their price and packing their items again, so that new items
// get a better place. It tries three numbers of nodes and keeps the cheapest fleet, because the right number is not known beforehand.
func (r *run) refill() {
	if r.best == nil || r.best.lost > 0 {
		return
	}
	kept := slices.Clone(r.best.nodes)
	waste := func(n *nodes) float64 { return 1 - n.worth(r.worth)/float64(max(r.p.cells[n.cell].price, 1)) }
	slices.SortStableFunc(kept, func(a, b nodes) int { return cmp.Compare(waste(&a), waste(&b)) })
	for _, share := range []int{50, 20, 8} { // one of so many groups of equal nodes is emptied
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

// answer answers a question that is nearly the question of the memory. Old items stay where they were, except those of the nodes that waste
// most: refill packs these again, together with the new items. It returns nil if the memory has no fleet, the question differs too much,
// items have no place, or the fleet would be noticeably farther from its bound than before.
//
// The result carries the old memory and no new one. So after many small changes the fleet is still compared with the first one, and the
// small losses of each change cannot add up unseen.
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

// bound proves a bound for a question that is nearly the question of the memory; it returns nil if the memory cannot. Cells that are up to
// over steps too large are open to all items.
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
