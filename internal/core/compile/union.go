package compile

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Required terms of node affinity are ORed: each term is a variant of the class. A pool with minValues needs claims that list many types,
// and these may meet different terms. Then the last variant of each level is the union of all terms. A union exists only if the terms
// differ in nothing but labels that instance types decide.

// union gives the union of requirements a number. It returns false if the union cannot be written as one set of requirements.
func (c *conditions) union(terms []int, templates []*template) (int, bool) {
	agreed := c.reqs.list[terms[0]]
	text := []byte{0} // the key of requirements never starts with an empty text
	for _, at := range terms {
		for _, key := range differing(c.reqs.list[terms[0]], c.reqs.list[at]) {
			if !typesDecide(templates, key) {
				return 0, false
			}
			agreed = agreed.Without(key)
		}
		text = identity.Text(text, c.reqs.keys[at])
	}
	at := c.reqs.of(string(text), agreed)
	if c.unions == nil {
		c.unions = map[int][]int{}
	}
	c.unions[at] = terms
	return at, true
}

// differing returns the keys for which two sets of requirements differ. A key may be there twice.
func differing(x, y label.Reqs) []string {
	var out []string
	for _, q := range slices.Concat(x, y) {
		a, _ := x.Get(q.Key)
		b, _ := y.Get(q.Key)
		if (label.Reqs{{Key: q.Key, Set: a}}).Key() != (label.Reqs{{Key: q.Key, Set: b}}).Key() {
			out = append(out, q.Key)
		}
	}
	return out
}

// typesDecide reports whether instance types alone decide a label: no offer does, and it is chosen for no node.
func typesDecide(templates []*template, key string) bool {
	return !slices.ContainsFunc(templates, func(t *template) bool { return t.catalog.shape.Decides(key) || t.isOpenLabel(key) })
}

// anyMinValues reports whether some pool has minValues.
func anyMinValues(templates []*template) bool {
	return slices.ContainsFunc(templates, func(t *template) bool { return len(t.tmpl.Min) > 0 })
}

// answerUnion joins the answers for the requirements of a union: a node or shape is left if any of them leaves it. Mask is that of the
// first term that fits: the terms differ only in labels that instance types decide, so all have the same.
func answerUnion(l *problem.Labels, terms []int, bins int) (on bits.Set, row []problem.Match) {
	on, row = bits.Make(bins), make([]problem.Match, len(l.OnTemplate[terms[0]]))
	for k, at := range terms {
		on.Or(l.OnNode[at])
		for t, m := range l.OnTemplate[at] {
			switch {
			case k == 0 || m.OK && !row[t].OK:
				row[t] = m
			case m.OK && (m.Shapes == nil || row[t].Shapes == nil):
				row[t].Shapes = nil
			case m.OK:
				row[t].Shapes = row[t].Shapes.Clone()
				row[t].Shapes.Or(m.Shapes)
			}
		}
	}
	return on, row
}
