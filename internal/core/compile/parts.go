package compile

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A DaemonSet may select nodes by a label that a pool leaves to be chosen for each node. Such a pool is planned as several templates, one
// for each set of values that start the same DaemonSets, so that a node pays for the DaemonSets that it will run and for no others.

// mostParts is into how many templates one pool is split at most. A pool that would need more counts every DaemonSet that may start.
const mostParts = 16

// daemonParts returns the parts of a pool, as requirements on labels beside those of the pool. The first part is for nodes with pods that
// ask for none of the labels. For a label that no pod of this batch asks about, only the values of the first part are used.
func (b *builder) daemonParts(p Pool) []label.Reqs {
	parts := []label.Reqs{{}}
	if len(b.mem.daemons) == 0 || len(p.Pool.Spec.Template.Spec.Requirements) == 0 {
		return parts
	}
	cat := b.mem.catalogOf(p, &b.in).shape
	for _, q := range b.mem.poolReqs(p.Pool) {
		if !chosenPerNode(cat, q.Key, q.Set) {
			continue
		}
		sets := b.mem.toldApart(p, q.Key, q.Set)
		if len(sets) == 1 || len(parts)*len(sets) > mostParts {
			continue
		}
		if !anyAsks(b.cohorts, q.Key) {
			sets = sets[:1]
		}
		var next []label.Reqs
		for _, part := range parts {
			for _, s := range sets {
				next = append(next, part.With(q.Key, s))
			}
		}
		parts = next
	}
	return parts
}

// chosenPerNode reports whether a label of a pool is chosen for each new node: the pool allows several values, and no type decides.
func chosenPerNode(cat *shape.Catalog, key string, s label.Set) bool {
	_, single := s.Single()
	return !single && !cat.Mentions(key) && !s.Empty() && (s.Open() || len(s.Values()) > 0)
}

// toldApart splits the values that a pool allows for a label into sets. All values of a set start the same DaemonSets. The first set has
// the value that nodes get if their pods ask for none.
func (m *Memory) toldApart(p Pool, key string, all label.Set) []label.Set {
	sets := []label.Set{all}
	for i := range m.daemons {
		d := &m.daemons[i]
		if d.ignored() || !toleratesAll(d.info.tolerances, p.Pool.Spec.Template.Spec.Taints, true) {
			continue
		}
		for _, term := range d.info.terms {
			if s, says := term.Get(key); says {
				sets = split(sets, s)
			}
		}
	}
	value, some := AnyValue(all)
	slices.SortStableFunc(sets, func(x, y label.Set) int {
		usual := func(s label.Set) int {
			if some && s.Has(value) || !some && s.HasAbsent() {
				return 0
			}
			return 1
		}
		return usual(x) - usual(y)
	})
	return sets
}

// split cuts each set into the values that by allows and the others, without empty sets. It returns sets as they are if the complement of
// by cannot be written as a set.
func split(sets []label.Set, by label.Set) []label.Set {
	others, ok := by.Complement()
	if !ok {
		return sets
	}
	var out []label.Set
	for _, s := range sets {
		for _, part := range []label.Set{s.Intersect(by), s.Intersect(others)} {
			if !part.Empty() {
				out = append(out, part)
			}
		}
	}
	return out
}

// anyAsks reports whether pods of some cohort ask for values of a label, or are counted by it.
func anyAsks(cohorts []*cohort, key string) bool {
	return slices.ContainsFunc(cohorts, func(c *cohort) bool {
		i := c.info
		says := func(r label.Reqs) bool { _, ok := r.Get(key); return ok }
		spreads := func(t spreadTerm) bool { return t.key == key }
		ties := func(t podTerm) bool { return t.key == key }
		return slices.ContainsFunc(i.terms, says) || slices.ContainsFunc(i.preferred, says) ||
			slices.ContainsFunc(i.hard, spreads) || slices.ContainsFunc(i.soft, spreads) || slices.ContainsFunc(c.extra, spreads) ||
			slices.ContainsFunc(i.near, ties) || slices.ContainsFunc(i.apart, ties) ||
			slices.ContainsFunc(i.nearSoft, ties) || slices.ContainsFunc(i.apartSoft, ties)
	})
}
