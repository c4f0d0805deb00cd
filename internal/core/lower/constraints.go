package lower

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// everywhere is the key of groups for which the cluster is one domain: pods of which one at a time may use a volume claim. No label has
// such a name.
const everywhere = "(volume-claim)"

// A topologyKey is a label that groups count by.
type topologyKey struct {
	name   string
	values []string
	index  map[string]int32
	node   []int32
	tmpl   []problem.KeyOf
}

func (k *topologyKey) number(v string) int32 {
	if n, ok := k.index[v]; ok {
		return n
	}
	n := int32(len(k.values))
	k.index[v] = n
	k.values = append(k.values, v)
	return n
}

// readGroups interns the constraints of all cohorts and of pods that keep others away.
func (b *builder) readGroups() {
	b.readLabels()
	b.admit()
	b.readExpected()
	b.readKept()
	b.groups = newGroupTable(b.in.Snap)
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
			c.hard = ids(n, func(k int) *group { return b.groups.spread(i, i.hard, k, ns, lbl) })
		}
		for k := range c.extra {
			g := b.groups.spread(i, c.extra, k, ns, lbl)
			if c.extra[k].soft {
				c.soft = append(c.soft, g.id)
			} else {
				c.hard = append(c.hard, g.id)
			}
		}
		if len(i.near) > 0 {
			c.near = b.groups.near(i.near, lbl)
		}
		if n := len(i.apart); n > 0 {
			c.apart = ids(n, func(k int) *group { return b.groups.affinity(spread.Anti, &i.apart[k], true, true, lbl) })
		}
		if b.in.IgnorePreferences {
			continue
		}
		if n := len(i.soft); n > 0 { // such pods have no default constraints
			c.soft = ids(n, func(k int) *group { return b.groups.spread(i, i.soft[k:k+1], 0, ns, lbl) })
		}
		if n := len(i.nearSoft); n > 0 {
			c.nearSoft = ids(n, func(k int) *group { return b.groups.affinity(spread.Affinity, &i.nearSoft[k], false, true, lbl) })
		}
		if n := len(i.apartSoft); n > 0 {
			c.apartSoft = ids(n, func(k int) *group { return b.groups.affinity(spread.Anti, &i.apartSoft[k], false, true, lbl) })
		}
	}
	b.readRepelling()
	b.match()
	b.matchDaemons()
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
		b.repulsions = append(b.repulsions, repulsion{r, b.groups.affinity(spread.Anti, t, true, false, r.labels.Map)})
	}
	for _, t := range b.expectedTerms() {
		if b.concerns(&t) {
			b.repulsions = append(b.repulsions, repulsion{t.from, b.groups.affinity(spread.Anti, t.term, true, false, t.from.labels.Map)})
		}
	}
}

// fewCohorts is up to how many cohorts are asked one by one which terms select them: the world remembers the answer for the next
// question. Of more cohorts every term is asked.
const fewCohorts = 64

// concerning returns the terms of running pods that could select pods of this batch.
func (b *builder) concerning() []int {
	var out []int
	if len(b.cohorts) > fewCohorts {
		for i := range b.w.terms {
			if b.concerns(&b.w.terms[i]) {
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
func (b *builder) concerns(t *repellerTerm) bool {
	if t.term.every || t.term.among != nil {
		for ns := range b.labels.sets {
			if len(b.labels.selected(ns, &t.selector)) > 0 {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(t.term.namespaces, func(ns string) bool { return len(b.labels.selected(ns, &t.selector)) > 0 })
}

// match tells each cohort which groups select its pods.
func (b *builder) match() {
	groups := map[string][][]int{} // by namespace and label set
	for ns, sets := range b.labels.sets {
		groups[ns] = make([][]int, len(sets))
	}
	for _, g := range b.groups.list {
		for _, ns := range b.labels.namespacesOf(g) {
			for _, i := range b.labels.selected(ns, &g.selector) {
				groups[ns][i] = append(groups[ns][i], g.id)
			}
		}
	}
	for _, c := range b.cohorts {
		c.groups = groups[c.info.class.Namespace][c.set]
	}
}

// matchDaemons finds the groups that count the pods of each DaemonSet.
func (b *builder) matchDaemons() {
	b.counting = make([][]int, len(b.mem.daemons))
	index, at := newLabelIndex(), map[string][]int{} // DaemonSets by namespace
	for i := range b.mem.daemons {
		d := &b.mem.daemons[i]
		index.sets[d.set.Namespace] = append(index.sets[d.set.Namespace], d.labels)
		at[d.set.Namespace] = append(at[d.set.Namespace], i)
	}
	for _, g := range b.groups.list {
		if !g.owned {
			continue
		}
		for _, ns := range index.namespacesOf(g) {
			for _, k := range index.selected(ns, &g.selector) {
				b.counting[at[ns][k]] = append(b.counting[at[ns][k]], g.id)
			}
		}
	}
}

// readLabels numbers the label sets of the batch.
func (b *builder) readLabels() {
	type set struct {
		namespace string
		labels    *podclass.Labels
	}
	b.labels = newLabelIndex()
	known := map[set]int{}
	for _, c := range b.cohorts {
		ns := c.info.class.Namespace
		at, ok := known[set{ns, c.labels}]
		if !ok {
			at = len(b.labels.sets[ns])
			known[set{ns, c.labels}] = at
			b.labels.sets[ns] = append(b.labels.sets[ns], c.labels)
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
			b.keys = append(b.keys, &topologyKey{name: key, index: map[string]int32{}})
		}
	}
	for _, g := range b.groups.list {
		add(g.key)
	}
	for i, groups := range b.counting {
		if len(groups) == 0 {
			continue
		}
		for _, key := range b.choicesOf(&b.mem.daemons[i]) {
			add(key)
		}
	}
	for _, k := range b.keys {
		if k.name == everywhere {
			k.number(k.name)
			// all in its only domain
			k.node, k.tmpl = make([]int32, len(b.nodes)), slices.Repeat([]problem.KeyOf{{Kind: problem.Fixed}}, len(b.templates))
			continue
		}
		asked := b.askedFor(k.name)
		b.numberDomains(k, asked)
		col := b.column(k.name)
		k.node = make([]int32, len(b.nodes))
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

// askedFor returns the values of a label that pods of this batch list, sorted, if some pool leaves it open.
func (b *builder) askedFor(key string) []string {
	if !slices.ContainsFunc(b.templates, func(t *template) bool { return t.opens(key) }) {
		return nil
	}
	var out []string
	for _, c := range b.cohorts {
		for _, list := range [][]label.Reqs{c.info.terms, c.info.preferred, c.volumes.alternatives} {
			for _, r := range list {
				if s, says := r.Get(key); says && !s.Open() {
					out = append(out, s.Values()...)
				}
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for _, v := range out {
		b.asked = append(b.asked, key+"="+v)
	}
	return out
}

// numberDomains numbers values in alphabetical order, so that ties break by name.
func (b *builder) numberDomains(k *topologyKey, asked []string) {
	var all []string
	note := func(v string) int32 { all = append(all, v); return 0 }
	for _, t := range b.templates {
		t.keyOf(k.name, asked, note)
	}
	all = append(all, b.column(k.name).values...)
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		k.number(v)
	}
}

func (b *builder) keyIndex(name string) int {
	if name == corev1.LabelHostname {
		return spread.Host
	}
	return slices.IndexFunc(b.keys, func(k *topologyKey) bool { return k.name == name })
}

// solveKey hands a topology key to the problem.
func solveKey(k *topologyKey) problem.Key {
	return problem.Key{Name: k.name, Values: k.values, Node: k.node, Tmpl: k.tmpl}
}
