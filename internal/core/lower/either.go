package lower

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// Of several required terms a node has to meet one, and a class is read as each of them in turn. A claim that has
// to list several types may need some that meet one term and some that meet another: where pools have minValues,
// classes are read last as all their terms at once. That is one question as long as the terms differ in nothing but
// what types alone decide.

// either returns the requirements of which one has to be met as one, if they can be told so.
func (b *builder) either(terms []int) (int, bool) {
	agreed := b.reqs.list[terms[0]]
	text := []byte{0} // the key of requirements never starts with an empty text
	for _, at := range terms {
		for _, key := range differing(b.reqs.list[terms[0]], b.reqs.list[at]) {
			if !b.typesDecide(key) {
				return 0, false
			}
			agreed = agreed.Without(key)
		}
		text = identity.Text(text, b.reqs.keys[at])
	}
	at := b.reqs.of(string(text), agreed)
	if b.eithers == nil {
		b.eithers = map[int][]int{}
	}
	b.eithers[at] = terms
	return at, true
}

// differing returns the keys of which two requirements do not say the same.
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

// typesDecide reports whether neither an offer nor anybody's choice decides about a label of any template's nodes.
func (b *builder) typesDecide(key string) bool {
	return !slices.ContainsFunc(b.templates, func(t *template) bool { return t.catalog.shape.Decides(key) || t.isFree(key) })
}

// wantsVariety reports whether some pool has minValues.
func (b *builder) wantsVariety() bool {
	return slices.ContainsFunc(b.templates, func(t *template) bool { return len(t.tmpl.Min) > 0 })
}

// answerEither says what requirements of which one has to be met leave of nodes and templates, from what each of them leaves.
func (b *builder) answerEither(terms []int) (on bits.Set, row []problem.Match) {
	l := &b.problem.Labels
	on, row = bits.Make(len(b.nodes)), make([]problem.Match, len(b.templates))
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
