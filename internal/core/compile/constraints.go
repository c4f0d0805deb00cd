package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// everywhere is a topology key for which the whole cluster is one domain. It keeps pods apart of which one at a time may use a volume
// claim. No label has such a name.
const everywhere = "(volume-claim)"

// A topologyKey is a label that groups count by.
type topologyKey struct {
	name   string
	values []string
	index  map[string]int32
	node   []int32
	tmpl   []problem.KeyOf
}

// number returns the number of a value, a new one if it has none.
func (k *topologyKey) number(v string) int32 {
	if n, ok := k.index[v]; ok {
		return n
	}
	n := int32(len(k.values))
	k.index[v] = n
	k.values = append(k.values, v)
	return n
}

// readGroups gives each distinct constraint one group: those of all cohorts, and those by which running and expected pods keep others away.
// Before that it postpones cohorts that cost too much; after it, cohorts know the groups that select them. Preferences become groups
// only if the question respects them.
func (b *builder) readGroups() {
	b.readLabels()
	b.postponeCostly()
	b.readExpected()
	b.readKept()
	b.topology.groups = newGroupTable(b.in.Snap)
	for _, c := range b.cohorts {
		i, ns, lbl := c.info, c.info.class.Namespace, c.labels.Map
		ids := func(n int, of func(k int) *group) []int {
			out := make([]int, n)
			for k := range n {
				out[k] = of(k).id
			}
			return out
		}
		if n := len(i.hard); n > 0 {
			c.hard = ids(n, func(k int) *group { return b.topology.groups.spread(i, i.hard, k, ns, lbl) })
		}
		for k := range c.extra {
			g := b.topology.groups.spread(i, c.extra, k, ns, lbl)
			if c.extra[k].soft {
				c.soft = append(c.soft, g.id)
			} else {
				c.hard = append(c.hard, g.id)
			}
		}
		for _, g := range c.hard {
			b.topology.groups.list[g].hard = true
		}
		if len(i.near) > 0 {
			c.near = b.topology.groups.near(i.near, lbl)
		}
		if n := len(i.apart); n > 0 {
			c.apart = ids(n, func(k int) *group { return b.topology.groups.affinity(spread.Anti, &i.apart[k], true, true, lbl) })
		}
		if b.in.IgnorePreferences {
			continue
		}
		if n := len(i.soft); n > 0 { // such pods have no default constraints
			c.soft = ids(n, func(k int) *group { return b.topology.groups.spread(i, i.soft[k:k+1], 0, ns, lbl) })
		}
		if n := len(i.nearSoft); n > 0 {
			c.nearSoft = ids(n, func(k int) *group {
				return b.topology.groups.affinity(spread.Affinity, &i.nearSoft[k], false, true, lbl)
			})
		}
		if n := len(i.apartSoft); n > 0 {
			c.apartSoft = ids(n, func(k int) *group { return b.topology.groups.affinity(spread.Anti, &i.apartSoft[k], false, true, lbl) })
		}
	}
	b.readRepelling()
	b.topology.match(b.cohorts)
	b.topology.matchDaemons(b.mem.daemons)
	b.readShared()
	b.tieExclusive()
}

// A repulsion is a term of running or expected pods that is about pods of this batch.
type repulsion struct {
	from  *repeller
	group *group
}

// readRepelling adds the required anti-affinity of pods that run already or are expected, as far as it concerns pods of this batch.
func (b *builder) readRepelling() {
	for _, i := range b.concerning() {
		r, t := b.w.terms[i].from, b.w.terms[i].term
		g := b.topology.groups.affinity(spread.Anti, t, true, false, r.labels.Map)
		b.topology.repulsions = append(b.topology.repulsions, repulsion{r, g})
	}
	for _, t := range b.expectedTerms() {
		if b.topology.concerns(&t) {
			g := b.topology.groups.affinity(spread.Anti, t.term, true, false, t.from.labels.Map)
			b.topology.repulsions = append(b.topology.repulsions, repulsion{t.from, g})
		}
	}
}

// With at most fewCohorts cohorts, concerning looks up the terms for each cohort; the world caches that for the next question. With more,
// it tests every term.
const fewCohorts = 64

// concerning returns the terms of running pods that could select pods of this batch.
func (b *builder) concerning() []int {
	var out []int
	if len(b.cohorts) > fewCohorts {
		for i := range b.w.terms {
			if b.topology.concerns(&b.w.terms[i]) {
				out = append(out, i)
			}
		}
		return out
	}
	for _, c := range b.cohorts {
		out = append(out, b.w.selecting(c.labels)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// concerns reports whether a term of running pods could select pods of this batch.
func (t *topology) concerns(r *repellerTerm) bool {
	if r.term.every || r.term.among != nil {
		for ns := range t.labels.sets {
			if len(t.labels.selected(ns, &r.selector)) > 0 {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(r.term.namespaces, func(ns string) bool { return len(t.labels.selected(ns, &r.selector)) > 0 })
}

// match sets, for each cohort, the groups that select its pods.
func (t *topology) match(cohorts []*cohort) {
	groups := map[string][][]int{} // by namespace and label set
	for ns, sets := range t.labels.sets {
		groups[ns] = make([][]int, len(sets))
	}
	for _, g := range t.groups.list {
		for _, ns := range t.labels.namespacesOf(g) {
			for _, i := range t.labels.selected(ns, &g.selector) {
				groups[ns][i] = append(groups[ns][i], g.id)
			}
		}
	}
	for _, c := range cohorts {
		c.groups = groups[c.info.class.Namespace][c.set]
	}
}

// matchDaemons finds the groups that count the pods of each DaemonSet.
func (t *topology) matchDaemons(daemons []daemon) {
	t.counting = make([][]int, len(daemons))
	index, at := newLabelIndex(), map[string][]int{} // DaemonSets by namespace
	for i := range daemons {
		d := &daemons[i]
		index.sets[d.set.Namespace] = append(index.sets[d.set.Namespace], d.labels)
		at[d.set.Namespace] = append(at[d.set.Namespace], i)
	}
	for _, g := range t.groups.list {
		if !g.owned {
			continue
		}
		for _, ns := range index.namespacesOf(g) {
			for _, k := range index.selected(ns, &g.selector) {
				t.counting[at[ns][k]] = append(t.counting[at[ns][k]], g.id)
			}
		}
	}
}

// readLabels numbers the label sets of the batch by namespace, and sets the number of each cohort.
func (b *builder) readLabels() {
	type set struct {
		namespace string
		labels    *podclass.Labels
	}
	b.topology.labels = newLabelIndex()
	known := map[set]int{}
	for _, c := range b.cohorts {
		ns := c.info.class.Namespace
		at, ok := known[set{ns, c.labels}]
		if !ok {
			at = len(b.topology.labels.sets[ns])
			known[set{ns, c.labels}] = at
			b.topology.labels.sets[ns] = append(b.topology.labels.sets[ns], c.labels)
		}
		c.set = at
	}
}

// readKeys numbers the domains of every topology key that a group uses, or that decides which daemons it counts.
func (b *builder) readKeys() {
	index := map[string]bool{corev1.LabelHostname: true}
	add := func(key string) {
		if !index[key] {
			index[key] = true
			b.topology.keys = append(b.topology.keys, &topologyKey{name: key, index: map[string]int32{}})
		}
	}
	for _, g := range b.topology.groups.list {
		add(g.key)
	}
	for i, groups := range b.topology.counting {
		if len(groups) == 0 {
			continue
		}
		for _, key := range b.choicesOf(&b.mem.daemons[i]) {
			add(key)
		}
	}
	for _, k := range b.topology.keys {
		if k.name == everywhere {
			k.number(k.name)
			// all in its only domain
			k.node, k.tmpl = make([]int32, len(b.w.nodes)), slices.Repeat([]problem.KeyOf{{Kind: problem.Fixed}}, len(b.templates))
			continue
		}
		asked := b.askedFor(k.name)
		b.numberDomains(k, asked)
		col := b.w.column(k.name)
		k.node = make([]int32, len(b.w.nodes))
		for i, v := range col.of {
			k.node[i] = -1
			if v >= 0 {
				k.node[i] = k.number(col.values[v])
			}
		}
		for _, t := range b.templates {
			k.tmpl = append(k.tmpl, t.keyOf(k.name, asked, k.number))
		}
		for i := range k.tmpl {
			for k.tmpl[i].Kind == problem.ByChoice && len(k.tmpl[i].Choice) < len(k.values) {
				k.tmpl[i].Choice = append(k.tmpl[i].Choice, nil)
			}
		}
	}
}

// askedFor returns the values of a label that pods of this batch ask for, sorted, if some pool leaves the label open; else nil. They are
// the values that pods list, at most mostDomains of each list, and the value that a claim gets for pods that want the label with any
// value. It also notes them in topology.asked: if these differ from the last batch, groups are counted anew.
func (b *builder) askedFor(key string) []string {
	if !slices.ContainsFunc(b.templates, func(t *template) bool { return t.opens(key) }) {
		return nil
	}
	var out []string
	for _, c := range b.cohorts {
		for _, list := range [][]label.Reqs{c.info.terms, c.info.preferred, c.volumes.alternatives} {
			for _, r := range list {
				s, says := r.Get(key)
				switch {
				case says && !s.Open():
					values := s.Values()
					out = append(out, values[:min(len(values), mostDomains)]...)
				case says && !s.HasAbsent():
					out = append(out, claimValues(b.templates, key, s)...)
				}
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for _, v := range out {
		b.topology.asked = append(b.topology.asked, key+"="+v)
	}
	return out
}

// claimValues returns the values that claims get for pods that ask for some value in s, one for each pool that leaves the label open.
func claimValues(templates []*template, key string, s label.Set) []string {
	var out []string
	for _, t := range templates {
		if of, _ := t.reqs.Get(key); t.opens(key) {
			if v, ok := AnyValue(of.Intersect(s)); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// numberDomains numbers the values of a key in alphabetical order, so that the choice between equal domains does not depend on the
// order of nodes and pools. keyOf is called here for the values that it names only.
func (b *builder) numberDomains(k *topologyKey, asked []string) {
	var all []string
	note := func(v string) int32 { all = append(all, v); return 0 }
	for _, t := range b.templates {
		t.keyOf(k.name, asked, note)
	}
	all = append(all, b.w.column(k.name).values...)
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		k.number(v)
	}
}

// keyIndex returns the index of a topology key in keys, or spread.Host for the hostname. readKeys must have numbered the
// key: for another key the index is -1, which is spread.Host.
func (t *topology) keyIndex(name string) int {
	if name == corev1.LabelHostname {
		return spread.Host
	}
	return slices.IndexFunc(t.keys, func(k *topologyKey) bool { return k.name == name })
}

// solveKey returns the problem's form of a topology key.
func solveKey(k *topologyKey) problem.Key {
	return problem.Key{Name: k.name, Values: k.values, Node: k.node, Tmpl: k.tmpl}
}
