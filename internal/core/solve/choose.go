package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/work"
)

// bestTarget returns the target with the most worth per dollar among some templates, for the domains in s.choice.
func (s *state) bestTarget(ci, vi int, among run, t *touches) (target, reason.Code) {
	best, code := target{tmpl: -1}, reason.Code(reason.NoShape)
	for i := among.from; i < among.to; i++ {
		if s.twin[i] >= among.from && s.likeEarlier(ci, vi, i, t) {
			continue
		}
		cands := s.candidatesOf(ci, vi, i)
		if len(cands) == 0 || !s.domainPossible(i, t) {
			continue
		}
		mask := s.maskFor(ci, vi, i, t)
		if !s.p.Templates[i].open(mask[:len(s.p.Templates[i].Mask)]) {
			continue // the pod does not want to be there, or nothing is sold there
		}
		got, bad := s.bestShape(ci, vi, i, t, mask, cands)
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

// likeEarlier reports whether the twin of a template sells the same machines on the same terms, so that this one cannot be
// better.
func (s *state) likeEarlier(ci, vi, i int, t *touches) bool {
	u := s.twin[i]
	v := &s.p.Classes[ci].Variants[vi]
	a, b := &s.p.Labels.OnTemplate[v.Reqs][i], &s.p.Labels.OnTemplate[v.Reqs][u]
	if a.OK != b.OK || !a.Shapes.Equal(b.Shapes) || !a.Mask.Equal(b.Mask) || s.p.Labels.TolTmpl[v.Tol].Has(i) != s.p.Labels.TolTmpl[v.Tol].Has(u) {
		return false
	}
	for k := range t.keys {
		x, y := &s.p.Keys[t.keys[k].key].Tmpl[i], &s.p.Keys[t.keys[k].key].Tmpl[u]
		if x.Fixed != y.Fixed || (x.Choice == nil) != (y.Choice == nil) || (x.Shape == nil) != (y.Shape == nil) {
			return false
		}
	}
	return true
}

// findTwins says, for each template, which earlier one sells the same machines for the same prices, −1 for none.
func findTwins(p *Problem) []int {
	out := make([]int, len(p.Templates))
	for i := range p.Templates {
		out[i] = -1
		a := &p.Templates[i]
		for j := range i {
			b := &p.Templates[j]
			if out[j] < 0 && a.Catalog == b.Catalog && a.Tier == b.Tier && len(a.Segments) == 1 && len(b.Segments) == 1 && len(a.Min)+len(b.Min)+len(a.Daemons)+len(b.Daemons) == 0 &&
				!p.Pools[a.Pool].Limit.Limited && !p.Pools[b.Pool].Limit.Limited && a.Shapes.Equal(b.Shapes) && a.Mask.Equal(b.Mask) {
				out[i] = j
				break
			}
		}
	}
	return out
}

// better prefers more worth per dollar, then the lower price.
func better(a, b target) bool {
	if ratioLess(b.value, b.price, a.value, a.price) {
		return true
	}
	return !ratioLess(a.value, a.price, b.value, b.price) && a.price < b.price
}

// domainPossible reports whether template i can be in the chosen domains at all, as far as no shape has a say.
func (s *state) domainPossible(i int, t *touches) bool {
	for k := range t.keys {
		key := t.keys[k].key
		of := &s.p.Keys[key].Tmpl[i]
		switch {
		case of.Choice != nil:
			if of.choice(s.choice[key]) == nil {
				return false
			}
		case of.Shape == nil:
			if of.Fixed != s.choice[key] {
				return false
			}
		}
	}
	return true
}

// choice returns the bits that remain for a domain, nil where it is impossible.
func (k *KeyOf) choice(d int32) bits.Set {
	if d < 0 {
		return k.None
	}
	return k.Choice[d]
}

// maskFor returns the choices of template i that the variant and the chosen domains leave, in masks[last].
func (s *state) maskFor(ci, vi, i int, t *touches) bits.Set {
	mask := bits.Set(s.masks[len(s.masks)-1])
	clear(mask)
	copy(mask, s.p.Templates[i].Mask)
	if m := &s.p.Labels.OnTemplate[s.p.Classes[ci].Variants[vi].Reqs][i]; m.Mask != nil {
		mask[:len(m.Mask)].And(m.Mask)
	}
	for k := range t.keys {
		key := t.keys[k].key
		if of := &s.p.Keys[key].Tmpl[i]; of.Choice != nil {
			chosen := of.choice(s.choice[key])
			mask[:len(chosen)].And(chosen)
		}
	}
	return mask
}

// bestShape chooses among the candidates of template i.
func (s *state) bestShape(ci, vi, i int, t *touches, mask bits.Set, cands []int32) (target, reason.Code) {
	tmpl := &s.p.Templates[i]
	c := &s.p.Classes[ci]
	prices := s.pricesOf(i, mask)
	s.meter.Charge(work.Units(len(cands)) * shapeWork)
	best, code := target{tmpl: -1}, reason.Code(reason.NoShape)
	limit := &s.limits[tmpl.Pool]
	for _, sh := range cands {
		price := prices[sh]
		if price == 0 {
			code = reason.NoOffering
			continue
		}
		if !s.shapeInDomains(i, int(sh), t) {
			continue
		}
		if limit.Limited && limit.Exceeded(tmpl.Catalog.Capacity[sh]) != -2 {
			code = reason.Limit
			continue
		}
		if s.arrival != nil {
			if bad := s.expected(i, int(sh), t, mask); bad != 0 {
				code = bad
				continue
			}
		}
		got := target{tmpl: i, shape: int(sh), price: price, value: s.valueWithin(tmpl.Room[sh], s.demand)}
		if t.glued { // all of them have to fit on this one node: room first, price second
			got.value = int64(s.gluedFit(ci, tmpl.Room[sh]))<<20 + 1
			if best.tmpl < 0 || got.value > best.value || got.value == best.value && price < best.price {
				best = got
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
	if len(tmpl.Min) > 0 {
		return s.meetMinValues(c, &c.Variants[vi], t, best, mask)
	}
	return best, 0
}

// gluedFit returns how many pods of the class fit into room.
func (s *state) gluedFit(ci int, room quantity.Vec) int {
	return s.p.Classes[ci].Need.Times(room, s.visit.want)
}

func (s *state) shapeInDomains(i, sh int, t *touches) bool {
	for k := range t.keys {
		key := t.keys[k].key
		if of := &s.p.Keys[key].Tmpl[i]; of.Shape != nil && of.Shape[sh] != s.choice[key] {
			return false
		}
	}
	return true
}

// meetMinValues checks minValues for a new node with one pod. Where the settings allow, unmet ones are lowered.
func (s *state) meetMinValues(c *Class, v *Variant, t *touches, best target, mask bits.Set) (target, reason.Code) {
	tmpl := &s.p.Templates[best.tmpl]
	s.fillHolding(best.tmpl, mask, c.Need)
	if m := &s.p.Labels.OnTemplate[v.Reqs][best.tmpl]; m.Shapes != nil {
		s.shapes[:len(m.Shapes)].And(m.Shapes)
	}
	s.cutByChoice(best.tmpl, t)
	s.cutByArrivals(best.tmpl, best.shape)
	if limit := &s.limits[tmpl.Pool]; limit.Limited {
		best.reserve = s.reserveFor(tmpl, limit, best.shape)
		if limit.Exceeded(best.reserve) != -2 {
			return target{tmpl: -1}, reason.Limit
		}
	}
	for k, m := range tmpl.Min {
		if n := tmpl.Catalog.Distinct(m.Key, s.shapes, m.N); n < m.N {
			if !s.p.Settings.MinBestEffort || n == 0 {
				return target{tmpl: -1, unmet: k}, reason.MinValues
			}
			if best.low == nil {
				best.low = make([]int, len(tmpl.Min))
				for j, o := range tmpl.Min {
					best.low[j] = o.N
				}
			}
			best.low[k] = n
		}
	}
	return best, 0
}

// reserveFor cuts s.shapes to the smallest machines that meet minValues within the limit, and returns the largest capacity
// among them: what the claim takes from the limit.
func (s *state) reserveFor(tmpl *Template, limit *limits.Pool, sh int) quantity.Vec {
	var order []int
	for at := range s.shapes.All() {
		if limit.Exceeded(tmpl.Catalog.Capacity[at]) == -2 {
			order = append(order, at)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(tmpl.Catalog.Capacity[a][quantity.CPU], tmpl.Catalog.Capacity[b][quantity.CPU])
	})
	clear(s.shapes)
	s.shapes.Add(sh)
	for _, at := range order {
		if !slices.ContainsFunc(tmpl.Min, func(m MinValues) bool { return tmpl.Catalog.Distinct(m.Key, s.shapes, m.N) < m.N }) {
			break
		}
		s.shapes.Add(at)
	}
	most := make(quantity.Vec, s.p.Resources)
	for at := range s.shapes.All() {
		most.Max(tmpl.Catalog.Capacity[at])
	}
	return most
}
