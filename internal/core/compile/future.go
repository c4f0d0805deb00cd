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

// A future is what a claim without a machine may still become. It is not known which machine it will be, but what all possible machines
// have in common is. So only pods that ask for what is common can be planned onto it.
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

// possibleValues returns the values of which a label will have one: of those that the possible machines have in the catalogue, the ones
// that the claim allows; or the values that the claim lists, if some possible machine has none there. It returns false, and the set means
// nothing, if the label may also be absent or have any value.
func (f *future) possibleValues(key string) (label.Set, bool) {
	set, _ := f.asked.Get(key)
	if f.from != nil && f.from.Mentions(key) && f.shapes.Any() {
		var values []string
		silent := f.shapes.Clone() // those without any value for the key
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

// within reports whether s allows each value of may.
func within(may, s label.Set) bool {
	return !slices.ContainsFunc(may.Values(), func(v string) bool { return !s.Has(v) })
}

// labelsOf returns the labels that a row is sure to have. They include those that Karpenter writes once a node is registered and
// initialised, so that DaemonSets which select by these count as coming.
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
		if may, known := n.future.possibleValues(key); known {
			return may.Single()
		}
	}
	return v, ok
}

// allows reports whether the node satisfies requirements with each machine that it may become.
func (n *nodeInfo) allows(r label.Reqs) bool {
	if n.future == nil {
		_, ok := r.Allow(n.labels)
		return ok
	}
	return !slices.ContainsFunc(r, func(q label.Req) bool {
		if v, has := n.labels[q.Key]; has {
			return !q.Set.Has(v)
		}
		if may, known := n.future.possibleValues(q.Key); known {
			return !within(may, q.Set)
		}
		return !q.Set.HasAbsent()
	})
}
