package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// A quota may depend on what is bought: on the zone, on the capacity type. A pool under such a quota is planned as several templates, one
// for each value, so that a claim counts as what it will be. Claims then list one value of the label.

// partKey names a part of a pool.
type partKey struct {
	pool       *v1.NodePool
	key, value string
}

// partsOf returns the parts of a pool that are planned apart: one for each capacity type or zone (or pair of both) if some quota asks for
// it, else the pool itself. A pool with minValues for the label is not split by it, because a claim of a part lists one value only.
func (m *Memory) partsOf(quotas []quota.Quota, p Pool, in *Input) []Pool {
	out := []Pool{p}
	for _, key := range []string{v1.CapacityTypeLabelKey, corev1.LabelTopologyZone} {
		if !slices.ContainsFunc(quotas, func(q quota.Quota) bool { return q.Asks(key) }) || asksMinValues(p.Pool, key) {
			continue
		}
		values := m.catalogOf(p, in).shape.Values(key)
		var next []Pool
		for _, whole := range out {
			for _, v := range values {
				next = append(next, Pool{Pool: m.partOf(partKey{whole.Pool, key, v}), Catalog: p.Catalog})
			}
		}
		if len(values) > 1 {
			out = next
		}
	}
	return out
}

func asksMinValues(p *v1.NodePool, key string) bool {
	return slices.ContainsFunc(p.Spec.Template.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool {
		return r.Key == key && r.MinValues != nil
	})
}

// partOf returns the copy of a pool that allows one value of a label. It is made once, so that equal pools have
// one pointer.
func (m *Memory) partOf(k partKey) *v1.NodePool {
	if part := m.parts[k]; part != nil {
		return part
	}
	part := *k.pool
	part.Spec.Template.Spec.Requirements = append(slices.Clone(k.pool.Spec.Template.Spec.Requirements),
		v1.NodeSelectorRequirementWithMinValues{Key: k.key, Operator: corev1.NodeSelectorOpIn, Values: []string{k.value}})
	m.parts[k] = &part
	return &part
}

// countDollars writes what each shape counts against limits if some quota is about dollars: its capacity, and the price of its dearest
// offering in millionths of a dollar, rounded up.
func (m *Memory) countDollars(t *template) {
	column := m.resources.names.Lookup(string(quota.Dollars))
	if column < 0 {
		return
	}
	cat := t.catalog.shape
	t.tmpl.Counted = slices.Clone(cat.Capacity)
	for sh := range t.tmpl.Shapes.All() {
		counted := slices.Clone(cat.Capacity[sh])
		for o := range cat.Offers {
			if t.tmpl.ShapeMask[sh].Has(o) {
				counted[column] = max(counted[column], (cat.Paid(sh, o)+999)/1000)
			}
		}
		t.tmpl.Counted[sh] = counted
	}
}

// makeQuotas works out which machines may fall under which quota, and what each leaves.
func makeQuotas(b *builder) {
	quotas := b.out.quotas
	if len(quotas) == 0 {
		return
	}
	market := quota.Market{}
	for _, p := range b.in.Pools {
		market[p.Pool.Name] = p.Catalog
	}
	gone := func(n *cluster.Node) bool {
		return b.in.Gone[n.Name] || n.Deleting() || b.in.Simulation && n.MarkedForRemoval
	}
	for i := range quotas {
		q := &quotas[i]
		p := problem.Quota{Name: q.Name, Of: make([]bits.Set, len(b.templates)),
			Limit: limits.Pool{Limited: true, Nodes: limits.Unlimited, Left: make(quantity.Vec, b.problem.Resources)}}
		for r := range p.Limit.Left {
			p.Limit.Left[r] = limits.Unlimited
		}
		used := q.Used(b.in.Snap, market, gone)
		for name, limit := range q.Limits {
			have := used[name]
			left := down(name, &limit) - up(name, &have)
			if name == v1.ResourceNodes {
				p.Limit.Nodes = left
			} else if r := b.mem.resources.names.Lookup(string(name)); r >= 0 {
				p.Limit.Left[r] = left
			}
		}
		for t := range b.templates {
			if p.Of[t] = b.templates[t].under(q); p.Of[t].Any() {
				b.problem.Pools[b.problem.Templates[t].Pool].Limit.Limited = true
			}
		}
		b.problem.Quotas = append(b.problem.Quotas, p)
	}
}

// under returns the shapes of a template whose nodes may fall under a quota, nil if there are none.
func (t *template) under(q *quota.Quota) bits.Set {
	var needs []label.Req
	for key, set := range q.Needs() {
		needs = append(needs, label.Req{Key: t.known.Normalize(key), Set: set})
	}
	m := t.match(label.Of(needs))
	if !m.OK {
		return nil
	}
	shapes := t.sellsUnder(&m)
	if !shapes.Any() {
		return nil
	}
	return shapes
}
