package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// A pool may say that the types of a claim have so many values of a label together at least. What a claim takes
// from the pool's limit is then the largest of as many types as that needs, and it takes that from the beginning.

// A minimum is how a new node of a pool with minValues meets them.
type minimum struct {
	low     []int        // by minValues of the template: what was lowered to; nil where nothing was
	reserve quantity.Vec // what the node takes from its pool's limit; nil where nothing is limited
}

// admitMinValues asks whether enough types are left that could hold the pods of a new bin with this one. Where the
// pod has to do with domains that is asked of each of them in turn; see settle.
func (f *fleet) admitMinValues(q *trial) verdict {
	if n := f.node(q.bin); n != nil && !f.meetsValues(q, n, q.mask) {
		return verdict{reason.MinValues, true}
	}
	return verdict{}
}

// meetsValues reports whether a new bin would keep minValues with the pod of a trial and these choices left.
func (f *fleet) meetsValues(q *trial, n *newNode, mask bits.Set) bool {
	tmpl := f.template(n)
	if len(tmpl.Min) == 0 {
		return true
	}
	need := f.used(q.bin)
	need.Add(q.c.Need)
	shapes := f.holding(q.bin, mask, need, f.match(q.v, n.tmpl))
	f.cutDomains(q.bin, shapes)
	f.cutDaemons(tmpl, n.target, shapes)
	f.cutChosen(q, n.tmpl, shapes)
	f.cutPorts(q.bin, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, tmpl, sh) })
	f.cutVolumesWith(q.bin, q.c.Volumes, shapes)
	f.cutDevices(q.bin, q.c.Devices, shapes)
	if n.min.reserve != nil {
		shapes.Only(func(sh int) bool { return tmpl.Catalog.Capacity[sh].Fits(n.min.reserve) })
	}
	return tmpl.MeetsMinValues(shapes, mask, n.min.low)
}

// lowered returns what minValues were lowered to, nil where none was.
func (n *newNode) lowered() []int {
	if n.min == nil {
		return nil
	}
	return n.min.low
}

// leaveReserved takes reservations out of mask that do not meet minValues by themselves, where anything else is
// left: the claim that holds a machine of one is bought from it alone.
func leaveReserved(t *problem.Template, mask bits.Set) {
	if len(t.Min) == 0 || len(t.Catalog.Left) == 0 {
		return
	}
	less := mask.Clone()
	for o := range t.Catalog.Offers {
		if t.Catalog.Offers[o].Reservation >= 0 && !t.MeetsMinValues(t.Shapes, bits.Of(len(t.Catalog.Offers), o), nil) {
			less.Remove(o)
		}
	}
	if t.SellsAny(less[:len(t.Mask)]) {
		mask.Copy(less)
	}
}

// lowerMinValues lowers minValues to what shapes have that can be bought under mask, where that may be done. It
// returns the minValues that it may not lower.
func (f *fleet) lowerMinValues(t *problem.Template, shapes, mask bits.Set, low []int) (lowered []int, unmet int, ok bool) {
	want := t.WantedMinValues(low)
	v := t.Catalog.Variety(shapes, mask, want)
	if v.Enough() {
		return low, 0, true
	}
	least := 0 // they are not lowered to nothing
	for k := range want {
		if !f.p.Settings.MinBestEffort {
			least = want[k].N - 1
		}
		if v.Has[k] <= least {
			return nil, k, false
		}
	}
	return v.Has, 0, true
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
		best.min.reserve = f.smallest(tmpl, limit, best.shape, shapes, mask)
		if !limit.Fits(best.min.reserve) {
			return target{tmpl: noTemplate}, reason.Limit
		}
	}
	low, unmet, ok := f.lowerMinValues(tmpl, shapes, mask, nil)
	if !ok {
		return target{tmpl: noTemplate, unmet: unmet}, reason.MinValues
	}
	best.min.low = low
	return best, 0
}

// minimumAs says how a new bin would meet minValues as another machine, of shapes that it could be bought as, and
// whether its pool's limit allows it.
func (f *fleet) minimumAs(n *newNode, target int, mask, shapes bits.Set) (*minimum, bool) {
	if !n.fixed() {
		return n.min, true
	}
	tmpl := f.template(n)
	limit := f.limits[tmpl.Pool].Clone()
	limit.Give(n.min.reserve)
	out := &minimum{low: n.min.low, reserve: f.smallest(tmpl, &limit, target, shapes.Clone(), mask)}
	return out, limit.Fits(out.reserve)
}

// smallest cuts shapes to the smallest machines that meet minValues within the limit, and returns the largest
// capacity among them: what the claim takes from the limit. What is not limited keeps no other machine out.
func (f *fleet) smallest(t *problem.Template, limit *limits.Pool, target int, shapes, mask bits.Set) quantity.Vec {
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
		if t.MeetsMinValues(shapes, mask, nil) {
			break
		}
		shapes.Add(sh)
	}
	most := f.largestOf(t, shapes)
	for r := range most {
		if r >= len(limit.Left) || limit.Left[r] == limits.Unlimited {
			most[r] = limits.Unlimited
		}
	}
	return most
}
