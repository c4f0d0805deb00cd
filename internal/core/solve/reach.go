package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A reach is the domains that reachOf returns, and whether any machine was left out of the question because it is exotic or large.
type reach struct {
	domains []bits.Set
	spared  bool
}

// reachOf returns, by topology key, the domains in which pods of a class could get a new node: where a pool that they may use can launch
// something that they accept, at the beginning of the run. They are domains of a spread beside those of nodes that are there; a zone
// in which nothing can be bought is none. Preferences and volumes have no say, as in kube-scheduler.
func (s *state) reachOf(class problem.ClassID) reach {
	c := &s.p.Classes[class]
	spreads := s.spreadKeys(c)
	key := reachKey(c, spreads, s.lavish.Has(int(class)))
	if out, ok := s.reaches[key]; ok {
		return out
	}
	spared, lavish := s.visit.spared, s.visit.lavish // of the class that is visited, which is another one perhaps
	s.visit.spared, s.visit.lavish = false, s.lavish.Has(int(class))
	out := make([]bits.Set, len(s.p.Keys))
	for k := range out {
		out[k] = bits.Make(len(s.p.Keys[k].Values))
	}
	var shapes []int32
	for i := range s.p.Templates {
		t := problem.TemplateID(i)
		for _, reqs := range c.Terms {
			mask := s.labelledMask(t, s.p.Labels.OnTemplate[reqs][t].Mask, spreads)
			shapes = s.labelled(s.suitable(shapes[:0], c, &problem.Variant{Reqs: reqs, Tol: c.Tol}, t), t, mask, spreads)
			s.addReach(out, t, mask, shapes)
		}
	}
	if s.reaches == nil {
		s.reaches = map[string]reach{}
	}
	s.reaches[key] = reach{out, s.visit.spared}
	s.visit.spared, s.visit.lavish = spared, lavish
	return s.reaches[key]
}

// spreadKeys returns the topology keys over which pods of a class insist to be spread, sorted. Nodes without such a
// label are closed to them.
func (s *state) spreadKeys(c *problem.Class) []int {
	var out []int
	for _, g := range c.Variants[len(c.Variants)-1].Owns {
		if group := &s.groups[g]; group.Kind == spread.Spread && group.Key != spread.Host {
			out = append(out, group.Key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// labelledMask narrows choices of template t, nil for all, to those with which a node has some value for each of
// the keys: a label that it gets if no pod asks for another.
func (s *state) labelledMask(t problem.TemplateID, mask bits.Set, keys []int) bits.Set {
	for _, key := range keys {
		of := s.keyOf(key, t)
		if of.Kind != problem.ByChoice {
			continue
		}
		domains, some := bits.Make(len(of.Choice)), bits.Make(64*len(s.p.Templates[t].Mask))
		addChoices(domains, of, func(choice bits.Set) bool {
			if choice == nil {
				return false
			}
			copy(some, s.p.Templates[t].Mask)
			some.Keep(mask)
			some.And(choice)
			return s.p.Templates[t].SellsAny(some)
		})
		clear(some)
		for d := range domains.All() {
			some.Or(of.Choice[d])
		}
		some.Keep(mask)
		mask = some
	}
	return mask
}

// labelled keeps the shapes of template t that have some value for each of the keys, with choices that labelledMask left.
func (s *state) labelled(shapes []int32, t problem.TemplateID, mask bits.Set, keys []int) []int32 {
	return slices.DeleteFunc(shapes, func(sh int32) bool {
		return mask != nil && !s.sells(&s.p.Templates[t], int(sh), mask) ||
			slices.ContainsFunc(keys, func(key int) bool { return s.keyOf(key, t).DomainOf(int(sh)) == problem.NoDomain })
	})
}

// reachKey identifies what reachOf asks about a class, which may use exotic and large machines too if lavish is set.
func reachKey(c *problem.Class, spreads []int, lavish bool) string {
	key := identity.Number(make([]byte, 0, 64), int64(c.Tol))
	key = identity.Flag(key, lavish)
	key = identity.Numbers(key, spreads)
	key = identity.Numbers(key, c.Terms)
	key = identity.Text(key, c.TooMuch)
	key = identity.Numbers(key, c.Need)
	key = identity.Numbers(key, c.Ports)
	key = identity.Count(key, len(c.Volumes))
	for _, v := range c.Volumes {
		key = identity.Number(key, int64(v.Driver))
	}
	key = identity.Count(key, len(c.Devices))
	for _, d := range c.Devices {
		key = identity.Number(key, int64(d.ID))
	}
	return string(key)
}

// addReach adds the domains of some shapes of a template, as far as its pool's limits allow them.
func (s *state) addReach(out []bits.Set, t problem.TemplateID, mask bits.Set, shapes []int32) {
	tmpl := &s.p.Templates[t]
	limit := &s.p.Pools[tmpl.Pool].Limit
	sold, one := bits.Make(64*len(tmpl.Mask)), bits.Make(64*len(tmpl.Mask))
	found := false
	for _, sh := range shapes {
		if !limit.Fits(tmpl.Catalog.Capacity[sh]) {
			continue
		}
		found = true
		sold.Or(tmpl.ShapeMask[sh])
		for k := range out {
			if of := s.keyOf(k, t).Shape; of != nil && of[sh] >= 0 {
				out[k].Add(int(of[sh]))
			}
		}
	}
	if !found {
		return
	}
	if mask != nil {
		sold.And(mask)
	}
	for k := range out {
		of := s.keyOf(k, t)
		switch of.Kind {
		case problem.ByChoice:
			addChoices(out[k], of, func(choice bits.Set) bool {
				if choice == nil {
					return false
				}
				copy(one, sold)
				one.And(choice)
				return tmpl.SellsAny(one)
			})
		case problem.Fixed:
			out[k].Add(int(of.Domain))
		}
	}
}

// addChoices adds the domains among which the mask decides. Those that nodes have only if their pods ask for them are places to fill for
// nothing else.
func addChoices(out bits.Set, of *problem.KeyOf, open func(choice bits.Set) bool) {
	unasked := open(of.None)
	for d, choice := range of.Choice {
		if !of.Asked.Has(d) && open(choice) {
			out.Add(d)
			unasked = true
		}
	}
	for d := range of.Asked.All() {
		if !unasked && open(of.Choice[d]) {
			out.Add(d)
		}
	}
}
