package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// bestTarget returns the target with the most worth per dollar among some templates, for the domains of a trial.
func (s *state) bestTarget(q *trial, among run) (target, reason.Code) {
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	for i := among.from; i < among.to; i++ {
		if s.twin[i] >= among.from && s.twinSellsTheSame(q, i) {
			continue
		}
		cands := s.candidatesOf(q.reading, i)
		if len(cands) == 0 || !s.domainPossible(i, q) {
			continue
		}
		mask := s.spare
		clear(mask)
		copy(mask, s.p.Templates[i].Mask)
		s.narrow(q, i, mask)
		if !s.p.Templates[i].SellsAny(mask[:len(s.p.Templates[i].Mask)]) {
			continue // the pod does not want to be there, or nothing is sold there
		}
		got, bad := s.bestShape(q, i, mask, cands)
		if bad != 0 {
			code = bad
			if best.tmpl < 0 {
				best.unmet = got.unmet
			}
			continue
		}
		if best.tmpl < 0 || better(got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	return best, 0
}

// twinSellsTheSame reports whether the twin of a template sells the same machines on the same terms, so that this one cannot be
// better.
func (s *state) twinSellsTheSame(q *trial, i problem.TemplateID) bool {
	u := s.twin[i]
	a, b := s.match(q.v, i), s.match(q.v, u)
	if a.OK != b.OK || !a.Shapes.Equal(b.Shapes) || !a.Mask.Equal(b.Mask) || s.tolerates(q.v, i) != s.tolerates(q.v, u) {
		return false
	}
	for k := range q.keys {
		x, y := s.keyOf(q.keys[k].key, i), s.keyOf(q.keys[k].key, u)
		if x.Kind != y.Kind || x.Domain != y.Domain {
			return false
		}
	}
	return true
}

// findTwins says, for each template, which earlier one sells the same machines for the same prices, noTemplate for none.
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

// prefers is better, but for pods that all have to fit on this one node: room first, price second.
func (q *trial) prefers(a, b target) bool {
	if q.glued {
		return a.value > b.value || a.value == b.value && a.price < b.price
	}
	return better(a, b)
}

// better prefers more worth per dollar, then the lower price.
func better(a, b target) bool {
	if quantity.RatioLess(b.value, b.price, a.value, a.price) {
		return true
	}
	return !quantity.RatioLess(a.value, a.price, b.value, b.price) && a.price < b.price
}

// domainPossible reports whether template i can be in the chosen domains at all, as far as no shape has a say.
func (s *state) domainPossible(i problem.TemplateID, q *trial) bool {
	for k := range q.keys {
		key := q.keys[k].key
		of := s.keyOf(key, i)
		if d := q.domain[key]; of.Kind == problem.ByChoice && of.ChoiceOf(d) == nil || of.Kind <= problem.Fixed && of.DomainOf(0) != d {
			return false
		}
	}
	return true
}

// narrow takes choices of a template out of mask that the variant and the domains of a trial do not leave.
func (s *state) narrow(q *trial, t problem.TemplateID, mask bits.Set) {
	mask.Keep(s.match(q.v, t).Mask)
	s.choose(q, t, mask)
	leaveReserved(&s.p.Templates[t], mask)
}

// bestShape chooses among the candidates of template i.
func (s *state) bestShape(q *trial, i problem.TemplateID, mask bits.Set, cands []int32) (target, reason.Code) {
	tmpl := &s.p.Templates[i]
	prices := s.pricesOf(i, mask)
	s.meter.Charge(work.Units(len(cands)) * shapeWork)
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	limit := &s.limits[tmpl.Pool]
	for _, sh := range cands {
		price := prices[sh]
		if price == 0 {
			code = reason.NoOffering
			continue
		}
		if !s.shapeInDomains(i, int(sh), q) {
			continue
		}
		if !limit.Fits(tmpl.Catalog.Capacity[sh]) {
			code = reason.Limit
			continue
		}
		if s.arrival != nil {
			if bad := s.expected(q, i, int(sh), mask); bad != 0 {
				code = bad
				continue
			}
		}
		got := target{tmpl: i, shape: int(sh), price: price, value: s.valueWithin(tmpl.Room[sh], s.demand)}
		if q.glued {
			got.value = int64(q.c.Need.Times(tmpl.Room[sh], s.visit.want))<<20 + 1
		}
		if best.tmpl < 0 || q.prefers(got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	if len(tmpl.Min) == 0 {
		return best, 0
	}
	got, bad := s.meetMinValues(q, best, mask)
	if others := s.withOtherDaemons(tmpl, best.shape, cands); bad != 0 && len(others) > 0 {
		if other, worse := s.bestShape(q, i, mask, others); worse == 0 {
			return other, 0
		}
	}
	return got, bad
}

// withOtherDaemons returns those of some shapes whose daemons are counted otherwise than those of a target, with
// which they share no claim.
func (s *state) withOtherDaemons(t *problem.Template, target int, shapes []int32) []int32 {
	if s.arrival == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(shapes), func(sh int32) bool { return t.SameArrivals(int(sh), target) })
}

func (s *state) shapeInDomains(i problem.TemplateID, sh int, q *trial) bool {
	for k := range q.keys {
		key := q.keys[k].key
		if of := s.keyOf(key, i); of.Shape != nil && of.Shape[sh] != q.domain[key] {
			return false
		}
	}
	return true
}
