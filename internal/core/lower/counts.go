package lower

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// makeGroups writes the groups with what runs now.
func (b *builder) makeGroups() {
	for _, k := range b.keys {
		b.problem.Keys = append(b.problem.Keys, solveKey(k))
	}
	for _, g := range b.groups.list {
		out := spread.Group{Kind: g.kind, Key: b.keyIndex(g.key), MaxSkew: g.skew, MinDomains: g.minDomains, Required: g.required, Name: g.text("")}
		if g.kind == spread.Spread {
			b.filter(g, &out)
			if out.Key != spread.Host {
				out.Universe = b.universe(g, b.keys[out.Key])
			}
		}
		if g.owned {
			b.countRunning(g, &out)
		}
		b.problem.Groups = append(b.problem.Groups, out)
	}
	b.concerns = make([]bool, len(b.groups.list))
	for _, c := range b.cohorts {
		for _, g := range c.groups {
			b.concerns[g] = true
		}
	}
	b.countOwners()
}

// filter writes the node filter of a spread.
func (b *builder) filter(g *group, out *spread.Group) {
	if !g.honorTaints && len(g.terms) == 0 {
		return
	}
	out.Nodes = bits.Make(len(b.nodes))
	for i, n := range b.nodes {
		if g.accepts(n) {
			out.Nodes.Add(i)
		}
	}
	if g.honorTaints {
		out.Templates = bits.Make(len(b.templates))
		for i, t := range b.templates {
			if toleratesAll(g.tolerances, t.taints, true) {
				out.Templates.Add(i)
			}
		}
	}
	for _, r := range g.terms {
		out.Filter = append(out.Filter, b.reqs.of(r.Key(), r))
	}
}

// countRunning counts the pods that run now, without those of this batch, which are about to move.
func (b *builder) countRunning(g *group, out *spread.Group) {
	for _, c := range b.w.countsOf(g) {
		switch {
		case c.bin < 0:
			b.countOn(g, out, c.node, c.n)
		case b.gone[c.bin]:
		default:
			if d, ok := b.domainOfBin(g, out.Key, c.bin); ok {
				out.Add(d, c.n)
			}
		}
	}
	for _, c := range b.cohorts {
		for _, p := range c.pods {
			if p.NodeName == "" || b.in.Gone[p.NodeName] { // it is counted nowhere
				continue
			}
			if p.Deleted.IsZero() && g.covers(p.Namespace) && g.selector.matches(p.Labels.Map) {
				b.countOn(g, out, p.NodeName, -1)
			}
		}
	}
}

// countOn adds n pods on a node to a group's counts, if the node is there and counted.
func (b *builder) countOn(g *group, out *spread.Group, node string, n int32) {
	if b.in.Gone[node] {
		return
	}
	if d, ok := b.domainOf(g, out.Key, node); ok {
		out.Add(d, n)
	}
}

// domainOf returns the domain of a node. Nodes that are being removed are no bins, but what still runs there counts.
func (b *builder) domainOf(g *group, key int, node string) (int, bool) {
	if bin, ok := b.binOf[node]; ok {
		return b.domainOfBin(g, key, bin)
	}
	row := b.in.Snap.Node(node)
	if row == nil || key == spread.Host || row.Incomplete {
		return 0, false
	}
	n := b.e.nodeOf(row)
	v, has := n.labels[b.keys[key].name]
	if !has || !g.accepts(n) {
		return 0, false
	}
	d, known := b.keys[key].index[v]
	return int(d), known
}

// domainOfBin returns the domain of a bin.
func (b *builder) domainOfBin(g *group, key, bin int) (int, bool) {
	if !g.accepts(b.nodes[bin]) {
		return 0, false
	}
	if key == spread.Host {
		return bin, true
	}
	d := b.keys[key].node[bin]
	return int(d), d >= 0
}

// countOwners counts the running owners of required anti-affinity.
func (b *builder) countOwners() {
	for _, r := range b.repulsions {
		if !b.concerns[r.group.id] {
			continue // nobody in this batch is selected
		}
		out := &b.problem.Groups[r.group.id]
		for _, p := range r.from.pods {
			if b.batch[p.PodKey] || b.in.Gone[p.NodeName] {
				continue
			}
			if d, ok := b.domainOf(r.group, out.Key, p.NodeName); ok {
				out.AddOwners(d, 1)
			}
		}
	}
}
