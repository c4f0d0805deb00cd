package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
)

func (b *bins) admitRoom(q *trial) verdict {
	if !q.c.Need.Fits(b.roomOf(q.bin)) {
		return verdict{reason.TooLarge, true}
	}
	return verdict{}
}

// takeRoom takes the needs of n pods from a bin's room and from the demand that is still to be placed.
func (b *bins) takeRoom(q *trial, n int) {
	room := b.roomOf(q.bin)
	for r, x := range q.c.Need {
		room[r] -= x * int64(n)
		b.demand[r] -= x * int64(n)
	}
	if !b.facts.least.Fits(room) {
		b.alive.Remove(int(q.bin))
	}
}

func (b *bins) openRoom(bin problem.BinID) {
	n := b.node(bin)
	b.room = append(b.room, b.template(n).Room[n.target]...)
	b.alive = b.alive.Grow(int(bin))
	b.alive.Add(int(bin))
}

// used returns what the pods of a new bin use.
func (b *bins) used(bin problem.BinID) quantity.Vec {
	n := b.node(bin)
	u := slices.Clone(b.template(n).Room[n.target])
	u.Sub(b.roomOf(bin))
	return u
}

// A roomTable remembers, for each template, what its shapes have of each resource, so that many pods that are too large are
// refused and explained without looking at every shape.
type roomTable struct {
	most   []quantity.Vec // [template] the most that any shape has of each resource; made when first needed
	sorted [][][]int64    // [template][resource] what the shapes have, ascending; made when first needed
}

// tooLargeFor reports whether no shape of a template has enough of some resource.
func (f *facts) tooLargeFor(need quantity.Vec, t problem.TemplateID) bool {
	if f.rooms.most == nil {
		f.rooms.most = make([]quantity.Vec, len(f.p.Templates))
	}
	if f.rooms.most[t] == nil {
		most := make(quantity.Vec, f.p.Resources)
		for sh := range f.p.Templates[t].Shapes.All() {
			most.Max(f.p.Templates[t].Room[sh])
		}
		f.rooms.most[t] = most
	}
	return !need.Fits(f.rooms.most[t])
}

// shortOf returns how many shapes of a template have less than need of each resource.
func (f *facts) shortOf(need quantity.Vec, t problem.TemplateID) []int {
	if f.rooms.sorted == nil {
		f.rooms.sorted = make([][][]int64, len(f.p.Templates))
	}
	if f.rooms.sorted[t] == nil {
		columns := make([][]int64, f.p.Resources)
		for sh := range f.p.Templates[t].Shapes.All() {
			for r, x := range f.p.Templates[t].Room[sh] {
				columns[r] = append(columns[r], x)
			}
		}
		for _, c := range columns {
			slices.Sort(c)
		}
		f.rooms.sorted[t] = columns
	}
	out := make([]int, len(need))
	for r, x := range need {
		out[r], _ = slices.BinarySearch(f.rooms.sorted[t][r], x)
	}
	return out
}

// fitting reports whether any shape of a template has enough of everything.
func (f *facts) fitting(need quantity.Vec, t problem.TemplateID) bool {
	if f.tooLargeFor(need, t) {
		return false
	}
	for sh := range f.p.Templates[t].Shapes.All() {
		if need.Fits(f.p.Templates[t].Room[sh]) {
			return true
		}
	}
	return false
}
