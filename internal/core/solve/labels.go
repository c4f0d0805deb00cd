package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// For existing nodes the problem itself says which labels and taints admit a class. A new bin has a mask: one bit for each choice that
// the launch may still make. The bits are in segments, and at least one bit of each segment has to stay.

// admitLabels checks the pod's requirements and tolerations against a new bin's template, and narrows the trial's choices to those that
// meet them. It admits the pod to every existing node, because callers ask only about nodes that suit it (see firstOpen).
func (f *fleet) admitLabels(q *trial) verdict {
	n := f.bins.node(q.bin)
	if n == nil {
		return verdict{}
	}
	if !f.facts.tolerates(q.v, n.tmpl) {
		return verdict{reason.Taint, true}
	}
	m := f.facts.match(q.v, n.tmpl)
	if !m.OK || m.Shapes != nil && !m.Shapes.Has(n.target) {
		return verdict{reason.LabelMismatch, true}
	}
	copy(q.mask, f.bins.maskOf(q.bin))
	if m.Mask != nil {
		q.mask.And(m.Mask)
		if !f.facts.sells(f.bins.template(n), n.target, q.mask) {
			return verdict{reason.LabelMismatch, true}
		}
	}
	return verdict{}
}

// openLabels gives a new bin all choices of its template.
func (b *bins) openLabels(bin problem.BinID) {
	b.mask = append(b.mask, make([]uint64, b.facts.width)...)
	copy(b.maskOf(bin), b.template(b.node(bin)).Mask)
}

// sells reports whether a shape of a template can be bought with the choices that mask leaves.
func (f *facts) sells(tmpl *problem.Template, sh int, mask bits.Set) bool {
	if len(tmpl.Segments) == 1 {
		return tmpl.ShapeMask[sh].Meets(mask)
	}
	both := f.both[:len(tmpl.Mask)]
	copy(both, mask)
	both.And(tmpl.ShapeMask[sh])
	return tmpl.SellsAny(both)
}

// holding returns the shapes that can hold need, can be bought under mask, and meet the requirements of every pod on the bin, and of one
// more pod if more is not nil.
func (b *bins) holding(bin problem.BinID, mask bits.Set, need quantity.Vec, more *problem.Match) bits.Set {
	n := b.node(bin)
	shapes := b.buyable(n.tmpl, mask, need)
	for _, put := range n.puts {
		shapes.Keep(b.facts.match(&b.facts.p.Classes[put.Class].Variants[put.Variant], n.tmpl).Shapes)
	}
	if more != nil {
		shapes.Keep(more.Shapes)
	}
	return shapes
}

// buyable returns the shapes of a template that can hold need and can be bought under mask. The next call overwrites the result.
func (b *bins) buyable(t problem.TemplateID, mask bits.Set, need quantity.Vec) bits.Set {
	tmpl := &b.facts.p.Templates[t]
	b.facts.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	clear(b.facts.shapes)
	for sh := tmpl.Shapes.Next(0); sh >= 0; sh = tmpl.Shapes.Next(sh + 1) {
		if need.Fits(tmpl.Room[sh]) && b.facts.sells(tmpl, sh, mask) {
			b.facts.shapes.Add(sh)
		}
	}
	return b.facts.shapes
}

// sold returns how many shapes of a template can be bought under the choices that a variant leaves.
func (f *facts) sold(m *problem.Match, t problem.TemplateID) int {
	tmpl := &f.p.Templates[t]
	if m.Mask == nil {
		return tmpl.Shapes.Count() // every shape of a template can be bought with some choice
	}
	mask := tmpl.Mask.Clone()
	mask.And(m.Mask)
	return tmpl.CountShapes(func(sh int) bool { return f.sells(tmpl, sh, mask) })
}

// matching returns how many shapes of a template agree with a variant's requirements.
func matching(m *problem.Match, shapes bits.Set) int {
	both := shapes.Clone()
	both.Keep(m.Shapes)
	return both.Count()
}

// meetsAny reports whether a new node of shape sh, with the choices that mask leaves, may meet at least one of the listed requirements.
func (f *facts) meetsAny(list []int, t problem.TemplateID, sh int, mask bits.Set) bool {
	tmpl := &f.p.Templates[t]
	return slices.ContainsFunc(list, func(reqs int) bool {
		m := &f.p.Labels.OnTemplate[reqs][t]
		if !m.OK || m.Shapes != nil && !m.Shapes.Has(sh) {
			return false
		}
		both := f.both[:len(tmpl.Mask)]
		copy(both, mask)
		if m.Mask != nil {
			both.And(m.Mask)
		}
		return tmpl.SellsAny(both)
	})
}
