package lower

import (
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A base is what a group is before a question takes nodes and pods away: its filters, and everything that runs, counted.
type base struct {
	group  spread.Group
	filter *nodeFilter // of a spread
}

// A nodeFilter is whose pods a spread counts and which domains it knows. Spreads over one label that take the same nodes share it.
type nodeFilter struct {
	nodes, templates bits.Set // nil: all
	inhabits         []int32  // by domain: nodes that are in it
}

// makeGroups writes the groups with what runs now.
func (b *builder) makeGroups() {
	for _, k := range b.keys {
		b.problem.Keys = append(b.problem.Keys, solveKey(k))
	}
	if b.w.bases == nil || !slices.Equal(b.w.basesFor, b.templates) || !slices.Equal(b.w.basesAsked, b.asked) {
		b.w.basesFor, b.w.basesAsked, b.w.bases, b.w.filters = b.templates, b.asked, map[string]*base{}, map[string]*nodeFilter{}
	}
	for _, g := range b.groups.list {
		from := b.baseOf(g)
		out := from.group.Clone()
		out.Key = b.keyIndex(g.key)
		for _, r := range g.terms {
			out.Filter = append(out.Filter, b.reqs.of(r.Key(), r))
		}
		for _, key := range g.beside {
			out.Beside = append(out.Beside, b.keyIndex(key))
		}
		if g.kind == spread.Spread && out.Key != spread.Host {
			out.Universe = b.universe(g, from.filter)
		}
		if g.owned {
			b.takeAway(g, &out)
		}
		b.problem.Groups = append(b.problem.Groups, out)
	}
	b.takeAwayMoving()
	b.countExpected()
	b.countOwners()
	b.countPlannedUsers()
}

// baseOf returns the base of a group, which many questions about one snapshot share.
func (b *builder) baseOf(g *group) *base {
	name := g.identity
	if g.owned {
		name += "owned"
	}
	if out := b.w.bases[name]; out != nil {
		return out
	}
	out := &base{group: spread.Group{Kind: g.kind, Key: b.keyIndex(g.key), MaxSkew: g.skew, MinDomains: g.minDomains,
		Required: g.required, Name: g.identity}}
	if g.kind == spread.Spread {
		out.filter = b.filterOf(g, out.group.Key)
		out.group.Nodes, out.group.Templates = out.filter.nodes, out.filter.templates
	}
	for _, key := range g.others {
		out.group.Others = append(out.group.Others, b.keyIndex(key))
	}
	if g.owned {
		for _, c := range b.w.countsOf(g) {
			b.count(g, &out.group, c.node, g.countOf(c))
		}
	}
	b.w.bases[name] = out
	return out
}

// filterOf returns the node filter of a spread.
func (b *builder) filterOf(g *group, key int) *nodeFilter {
	name := identity.Of(g.key, g.filter)
	if out := b.w.filters[name]; out != nil {
		return out
	}
	out := &nodeFilter{}
	b.w.filters[name] = out
	if key != spread.Host {
		out.inhabits = b.inhabits(g, b.keys[key])
	}
	if !g.honorTaints && len(g.terms)+len(g.beside) == 0 {
		return out
	}
	out.nodes = bits.Make(len(b.nodes))
	for i, n := range b.nodes {
		if g.accepts(n) {
			out.nodes.Add(i)
		}
	}
	if g.honorTaints {
		out.templates = bits.Make(len(b.templates))
		for i, t := range b.templates {
			if toleratesAll(g.tolerances, t.taints, true) {
				out.templates.Add(i)
			}
		}
	}
	return out
}

// takeAway takes everything on removed nodes off the counts.
func (b *builder) takeAway(g *group, out *spread.Group) {
	if len(b.in.Gone) == 0 {
		return
	}
	for _, c := range b.w.countsOf(g) {
		if c.bin >= 0 && b.gone[c.bin] || c.bin < 0 && b.in.Gone[c.node] {
			b.count(g, out, c.node, -g.countOf(c))
		}
	}
}

// takeAwayMoving takes the pods of this batch that run, and are about to move, off the counts.
func (b *builder) takeAwayMoving() {
	for _, c := range b.cohorts {
		for _, p := range c.pods {
			if p.NodeName == "" || b.in.Gone[p.NodeName] { // it is counted nowhere
				continue
			}
			for _, id := range c.groups {
				g, out := b.groups.list[id], &b.problem.Groups[id]
				if g.claim || !p.Deleted.IsZero() && g.kind == spread.Spread {
					continue
				}
				if g.owned {
					b.count(g, out, p.NodeName, -1)
				}
			}
		}
	}
}

// count adds n pods on a node to what a group counts.
func (b *builder) count(g *group, out *spread.Group, node string, n int32) {
	d, ok := b.domainOf(g, out.Key, node)
	switch {
	case ok:
		out.Add(d, n)
	case slices.ContainsFunc(out.Others, func(key int) bool {
		_, ok := b.domainOf(g, key, node)
		return ok
	}):
		out.Elsewhere += int(n)
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
	n := b.mem.nodeOf(row)
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

// countOwners counts the running and the expected owners of required anti-affinity.
func (b *builder) countOwners() {
	if len(b.repulsions) == 0 {
		return
	}
	concerned := make([]bool, len(b.groups.list))
	for _, c := range b.cohorts {
		for _, g := range c.groups {
			concerned[g] = true
		}
	}
	moving := map[*repeller][]*cluster.Pod{}
	for _, p := range b.in.Pods {
		if r := b.w.repelling[p.PodKey]; r != nil && !b.in.Gone[p.NodeName] {
			moving[r] = append(moving[r], p)
		}
	}
	for i := range b.expected {
		if e := &b.expected[i]; e.leaves(b) != "" {
			if r := b.w.repelling[e.pod.PodKey]; r != nil {
				moving[r] = append(moving[r], e.pod)
			}
		}
	}
	for _, r := range b.repulsions {
		if !concerned[r.group.id] {
			continue // no pod of this batch is selected
		}
		out := &b.problem.Groups[r.group.id]
		for _, at := range b.w.nodesOf(r.from) {
			if !b.in.Gone[at.node] {
				b.addOwners(r.group, out, at.node, at.n)
			}
		}
		for _, p := range moving[r.from] {
			b.addOwners(r.group, out, p.NodeName, -1)
		}
	}
}

func (b *builder) addOwners(g *group, out *spread.Group, node string, n int32) {
	if d, ok := b.domainOf(g, out.Key, node); ok {
		out.AddOwners(d, n)
	}
}
