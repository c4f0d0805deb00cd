package compile

import (
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A base is a group with all running pods counted, before a question takes nodes and pods away. Questions about one snapshot share it.
type base struct {
	group  spread.Group
	filter *nodeFilter // of a spread
}

// A nodeFilter is the nodes on which a spread counts pods, and its domains. Spreads over one label with the same filter share it.
type nodeFilter struct {
	nodes, templates bits.Set // nil: all
	inhabits         []int32  // by domain: how many accepted nodes are in it
}

// A groupMemory holds the bases of groups and their filters by name, as long as the templates and the values that number their domains
// stay equal.
type groupMemory struct {
	bases     map[string]*base
	filters   map[string]*nodeFilter
	templates []*template
	asked     []string
}

// A counter counts pods by group and domain, for one question.
type counter struct {
	snap      *cluster.Snapshot
	mem       *Memory
	w         *world
	templates []*template
	topology  *topology
	gone      map[string]bool // names of nodes that are treated as gone
	goneBin   []bool          // the same, by bin
	goneBins  []int
}

// makeGroups writes the groups with their counts: running pods, less those on nodes that are treated as gone and those that move or end,
// plus expected pods.
func (b *builder) makeGroups() {
	for _, k := range b.topology.keys {
		b.problem.Keys = append(b.problem.Keys, solveKey(k))
	}
	m := &b.w.groups
	if m.bases == nil || !slices.Equal(m.templates, b.templates) || !slices.Equal(m.asked, b.topology.asked) {
		*m = groupMemory{map[string]*base{}, map[string]*nodeFilter{}, b.templates, b.topology.asked}
	}
	cr := &counter{b.in.Snap, b.mem, b.w, b.templates, &b.topology, b.in.Gone, b.gone, b.goneBins}
	for _, g := range b.topology.groups.list {
		from := cr.baseOf(g)
		out := from.group.Clone()
		out.Key = b.topology.keyIndex(g.key)
		for _, r := range g.terms {
			out.Filter = append(out.Filter, b.conditions.reqs.of(r.Key(), r))
		}
		for _, key := range g.beside {
			out.Beside = append(out.Beside, b.topology.keyIndex(key))
		}
		if g.kind == spread.Spread && out.Key != spread.Host {
			out.Universe = cr.universe(g, from.filter)
		}
		if g.owned {
			cr.takeAwayGone(g, &out)
		}
		b.problem.Groups = append(b.problem.Groups, out)
	}
	b.takeAwayMoving(cr)
	b.takeAwayEnding(cr)
	b.countExpected(cr)
	b.countOwners(cr)
	b.countPlannedUsers(cr)
}

// baseOf returns the base of a group, which many questions about one snapshot share.
func (cr *counter) baseOf(g *group) *base {
	name := g.identity
	if g.owned {
		name += "owned"
	}
	if out := cr.w.groups.bases[name]; out != nil {
		return out
	}
	out := &base{group: spread.Group{Kind: g.kind, Key: cr.topology.keyIndex(g.key), MaxSkew: g.skew, MinDomains: g.minDomains,
		Required: g.required, Name: g.identity}}
	if g.kind == spread.Spread {
		out.filter = cr.filterOf(g, out.group.Key)
		out.group.Nodes, out.group.Templates = out.filter.nodes, out.filter.templates
	}
	for _, key := range g.others {
		out.group.Others = append(out.group.Others, cr.topology.keyIndex(key))
	}
	if g.owned {
		for _, c := range cr.w.countsOf(g) {
			cr.count(g, &out.group, c.node, g.countOf(c))
		}
	}
	cr.w.groups.bases[name] = out
	return out
}

// filterOf returns the node filter of a spread.
func (cr *counter) filterOf(g *group, key int) *nodeFilter {
	name := identity.Of(g.key, g.filter)
	if out := cr.w.groups.filters[name]; out != nil {
		return out
	}
	out := &nodeFilter{}
	cr.w.groups.filters[name] = out
	if key != spread.Host {
		out.inhabits = cr.inhabits(g, cr.topology.keys[key])
	}
	if !g.honorTaints && len(g.terms)+len(g.beside) == 0 {
		return out
	}
	out.nodes = bits.Make(len(cr.w.nodes))
	for i, n := range cr.w.nodes {
		if g.accepts(n) {
			out.nodes.Add(i)
		}
	}
	if g.honorTaints {
		out.templates = bits.Make(len(cr.templates))
		for i, t := range cr.templates {
			if toleratesAll(g.tolerances, t.taints, true) {
				out.templates.Add(i)
			}
		}
	}
	return out
}

// takeAwayGone takes all pods on nodes that are treated as gone off the counts of a group.
func (cr *counter) takeAwayGone(g *group, out *spread.Group) {
	if len(cr.gone) == 0 {
		return
	}
	for _, c := range cr.w.countsOf(g) {
		if c.bin >= 0 && cr.goneBin[c.bin] || c.bin < 0 && cr.gone[c.node] {
			cr.count(g, out, c.node, -g.countOf(c))
		}
	}
}

// takeAwayMoving takes running pods of this batch off the counts: they are about to move, and are counted where they are placed.
func (b *builder) takeAwayMoving(cr *counter) {
	for _, c := range b.cohorts {
		for _, p := range c.pods {
			if p.NodeName == "" || b.in.Gone[p.NodeName] { // it is counted nowhere
				continue
			}
			for _, id := range c.groups {
				g, out := b.topology.groups.list[id], &b.problem.Groups[id]
				if g.owned && !g.claim && (p.Deleted.IsZero() || g.kind != spread.Spread) {
					cr.count(g, out, p.NodeName, -1)
				}
			}
		}
	}
}

// takeAwayEnding takes the pods that end with a node that is being removed off the counts of spreads and affinities: pods of
// DaemonSets, and pods that no plan can place. Nothing can rely on them. Anti-affinity counts them as long as they run.
func (b *builder) takeAwayEnding(cr *counter) {
	if len(b.w.leaving) == 0 || len(b.topology.groups.list) == 0 {
		return
	}
	asked, lost := map[cluster.PodKey]bool{}, map[cluster.PodKey]bool{}
	for _, p := range b.in.Pods {
		asked[p.PodKey] = true
	}
	for _, r := range b.out.Refused {
		lost[r.Pod.PodKey] = true
	}
	for _, n := range b.w.leaving {
		for _, p := range n.row.Pods {
			if cr.gone[n.row.Name] || !lost[p.PodKey] && (asked[p.PodKey] || !p.DaemonSet) {
				continue
			}
			for _, g := range b.topology.groups.list {
				if g.owned && !g.claim && g.kind != spread.Anti && (p.Deleted.IsZero() || g.kind != spread.Spread) &&
					g.covers(p.Namespace) && g.selector.matches(p.Labels.Map) {
					cr.count(g, &b.problem.Groups[g.id], n.row.Name, -1)
				}
			}
		}
	}
}

// count adds n pods on a node to the counts of a group. If the node has no domain for the group, but one for another term of the owners'
// affinity, they are added to Elsewhere.
func (cr *counter) count(g *group, out *spread.Group, node string, n int32) {
	d, ok := cr.domainOf(g, out.Key, node)
	switch {
	case ok:
		out.Add(d, n)
	case slices.ContainsFunc(out.Others, func(key int) bool {
		_, ok := cr.domainOf(g, key, node)
		return ok
	}):
		out.Elsewhere += int(n)
	}
}

// domainOf returns the domain of a node; false if it has none, or if the group does not count pods there. Nodes that are being removed are
// no bins, but pods that still run there count.
func (cr *counter) domainOf(g *group, key int, node string) (int, bool) {
	if bin, ok := cr.w.binOf[node]; ok {
		return cr.domainOfBin(g, key, bin)
	}
	row := cr.snap.Node(node)
	if row == nil || key == spread.Host || row.Incomplete {
		return 0, false
	}
	n := cr.mem.nodeOf(row)
	v, has := n.labels[cr.topology.keys[key].name]
	if !has || !g.accepts(n) {
		return 0, false
	}
	d, known := cr.topology.keys[key].index[v]
	return int(d), known
}

// domainOfBin returns the domain of a bin; false if it has none, or if the group does not count pods there.
func (cr *counter) domainOfBin(g *group, key, bin int) (int, bool) {
	if !g.accepts(cr.w.nodes[bin]) {
		return 0, false
	}
	if key == spread.Host {
		return bin, true
	}
	d := cr.topology.keys[key].node[bin]
	return int(d), d >= 0
}

// countOwners counts, by domain, the running and expected owners of required anti-affinity that selects pods of this batch. Pods of this
// batch, and expected pods on their old nodes, are left out.
func (b *builder) countOwners(cr *counter) {
	if len(b.topology.repulsions) == 0 {
		return
	}
	concerned := make([]bool, len(b.topology.groups.list))
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
	for i := range b.seats.expected {
		if e := &b.seats.expected[i]; e.leaves(b.in.Gone) != "" {
			if r := b.w.repelling[e.pod.PodKey]; r != nil {
				moving[r] = append(moving[r], e.pod)
			}
		}
	}
	for _, r := range b.topology.repulsions {
		if !concerned[r.group.id] {
			continue // no pod of this batch is selected
		}
		out := &b.problem.Groups[r.group.id]
		for _, at := range b.w.nodesOf(r.from) {
			if !b.in.Gone[at.node] {
				cr.addOwners(r.group, out, at.node, at.n)
			}
		}
		for _, p := range moving[r.from] {
			cr.addOwners(r.group, out, p.NodeName, -1)
		}
	}
}

func (cr *counter) addOwners(g *group, out *spread.Group, node string, n int32) {
	if d, ok := cr.domainOf(g, out.Key, node); ok {
		out.AddOwners(d, n)
	}
}
