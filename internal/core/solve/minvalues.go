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

// With minValues, a pool requires that the instance types of each claim have at least so many distinct values of a label. Any of these
// types may be launched, so a claim takes the largest of them from the pool's limit, from the moment that its node is planned.

// A minimum describes how a new node meets the minValues of its pool.
type minimum struct {
	low     []int        // by minValues of the template: the lowered values; nil if none was lowered
	reserve quantity.Vec // what the node takes from its pool's limit; nil if the pool has no limit
}

// admitMinValues checks that minValues are still met if the pod joins a new bin. If the pod's constraints have domains, settle checks this
// for each domain instead.
func (f *fleet) admitMinValues(q *trial) verdict {
	if n := f.bins.node(q.bin); n != nil && !f.meetsValues(q, n, q.mask) {
		return verdict{reason.MinValues, true}
	}
	return verdict{}
}

// meetsValues reports whether a new bin would still meet minValues with the pod of a trial and the choices that mask leaves.
func (f *fleet) meetsValues(q *trial, n *newNode, mask bits.Set) bool {
	tmpl := f.bins.template(n)
	if len(tmpl.Min) == 0 {
		return true
	}
	need := f.bins.used(q.bin)
	need.Add(q.c.Need)
	shapes := f.bins.holding(q.bin, mask, need, f.facts.match(q.v, n.tmpl))
	f.bins.cutDomains(q.bin, shapes)
	f.census.cutDaemons(n.tmpl, n.target, mask, shapes)
	f.census.cutChosen(q, n.tmpl, shapes)
	f.cutPorts(q.bin, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, tmpl, sh) })
	f.cutVolumesWith(q.bin, q.c.Volumes, shapes)
	f.cutDevices(q.bin, q.c.Devices, shapes)
	if n.min.reserve != nil {
		shapes.Only(func(sh int) bool { return tmpl.Counts(sh).Fits(n.min.reserve) })
	}
	return tmpl.MeetsMinValues(shapes, mask, n.min.low)
}

// lowered returns the lowered minValues of a new node, nil if none was lowered.
func (n *newNode) lowered() []int {
	if n.min == nil {
		return nil
	}
	return n.min.low
}

// dropUnfitReservations takes each reservation out of mask that does not meet minValues alone, unless nothing else is left. A claim that
// uses a reservation lists nothing but that reservation.
func dropUnfitReservations(t *problem.Template, mask bits.Set) {
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

// lowerMinValues returns the minValues that a claim for shapes under mask is held to. These are low, if the claim meets it. Otherwise
// the setting MinBestEffort lowers each number to what the claim has. ok is false if a number cannot be met and may not be lowered: without
// the setting, or if the claim has no value at all. unmet is then the index of that number.
func (k *stock) lowerMinValues(t *problem.Template, shapes, mask bits.Set, low []int) (lowered []int, unmet int, ok bool) {
	want := t.WantedMinValues(low)
	v := t.Catalog.Variety(shapes, mask, want)
	if v.Enough() {
		return low, 0, true
	}
	least := 0 // a claim must have more values than this, so no number is lowered to 0
	for w := range want {
		if !k.facts.p.Settings.MinBestEffort {
			least = want[w].N - 1
		}
		if v.Has[w] <= least {
			return nil, w, false
		}
	}
	return v.Has, 0, true
}

// withMinimum returns best, the target of a new node for the pod of a trial, together with what the node's claim has to meet (its minimum).
// If the pool's limit or its minValues forbid the node, it returns no target and the reason.
func (f *fleet) withMinimum(q *trial, best target, mask bits.Set) (target, reason.Code) {
	tmpl := &f.facts.p.Templates[best.tmpl]
	shapes := f.bins.buyable(best.tmpl, mask, q.c.Need)
	shapes.Keep(f.facts.match(q.v, best.tmpl).Shapes)
	f.census.cutChosen(q, best.tmpl, shapes)
	f.census.cutDaemons(best.tmpl, best.shape, mask, shapes)
	shapes.Only(func(sh int) bool { return fits(q.c, tmpl, sh) })
	best.min = &minimum{}
	if f.stock.limits.limited(best.tmpl) {
		// From here on, shapes are the target and the smallest with which minValues are met.
		best.min.reserve = f.stock.cutToSmallest(best.tmpl, best.shape, shapes, mask)
		if !f.stock.limits.allowsReserve(best.tmpl, best.min.reserve) {
			return target{tmpl: noTemplate}, reason.Limit
		}
	}
	low, unmet, ok := f.stock.lowerMinValues(tmpl, shapes, mask, nil)
	if !ok {
		return target{tmpl: noTemplate, unmet: unmet}, reason.MinValues
	}
	best.min.low = low
	return best, 0
}

// minimumAs returns the minimum of a new bin if its target were another machine, and whether its pool's limit allows that. shapes are the
// types that its claim may list.
func (k *stock) minimumAs(n *newNode, target int, mask, shapes bits.Set) (*minimum, bool) {
	if !n.fixed() {
		return n.min, true
	}
	k.limits.give(n)
	defer k.limits.take(n)
	out := &minimum{low: n.min.low, reserve: k.cutToSmallest(n.tmpl, target, shapes.Clone(), mask)}
	return out, k.limits.allowsReserve(n.tmpl, out.reserve)
}

// cutToSmallest cuts shapes to the target and the smallest machines (by CPU) with which minValues are met within limits. It returns the
// largest capacity among them, which the claim takes from the limits; limits.Unlimited for a resource without limit.
func (k *stock) cutToSmallest(tmpl problem.TemplateID, target int, shapes, mask bits.Set) quantity.Vec {
	t := &k.facts.p.Templates[tmpl]
	var order []int
	for sh := range shapes.All() {
		if k.limits.allowed(tmpl, sh) {
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
	most := k.largestOf(t, shapes)
	for r := range most {
		if !k.limits.limitsResource(tmpl, r) {
			most[r] = limits.Unlimited
		}
	}
	return most
}
