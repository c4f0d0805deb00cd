package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A launch that may choose among fewer zones or instance types can cost less than one with every choice: a spot list costs the mean of its
// offers. So a bound has to know every way in which a plan narrows the choices of a node beyond what its pods ask for:
//
//   - to one domain of a topology key by which some pod is counted;
//   - out of the domains that the spread of some other pod does not know (see solve/unknown.go);
//   - to machines and choices that pass, or do not pass, the node filter of a spread.
//
// These are the closings of a template. A want that a closing makes cheaper for some use gets a cell of its own, again and again, because
// a plan may close several. What limits and volumes rule out is in the prices of lists (see listsOf).

// closings returns the ways in which a plan may narrow the choices of a template's nodes. Each is a want with the choices that stay.
func (n *narrows) closings(t problem.TemplateID) []want {
	q := n.q
	tmpl := &q.p.Templates[t]
	full := want{shapes: tmpl.Shapes, offers: bought(tmpl, tmpl.Mask)}
	var out []want
	add := func(narrow func(w *want)) {
		w := want{shapes: full.shapes.Clone(), offers: full.offers.Clone()}
		if narrow(&w); w.shapes.Any() && w.offers.Any() && !w.equal(&full) {
			out = append(out, w)
		}
	}
	for k := range q.p.Keys {
		of := &q.p.Keys[k].Tmpl[t]
		for d := range q.p.Keys[k].Values {
			if n.tied[k] {
				add(func(w *want) { w.pin(of, int32(d)) })
			}
			if n.unknown[k].Has(d) {
				add(func(w *want) { w.leave(tmpl, of, int32(d)) })
			}
		}
	}
	for g := range q.p.Groups {
		if filter := q.p.Groups[g].Filter; len(filter) > 0 {
			n.addFilter(filter, t, add)
		}
	}
	return out
}

// A narrows says by which topology keys a plan narrows the choices of nodes.
type narrows struct {
	q       *question
	tied    []bool     // some pod of a new node is counted by the key
	unknown []bits.Set // domains that the spread of some pod may not know
}

// narrowsOf returns the topology keys that matter to pods.
func narrowsOf(q *question) *narrows {
	if q.narrows != nil {
		return q.narrows
	}
	n := &narrows{q, make([]bool, len(q.p.Keys)), make([]bits.Set, len(q.p.Keys))}
	q.narrows = n
	for i := range q.items {
		it := &q.items[i]
		for _, g := range groupsOf(&q.p.Classes[it.class]) {
			if key := q.p.Groups[g].Key; key != spread.Host && (it.pins == nil || it.pins[key] < 0) {
				n.tied[key] = true
			}
		}
	}
	for i := range q.p.Classes {
		for _, g := range groupsOf(&q.p.Classes[i]) {
			group := &q.p.Groups[g]
			if group.Key == spread.Host || group.Kind != spread.Spread {
				continue
			}
			strange := bits.Full(len(q.p.Keys[group.Key].Values))
			reach, _ := q.at.Reach(problem.ClassID(i), group.Key)
			strange.Only(func(d int) bool { return !group.Universe.Has(d) && !reach.Has(d) })
			strange.Or(n.unknown[group.Key])
			n.unknown[group.Key] = strange
		}
	}
	return n
}

// groupsOf returns the groups that count pods of a class, and those whose constraint they carry in some reading.
func groupsOf(c *problem.Class) []int {
	groups := slices.Clone(c.Groups)
	for i := range c.Variants {
		groups = append(groups, c.Variants[i].Owns...)
	}
	return groups
}

// addFilter adds the machines and choices that pass a node filter, and the machines that do not.
func (n *narrows) addFilter(filter []int, t problem.TemplateID, add func(func(*want))) {
	passing := bits.Make(n.q.p.Templates[t].Catalog.Len())
	for _, reqs := range filter {
		m := &n.q.p.Labels.OnTemplate[reqs][t]
		if !m.OK {
			continue
		}
		add(func(w *want) {
			w.shapes.Keep(m.Shapes)
			w.offers.Keep(m.Mask)
		})
		all := n.q.p.Templates[t].Shapes.Clone()
		all.Keep(m.Shapes)
		passing.Or(all)
	}
	add(func(w *want) { w.shapes.And(passing) })
	add(func(w *want) { w.shapes.Only(func(sh int) bool { return !passing.Has(sh) }) })
}

// leave takes a domain of a topology key out of a want.
func (w *want) leave(t *problem.Template, of *problem.KeyOf, d int32) {
	switch of.Kind {
	case problem.ByChoice:
		t.Exclude(w.offers, of.Choice[d])
	case problem.ByShape:
		w.shapes.Only(func(sh int) bool { return of.Shape[sh] != d })
	}
}

// narrowed returns what closings leave of a want where some use of a node is cheaper then.
func (n *narrows) narrowed(t problem.TemplateID, w *want, closings []want) []want {
	var out []want
	var wide []shape.List
	for i := range closings {
		x, ok := w.both(&closings[i])
		if !ok || x.equal(w) {
			continue
		}
		if wide == nil {
			wide, _ = n.q.listsOf(t, w)
		}
		lists, _ := n.q.listsOf(t, &x)
		if slices.ContainsFunc(lists, func(l shape.List) bool { return !n.servedBy(&l, wide) }) {
			out = append(out, x)
		}
	}
	return out
}

// servedBy reports whether one of some lists holds as much as l for no higher cost.
func (n *narrows) servedBy(l *shape.List, by []shape.List) bool {
	terms := &n.q.p.Settings.Terms
	return slices.ContainsFunc(by, func(x shape.List) bool {
		return terms.With(x.Cost, x.Floor) <= terms.With(l.Cost, l.Floor) && l.Room.Fits(x.Room) && x.VCPU <= l.VCPU
	})
}
