package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
)

// makeNodes writes the bins: what is free on each beside running pods, coming daemons, and pods that are not asked for but have a seat or a
// kept place there. Bins that are closed or gone, or have the seat of a postponed pod, take no pods.
func (b *builder) makeNodes() {
	b.problem.Nodes = slices.Clone(b.w.bins)
	for _, i := range b.w.ported {
		for _, list := range [][]ports.Port{b.w.nodes[i].ports, b.w.nodes[i].coming.ports} {
			for _, p := range list {
				b.problem.Nodes[i].Ports = append(b.problem.Nodes[i].Ports, b.ports.Intern(p))
			}
		}
	}
	for _, names := range []map[string]bool{b.in.Closed, b.in.Gone} {
		for name, shut := range names {
			if bin, ok := b.w.binOf[name]; ok && shut {
				b.problem.Nodes[bin].Closed = true
			}
		}
	}
	own := map[int]bool{} // bins whose room is a copy
	for e := range b.withPlaces() {
		if bin, ok := b.w.binOf[e.target]; ok {
			node := &b.problem.Nodes[bin]
			if !own[bin] {
				own[bin], node.Room = true, slices.Clone(node.Room)
			}
			// The terms of a postponed pod were not read, so it is not known what may be beside it.
			node.Closed = node.Closed || e.pod != nil && b.admission.postponed[e.pod.PodKey]
			node.Room.Sub(e.info.need)
			for _, p := range e.info.ports {
				node.Ports = append(node.Ports, b.ports.Intern(p))
			}
		}
	}
	b.problem.Ports = b.ports
	b.makeVolumes()
}

// makeTemplates writes the templates, with what depends on the whole question: pool and tier, host ports and counted pods of daemons,
// volume limits. It also writes what reservations have left, the least that any template's catalogue says, and which ports exclude
// each class.
func (b *builder) makeTemplates() {
	tier, weight, pool := -1, int32(0), 0
	for i, t := range b.templates {
		if i == 0 || t.pool.Weight() != weight {
			tier, weight = tier+1, t.pool.Weight()
		}
		if i > 0 && t.pool.Name != b.templates[i-1].pool.Name {
			pool++ // parts of a pool follow each other
		}
		tmpl := t.tmpl
		tmpl.Pool, tmpl.Tier = pool, tier
		tmpl.Daemons = slices.Clone(tmpl.Daemons)
		for g := range tmpl.Daemons {
			tmpl.Daemons[g].Ports = nil
			for _, p := range t.ports[g] {
				tmpl.Daemons[g].Ports = append(tmpl.Daemons[g].Ports, b.ports.Intern(p))
			}
			tmpl.Daemons[g].Counted, tmpl.Daemons[g].Decide = b.arrivals(t.daemons[g])
		}
		for name, d := range b.volumes.drivers {
			if limit := t.catalog.shape.VolumeLimit[name]; limit != nil {
				for len(tmpl.Drivers) <= d {
					tmpl.Drivers = append(tmpl.Drivers, nil)
				}
				tmpl.Drivers[d] = limit
			}
		}
		b.problem.Templates = append(b.problem.Templates, tmpl)
		for r, left := range t.catalog.shape.Left {
			for len(b.problem.Reservations) <= r {
				b.problem.Reservations = append(b.problem.Reservations, -1)
			}
			if old := b.problem.Reservations[r]; old < 0 || left < old {
				b.problem.Reservations[r] = left
			}
		}
	}
	b.problem.Tiers = tier + 1
	for i := range b.problem.Classes {
		if c := &b.problem.Classes[i]; len(c.Ports) > 0 {
			c.Conflict = b.ports.Conflicts(c.Ports)
		}
	}
}

// arrivals returns, for the DaemonSets in sets, how many of their pods on one new node each group counts, and under which requirements. It
// also returns the topology keys that decide which of them start, because their labels are chosen for each node.
func (b *builder) arrivals(sets []int) (out []problem.Arrival, decide []int) {
	for _, i := range sets {
		if len(b.topology.counting[i]) == 0 {
			continue
		}
		d := &b.mem.daemons[i]
		var where []int
		if keys := b.choicesOf(d); len(keys) > 0 {
			for _, key := range keys {
				decide = append(decide, b.topology.keyIndex(key))
			}
			for _, r := range d.info.terms {
				where = append(where, b.conditions.reqs.of(r.Key(), r))
			}
		}
		for _, g := range b.topology.counting[i] {
			at := slices.IndexFunc(out, func(a problem.Arrival) bool { return a.Group == g && slices.Equal(a.Where, where) })
			if at < 0 {
				at = len(out)
				out = append(out, problem.Arrival{Group: g, Where: where})
			}
			out[at].Count++
		}
	}
	slices.SortStableFunc(out, func(x, y problem.Arrival) int { return x.Group - y.Group })
	return out, decide
}

// choicesOf returns the labels that a DaemonSet asks nodes for and that are chosen for each node of some pool.
func (b *builder) choicesOf(d *daemon) []string {
	var out []string
	for _, r := range d.info.terms {
		for _, q := range r {
			if q.Key != corev1.LabelHostname && !slices.Contains(out, q.Key) && !typesDecide(b.templates, q.Key) {
				out = append(out, q.Key)
			}
		}
	}
	return out
}

// makeLabels answers what every set of requirements and tolerations leaves of nodes and templates.
func (b *builder) makeLabels() {
	l := &b.problem.Labels
	for i, r := range b.conditions.reqs.list {
		if terms := b.conditions.unions[i]; terms != nil { // interned before the union, so answered already
			on, row := answerUnion(l, terms, len(b.w.nodes))
			l.OnNode, l.OnTemplate = append(l.OnNode, on), append(l.OnTemplate, row)
			continue
		}
		on := bits.Full(len(b.w.nodes))
		for _, q := range r {
			b.w.column(q.Key).keep(q.Set, on)
		}
		l.OnNode = append(l.OnNode, on)
		row := make([]problem.Match, len(b.templates))
		for t, tmpl := range b.templates {
			row[t] = tmpl.matchOf(r, b.conditions.reqs.keys[i])
		}
		l.OnTemplate = append(l.OnTemplate, row)
	}
	for i, tol := range b.conditions.tols.list {
		on := bits.Make(len(b.w.nodes))
		for i := range b.w.taints {
			if toleratesAll(tol.tolerances, b.w.taints[i].taints, tol.soft) {
				on.Or(b.w.taints[i].nodes)
			}
		}
		tmpl := bits.Make(len(b.templates))
		for t := range b.templates {
			if toleratesAll(tol.tolerances, b.templates[t].taints, tol.soft) {
				tmpl.Add(t)
			}
		}
		lack := problem.Lack{Features: b.conditions.tols.keys[i].features}
		if len(tol.features) > 0 {
			lack.Node, lack.Tmpl = b.w.lacking(tol.features, on, tmpl, b.templates)
			on.AndNot(lack.Node)
			tmpl.AndNot(lack.Tmpl)
		}
		l.TolNode, l.TolTmpl, l.Lacks = append(l.TolNode, on), append(l.TolTmpl, tmpl), append(l.Lacks, lack)
	}
}

// makePools works out what each pool may still open, and how much CPU its pods ask for. A node that disruption replaces counts until it is
// being deleted, because the replacement may fail. In a what-if question (Simulation) it does not count.
func (b *builder) makePools() {
	used := map[string]quantity.Vec{}
	count := map[string]int64{}
	for _, t := range b.templates {
		if len(t.pool.Spec.Limits) > 0 {
			used[t.pool.Name] = make(quantity.Vec, b.problem.Resources)
		}
	}
	if len(used) > 0 {
		rows := b.w.nodes
		if !b.in.Simulation {
			rows = slices.Concat(rows, slices.DeleteFunc(slices.Clone(b.w.leaving), func(n *nodeInfo) bool { return n.row.Deleting() }))
		}
		for _, n := range rows {
			if v := used[n.pool]; v != nil && !b.in.Gone[n.row.Name] {
				v.Add(n.capacity)
				count[n.pool]++
			}
		}
	}
	for i, t := range b.templates {
		if i > 0 && t.pool.Name == b.templates[i-1].pool.Name {
			continue
		}
		p := problem.Pool{Name: t.pool.Name, Limit: limits.Pool{Nodes: limits.Unlimited}, Asks: b.w.asks[t.pool.Name]}
		for name, q := range t.pool.Spec.Limits {
			p.Limit.Limited = true
			if p.Limit.Left == nil {
				p.Limit.Left = make(quantity.Vec, b.problem.Resources)
				for r := range p.Limit.Left {
					p.Limit.Left[r] = limits.Unlimited
				}
			}
			if name == v1.ResourceNodes {
				p.Limit.Nodes = down(name, &q) - count[t.pool.Name]
			} else if r := b.mem.resources.names.Lookup(string(name)); r >= 0 && name != quota.Dollars {
				p.Limit.Left[r] = down(name, &q) - used[t.pool.Name][r]
			}
		}
		b.problem.Pools = append(b.problem.Pools, p)
	}
	for name, gone := range b.in.Gone {
		if i, ok := b.w.binOf[name]; ok && gone {
			n := b.w.nodes[i]
			if at := slices.IndexFunc(b.problem.Pools, func(p problem.Pool) bool { return p.Name == n.pool }); at >= 0 {
				b.problem.Pools[at].Asks -= n.asks()
			}
		}
	}
}
