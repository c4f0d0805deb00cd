package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// Labels and taints of nodes that exist are columns of the problem, which say before any trial which of them a
// class may ask. What a new bin may still become is its mask: a bit for each choice, in segments of which one bit
// each has to stay.

// admitLabels asks a new bin's template about the pod's requirements and tolerations, and narrows its choices.
func (f *fleet) admitLabels(q *trial) verdict {
	n := f.node(q.bin)
	if n == nil {
		return verdict{}
	}
	if !f.tolerates(q.v, n.tmpl) {
		return verdict{reason.Taint, true}
	}
	m := f.match(q.v, n.tmpl)
	if !m.OK || m.Shapes != nil && !m.Shapes.Has(n.target) {
		return verdict{reason.LabelMismatch, true}
	}
	copy(q.mask, f.maskOf(q.bin))
	if m.Mask != nil {
		q.mask.And(m.Mask)
		if !f.sells(f.template(n), n.target, q.mask) {
			return verdict{reason.LabelMismatch, true}
		}
	}
	return verdict{}
}

func (f *fleet) openLabels(bin problem.BinID) {
	f.mask = append(f.mask, make([]uint64, f.width)...)
	copy(f.maskOf(bin), f.template(f.node(bin)).Mask)
}

// sells reports whether a shape can be bought under mask.
func (f *facts) sells(tmpl *problem.Template, sh int, mask bits.Set) bool {
	if len(tmpl.Segments) == 1 {
		return tmpl.ShapeMask[sh].Meets(mask)
	}
	both := f.both[:len(tmpl.Mask)]
	copy(both, mask)
	both.And(tmpl.ShapeMask[sh])
	return tmpl.SellsAny(both)
}

// holding returns the shapes that can hold need, allow mask and satisfy every pod of the bin, and more if given.
func (f *fleet) holding(bin problem.BinID, mask bits.Set, need quantity.Vec, more *problem.Match) bits.Set {
	n := f.node(bin)
	shapes := f.buyable(n.tmpl, mask, need)
	for _, put := range n.puts {
		shapes.Keep(f.match(&f.p.Classes[put.Class].Variants[put.Variant], n.tmpl).Shapes)
	}
	if more != nil {
		shapes.Keep(more.Shapes)
	}
	return shapes
}

// buyable returns the shapes of a template that can hold need and be bought under mask. It is in memory that the next call uses again.
func (f *fleet) buyable(t problem.TemplateID, mask bits.Set, need quantity.Vec) bits.Set {
	tmpl := &f.p.Templates[t]
	f.meter.Charge(work.Units(len(tmpl.Room)) * shapeWork)
	clear(f.shapes)
	for sh := tmpl.Shapes.Next(0); sh >= 0; sh = tmpl.Shapes.Next(sh + 1) {
		if need.Fits(tmpl.Room[sh]) && f.sells(tmpl, sh, mask) {
			f.shapes.Add(sh)
		}
	}
	return f.shapes
}

// sold returns how many shapes of a template can be bought under the choices that a variant leaves.
func (f *facts) sold(m *problem.Match, t problem.TemplateID) int {
	tmpl := &f.p.Templates[t]
	if m.Mask == nil {
		return tmpl.Shapes.Count() // what the pool lists can be bought somehow
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

// meetsAny reports whether a new node of a template may meet one of some requirements, as a machine of some shape with these choices left.
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
