package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// A pool may say that the types of a claim have so many values of a label together at least. What a claim takes from the pool's limit is then
// the largest of as many types as that needs, and it takes that from the beginning.

// A minimum is how a new node of a pool with minValues meets them.
type minimum struct {
	low     []int        // by minValues of the template: what was lowered to; nil where nothing was
	reserve quantity.Vec // what the node takes from its pool's limit; nil where nothing is limited
}

// admitMinValues asks whether enough types are left that could hold the pods of a new bin with this one.
func (f *fleet) admitMinValues(q *trial) verdict {
	n := f.node(q.bin)
	if n == nil || len(f.template(n).Min) == 0 {
		return verdict{}
	}
	tmpl := f.template(n)
	need := f.used(q.bin)
	need.Add(q.c.Need)
	shapes := f.holding(q.bin, q.mask, need, f.match(q.v, n.tmpl))
	f.cutDomains(q.bin, shapes)
	f.cutDaemons(tmpl, n.target, shapes)
	f.cutChosen(q, n.tmpl, shapes)
	f.cutPorts(q.bin, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, tmpl, sh) })
	f.cutVolumesWith(q.bin, q.c.Volumes, shapes)
	if n.min.reserve != nil {
		shapes.Only(func(sh int) bool { return tmpl.Catalog.Capacity[sh].Fits(n.min.reserve) })
	}
	if _, _, ok := tmpl.diverse(shapes, n.min.low); !ok {
		return verdict{reason.MinValues, true}
	}
	return verdict{}
}

// lowered returns what minValues were lowered to, nil where none was.
func (n *newNode) lowered() []int {
	if n.min == nil {
		return nil
	}
	return n.min.low
}

// diverse reports whether shapes have as many values as a template wants, low where that was lowered, else which of its minValues they do not meet
// and how many values they have.
func (t *Template) diverse(shapes bits.Set, low []int) (unmet, has int, ok bool) {
	for k, m := range t.Min {
		want := m.N
		if low != nil {
			want = low[k]
		}
		if n := t.Catalog.Distinct(m.Key, shapes, want); n < want {
			return k, n, false
		}
	}
	return 0, 0, true
}

// lower lowers minValues to what shapes have, where that may be done. It returns the one that it may not lower.
func (f *fleet) lower(t *Template, shapes bits.Set, low []int) (lowered []int, unmet int, ok bool) {
	for {
		k, has, ok := t.diverse(shapes, low)
		if ok {
			return low, 0, true
		}
		if !f.p.Settings.MinBestEffort || has == 0 {
			return nil, k, false
		}
		if low = slices.Clone(low); low == nil {
			for _, m := range t.Min {
				low = append(low, m.N)
			}
		}
		low[k] = has
	}
}

// meetMinValues checks minValues for a new node with one pod, and says what it takes from a limit.
func (f *fleet) meetMinValues(q *trial, best target, mask bits.Set) (target, reason.Code) {
	tmpl := &f.p.Templates[best.tmpl]
	shapes := f.buyable(best.tmpl, mask, q.c.Need)
	shapes.Keep(f.match(q.v, best.tmpl).Shapes)
	f.cutChosen(q, best.tmpl, shapes)
	f.cutDaemons(tmpl, best.shape, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, tmpl, sh) })
	best.min = &minimum{}
	if limit := &f.limits[tmpl.Pool]; limit.Limited {
		best.min.reserve = f.smallest(tmpl, limit, best.shape, shapes)
		if !limit.Fits(best.min.reserve) {
			return target{tmpl: noTemplate}, reason.Limit
		}
	}
	low, unmet, ok := f.lower(tmpl, shapes, nil)
	if !ok {
		return target{tmpl: noTemplate, unmet: unmet}, reason.MinValues
	}
	best.min.low = low
	return best, 0
}

// smallest cuts shapes to the smallest machines that meet minValues within the limit, and returns the largest capacity among them: what the
// claim takes from the limit.
func (f *fleet) smallest(t *Template, limit *limits.Pool, target int, shapes bits.Set) quantity.Vec {
	var order []int
	for sh := range shapes.All() {
		if limit.Fits(t.Catalog.Capacity[sh]) {
			order = append(order, sh)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(t.Catalog.Capacity[a][quantity.CPU], t.Catalog.Capacity[b][quantity.CPU])
	})
	clear(shapes)
	shapes.Add(target)
	for _, sh := range order {
		if _, _, ok := t.diverse(shapes, nil); ok {
			break
		}
		shapes.Add(sh)
	}
	return f.largestOf(t, shapes)
}
