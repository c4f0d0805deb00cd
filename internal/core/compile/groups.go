package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A group is a topology constraint (a spread, an affinity or an anti-affinity) while the problem is compiled.
type group struct {
	id         int
	kind       spread.Kind
	key        string
	skew       int32
	minDomains int32
	required   bool     // of affinity and anti-affinity
	hard       bool     // of a spread: some pod of this batch insists on it
	namespaces []string // sorted; nil with every
	every      bool     // pods of every namespace
	selector   selector
	// The node filter of a spread: it counts pods only on nodes that pass.
	honorTaints bool
	tolerances  []corev1.Toleration
	terms       []label.Reqs // nil: no filter by labels
	beside      []string     // labels that a node must have, with any value
	filter      string       // identity of the node filter
	others      []string     // of affinity: topology keys of the other terms of the same pods
	claim       bool         // it selects the pods that use a volume claim, not by labels; running pods are not counted
	owned       bool         // some pod of this batch carries it
	identity    string       // equal for equal groups; see text
}

// filterText returns the identity of the node filter: equal filters have equal texts.
func (g *group) filterText(tolKey string) string {
	w := make([]byte, 0, 256)
	if w = identity.Flag(w, g.honorTaints); g.honorTaints {
		w = identity.Text(w, tolKey)
	}
	w = identity.Number(w, int64(len(g.terms)))
	for _, t := range g.terms {
		w = identity.Text(w, t.Key())
	}
	w = identity.Texts(w, g.beside)
	return string(w)
}

// text returns the group's identity: intern keeps groups with equal texts only once.
func (g *group) text() string {
	w := make([]byte, 0, 256)
	w = identity.Number(w, int64(g.kind))
	w = identity.Text(w, g.key)
	w = identity.Text(w, g.selector.text)
	w = identity.Flag(w, g.required)
	w = identity.Flag(w, g.every)
	w = identity.Texts(w, g.namespaces)
	w = identity.Texts(w, g.others)
	w = identity.Number(w, int64(g.skew))
	w = identity.Number(w, int64(g.minDomains))
	w = identity.Text(w, g.filter)
	return string(w)
}

// covers reports whether the group is about pods of a namespace.
func (g *group) covers(namespace string) bool {
	if g.every {
		return true
	}
	_, ok := slices.BinarySearch(g.namespaces, namespace)
	return ok
}

// A groupTable holds the groups of one problem, each once.
type groupTable struct {
	list  []*group
	index map[string]*group
	snap  *cluster.Snapshot
}

func newGroupTable(snap *cluster.Snapshot) *groupTable {
	return &groupTable{index: map[string]*group{}, snap: snap}
}

// intern returns the group of the table that equals g, and adds g first if there is none.
func (t *groupTable) intern(g group) *group {
	text := g.text()
	if old := t.index[text]; old != nil {
		old.owned = old.owned || g.owned
		return old
	}
	kept := &g
	kept.id, kept.identity = len(t.list), text
	t.list = append(t.list, kept)
	t.index[text] = kept
	return kept
}

// spread returns the group of the k-th of all topology spread constraints of a pod. If the constraint is required, it does not count nodes
// that lack the label of another required constraint of the pod.
func (t *groupTable) spread(i *podInfo, all []spreadTerm, k int, namespace string, podLabels map[string]string) *group {
	term := &all[k]
	g := group{kind: spread.Spread, key: term.key, skew: term.skew, minDomains: term.minDomains,
		namespaces: []string{namespace}, honorTaints: term.honorTaints, owned: true}
	if term.fixed != nil {
		g.selector = *term.fixed
	} else {
		g.selector = term.selectorFor(podLabels)
	}
	if g.selector.sel.Empty() {
		g.selector = nothing // kube-scheduler counts no pod for an empty selector, though it selects every pod
	}
	if term.honorTaints {
		g.tolerances = i.tolerances
	}
	if term.honorNodes && (len(i.terms) > 1 || len(i.terms[0]) > 0) {
		g.terms = i.terms
	}
	for _, other := range all {
		if !term.soft && !other.soft && other.key != term.key && other.key != corev1.LabelHostname {
			g.beside = append(g.beside, other.key)
		}
	}
	slices.Sort(g.beside)
	g.beside = slices.Compact(g.beside)
	g.filter = g.filterText(i.tolKey)
	return t.intern(g)
}

// affinity returns the group of a term of pod affinity or anti-affinity. owned is false for terms of pods outside of this batch.
func (t *groupTable) affinity(kind spread.Kind, term *podTerm, required, owned bool, podLabels map[string]string) *group {
	g := t.about(term, podLabels)
	g.kind, g.key, g.required, g.owned = kind, term.key, required, owned
	return t.intern(g)
}

// near returns the groups of a pod's required pod affinity terms, one for each topology key. All these groups select the same pods, because
// kube-scheduler counts only pods that match every term.
func (t *groupTable) near(terms []podTerm, podLabels map[string]string) []int {
	all := t.about(&terms[0], podLabels)
	selectors, keys := []selector{all.selector}, []string{terms[0].key}
	for k := range terms[1:] {
		more := t.about(&terms[1+k], podLabels)
		selectors, keys = append(selectors, more.selector), append(keys, terms[1+k].key)
		switch {
		case all.every:
			all.every, all.namespaces = more.every, more.namespaces
		case !more.every:
			all.namespaces = slices.DeleteFunc(slices.Clone(all.namespaces), func(ns string) bool { return !more.covers(ns) })
		}
	}
	all.selector = together(selectors...)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var out []int
	for i, key := range keys {
		g := all
		g.kind, g.key, g.required, g.owned, g.others = spread.Affinity, key, true, true, slices.Delete(slices.Clone(keys), i, i+1)
		out = append(out, t.intern(g).id)
	}
	slices.Sort(out)
	return out
}

// about returns a group with the namespaces and the selector of a pod affinity term. Its caller sets kind and topology key.
func (t *groupTable) about(term *podTerm, podLabels map[string]string) group {
	g := group{every: term.every, namespaces: term.namespaces, selector: term.selectorFor(podLabels)}
	if term.among != nil {
		g.namespaces = slices.Clone(term.namespaces)
		for ns := range cluster.Namespaces.All(t.snap) {
			if term.among.matches(ns.Labels) {
				g.namespaces = append(g.namespaces, ns.Name)
			}
		}
		slices.Sort(g.namespaces)
		g.namespaces = slices.Compact(g.namespaces)
	}
	return g
}

// inhabits returns, by domain, how many nodes pass the node filter of a group. A claim counts as a node before its node registers.
func (cr *counter) inhabits(g *group, key *topologyKey) []int32 {
	out := make([]int32, len(key.values))
	for i, n := range cr.w.nodes {
		if d := key.node[i]; d >= 0 && g.accepts(n) {
			out[d]++
		}
	}
	return out
}

// universe returns the domains that a spread has when the removed nodes are gone: those with at least one other node that passes its
// filter.
func (cr *counter) universe(g *group, from *nodeFilter) bits.Set {
	key := cr.topology.keys[cr.topology.keyIndex(g.key)]
	left := slices.Clone(from.inhabits)
	for _, i := range cr.goneBins {
		if d := key.node[i]; d >= 0 && g.accepts(cr.w.nodes[i]) {
			left[d]--
		}
	}
	set := bits.Make(len(key.values))
	for d, n := range left {
		if n > 0 {
			set.Add(d)
		}
	}
	return set
}

// countOf returns how many of the matching pods on a node the group counts. Like kube-scheduler, a spread ignores terminating pods, and
// affinity and anti-affinity count them.
func (g *group) countOf(c nodeCount) int32 {
	if g.kind == spread.Spread {
		return c.n
	}
	return c.n + c.terminating
}

// accepts reports whether the group counts pods on a node. A spread does so if the node passes its node filter; other groups always do.
func (g *group) accepts(n *nodeInfo) bool {
	if g.kind != spread.Spread {
		return true
	}
	if g.honorTaints && !toleratesAll(g.tolerances, n.taints, true) {
		return false
	}
	if slices.ContainsFunc(g.beside, func(key string) bool { _, has := n.label(key); return !has }) {
		return false
	}
	return len(g.terms) == 0 || slices.ContainsFunc(g.terms, n.allows)
}
