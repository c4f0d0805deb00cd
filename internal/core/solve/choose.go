package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// bestTarget returns the target with the most worth per dollar among the templates of a run, in the domains that a trial has chosen. If no
// machine will do, it returns a target without template, and the reason that the last template with sold machines gave; NoShape if there
// was no such template.
func (op *opener) bestTarget(q *trial, among run) (target, reason.Code) {
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	for i := among.from; i < among.to; i++ {
		if op.facts.twin[i] >= among.from && op.twinSellsTheSame(q, i) {
			continue
		}
		cands := op.candidatesOf(q.reading, i)
		if len(cands) == 0 || !op.domainPossible(i, q) {
			continue
		}
		mask := op.facts.spare
		clear(mask)
		copy(mask, op.facts.p.Templates[i].Mask)
		op.narrow(q, i, mask)
		if !op.facts.p.Templates[i].SellsAny(mask[:len(op.facts.p.Templates[i].Mask)]) {
			continue // nothing that the pod accepts is sold in these domains
		}
		got, bad := op.bestShape(q, i, mask, cands)
		if bad != 0 {
			code = bad
			if best.tmpl < 0 {
				best.unmet = got.unmet
			}
			continue
		}
		if best.tmpl < 0 || op.better(got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	return best, 0
}

// twinSellsTheSame reports whether the twin of template i offers this trial the same machines in the same domains. Then template i need not
// be tried.
func (op *opener) twinSellsTheSame(q *trial, i problem.TemplateID) bool {
	u := op.facts.twin[i]
	a, b := op.facts.match(q.v, i), op.facts.match(q.v, u)
	if a.OK != b.OK || !a.Shapes.Equal(b.Shapes) || !a.Mask.Equal(b.Mask) || op.facts.tolerates(q.v, i) != op.facts.tolerates(q.v, u) {
		return false
	}
	for k := range q.keys {
		x, y := op.facts.keyOf(q.keys[k].key, i), op.facts.keyOf(q.keys[k].key, u)
		if x.Kind != y.Kind || x.Domain != y.Domain {
			return false
		}
	}
	return true
}

// findTwins returns, for each template, the first earlier template of its tier with the same machines at the same prices, and without
// limits, daemons or minValues on either; noTemplate for none. A twin need not be tried if the pod cannot tell the two apart.
func findTwins(p *problem.Problem) []problem.TemplateID {
	out := make([]problem.TemplateID, len(p.Templates))
	for i := range p.Templates {
		out[i] = noTemplate
		a := &p.Templates[i]
		for j := range i {
			b := &p.Templates[j]
			if out[j] < 0 && a.Catalog == b.Catalog && a.Tier == b.Tier && len(a.Segments) == 1 &&
				len(b.Segments) == 1 && len(a.Min)+len(b.Min)+len(a.Daemons)+len(b.Daemons) == 0 &&
				!p.Pools[a.Pool].Limit.Limited && !p.Pools[b.Pool].Limit.Limited && a.Shapes.Equal(b.Shapes) && a.Mask.Equal(b.Mask) {
				out[i] = problem.TemplateID(j)
				break
			}
		}
	}
	return out
}

// prefers reports whether target a suits a trial better than b. If the pods must all be on one node (glued), more room wins before the
// lower price. Otherwise it returns better(a, b).
func (op *opener) prefers(q *trial, a, b target) bool {
	if q.glued {
		return a.value > b.value || a.value == b.value && a.price < b.price
	}
	return op.better(a, b)
}

// better reports whether a suits the size preference better than b. Without a preference that is more worth per dollar, or as much for a
// lower price.
func (op *opener) better(a, b target) bool {
	switch op.size {
	case Cheapest:
		return a.price < b.price || a.price == b.price && a.value > b.value
	case Roomiest:
		return a.value > b.value || a.value == b.value && a.price < b.price
	}
	if quantity.RatioLess(b.value, b.price, a.value, a.price) {
		return true
	}
	return !quantity.RatioLess(a.value, a.price, b.value, b.price) && a.price < b.price
}

// domainPossible reports whether template i can have nodes in the chosen domains. It leaves keys that the shape decides to shapeInDomains.
func (op *opener) domainPossible(i problem.TemplateID, q *trial) bool {
	for k := range q.keys {
		key := q.keys[k].key
		of := op.facts.keyOf(key, i)
		if d := q.domain[key]; of.Kind == problem.ByChoice && of.ChoiceOf(d) == nil || of.Kind <= problem.Fixed && of.DomainOf(0) != d {
			return false
		}
	}
	return true
}

// narrow takes out of mask the choices of a template that the variant or the chosen domains of a trial rule out.
func (op *opener) narrow(q *trial, t problem.TemplateID, mask bits.Set) {
	mask.Keep(op.facts.match(q.v, t).Mask)
	op.fleet.census.keepChosen(q, t, mask)
	dropUnfitReservations(&op.facts.p.Templates[t], mask)
}

// bestShape returns the best target of template i among the candidate shapes, bought under mask; or no target and why the last shape with
// a reason was refused, NoShape if none had one. A target of a pool with minValues comes with its minimum. If the best shape cannot meet
// it, the shapes with other DaemonSet pods are tried by themselves.
func (op *opener) bestShape(q *trial, i problem.TemplateID, mask bits.Set, cands []int32) (target, reason.Code) {
	tmpl := &op.facts.p.Templates[i]
	prices := op.fleet.stock.pricesOf(i, mask)
	op.facts.meter.Charge(work.Units(len(cands)) * shapeWork)
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	for _, sh := range cands {
		price := prices[sh]
		if price == 0 {
			code = reason.NoOffering
			continue
		}
		if !op.shapeInDomains(i, int(sh), q) {
			continue
		}
		if !op.fleet.stock.limits.allowed(i, int(sh)) {
			code = reason.Limit
			continue
		}
		if op.facts.arrival != nil {
			if bad := op.fleet.census.refusesFirst(q, i, int(sh), mask); bad != 0 {
				code = bad
				continue
			}
		}
		got := target{tmpl: i, shape: int(sh), price: price, value: op.worth.within(tmpl.Room[sh], op.fleet.bins.demand)}
		if q.glued { // what counts is how many of the pods fit, not what the room is worth
			got.value = int64(q.c.Need.Times(tmpl.Room[sh], op.visit.want))<<20 + 1
		}
		if best.tmpl < 0 || op.prefers(q, got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	if len(tmpl.Min) == 0 {
		return best, 0
	}
	got, bad := op.fleet.withMinimum(q, best, mask)
	if others := op.withOtherDaemons(best, mask, cands); bad != 0 && len(others) > 0 {
		if other, worse := op.bestShape(q, i, mask, others); worse == 0 {
			return other, 0
		}
	}
	return got, bad
}

// withOtherDaemons returns the shapes on which constraints count other DaemonSet pods than on the target. A claim cannot list such a shape
// beside the target. So if the target cannot meet minValues, bestShape tries these shapes by themselves.
func (op *opener) withOtherDaemons(to target, mask bits.Set, shapes []int32) []int32 {
	if op.facts.arrival == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(shapes), func(sh int32) bool { return op.facts.sameArrivals(to.tmpl, int(sh), to.shape, mask) })
}

// shapeInDomains reports whether a node of shape sh is in the chosen domains, as far as the shape decides them.
func (op *opener) shapeInDomains(i problem.TemplateID, sh int, q *trial) bool {
	for k := range q.keys {
		key := q.keys[k].key
		if of := op.facts.keyOf(key, i); of.Shape != nil && of.Shape[sh] != q.domain[key] {
			return false
		}
	}
	return true
}
