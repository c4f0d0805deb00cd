package compile

import (
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A future is what a claim whose machine has not been launched may become. It is not known yet which machine it
// will be, but what all of them have in common is known: pods that ask for that have their place there, and none
// besides.
type future struct {
	asked  label.Reqs     // of the claim
	from   *shape.Catalog // of its pool; nil if it is not known
	shapes bits.Set       // which of them it may be
}

// futureOf returns what a row may become; nil once its machine is there.
func (m *Memory) futureOf(row *cluster.Node) *future {
	if row.Claim == nil || row.Node != nil || row.Claim.Status.ProviderID != "" {
		return nil
	}
	f := &future{}
	for i := range row.Claim.Spec.Requirements {
		r := &row.Claim.Spec.Requirements[i]
		if s, ok := label.New(label.Op(r.Operator), r.Values); ok {
			f.asked = f.asked.With(m.known.Normalize(r.Key), s)
		}
	}
	cat := m.poolCatalogs[row.Claim.Labels[v1.NodePoolLabelKey]]
	if cat == nil {
		return f
	}
	f.from, f.shapes = cat.shape, bits.Full(cat.shape.Len())
	for _, q := range f.asked {
		f.from.Shapes(q.Key, q.Set, f.shapes)
	}
	return f
}

// may returns the values of which a label will have one, as far as anybody knows.
func (f *future) may(key string) (label.Set, bool) {
	set, _ := f.asked.Get(key)
	if f.from != nil && f.from.Mentions(key) && f.shapes.Any() {
		var values []string
		silent := f.shapes.Clone()
		for _, v := range f.from.Values(key) {
			with := f.from.With(key, v)
			if with.Meets(f.shapes) && set.Has(v) {
				values = append(values, v)
			}
			silent.AndNot(with)
		}
		if !silent.Any() && len(values) > 0 {
			return label.Only(values...), true
		}
	}
	return set, !set.Open() && !set.HasAbsent() && !set.Empty()
}

// within reports whether all that a label may be is in s.
func within(may, s label.Set) bool {
	return !slices.ContainsFunc(may.Values(), func(v string) bool { return !s.Has(v) })
}

// labelsOf returns the labels that a row is sure to have. Daemons that wait for what Karpenter writes on a node
// once it is ready will come.
func labelsOf(row *cluster.Node) map[string]string {
	labels := row.Labels()
	if row.Initialized() {
		return labels
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1.NodeRegisteredLabelKey], labels[v1.NodeInitializedLabelKey] = "true", "true"
	return labels
}

// label returns the value of a label that the node has or is sure to get.
func (n *nodeInfo) label(key string) (string, bool) {
	v, ok := n.labels[key]
	if !ok && n.future != nil {
		if may, known := n.future.may(key); known {
			return may.Single()
		}
	}
	return v, ok
}

// allows reports whether the node satisfies requirements, whatever it becomes.
func (n *nodeInfo) allows(r label.Reqs) bool {
	if n.future == nil {
		_, ok := r.Allow(n.labels)
		return ok
	}
	return !slices.ContainsFunc(r, func(q label.Req) bool {
		if v, has := n.labels[q.Key]; has {
			return !q.Set.Has(v)
		}
		if may, known := n.future.may(q.Key); known {
			return !within(may, q.Set)
		}
		return !q.Set.HasAbsent()
	})
}
