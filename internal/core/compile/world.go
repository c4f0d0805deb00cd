package compile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// A world is what one snapshot means, before any question: its bins, what is free on them, and which pods run where. Many
// what-if questions are asked about one snapshot; the world is derived once. It never changes after that, but for
// columns and counts that are added when first asked for.
type world struct {
	snap    *cluster.Snapshot
	version int // of the daemons

	nodes []*nodeInfo // bins: initialised first, then by name
	// leaving are nodes that are being removed, so they are no bins. If a disruption does that, it may still be called off.
	leaving []*nodeInfo
	binOf   map[string]int
	room    quantity.Vec   // by bin, all resources
	bins    []problem.Node // with that room, without what a question adds
	ported  []int          // bins with host ports in use
	columns map[string]*column
	taints  []taintGroup
	asks    map[string]int64 // by pool: CPU, in thousandths, that pods on its nodes ask for, daemons aside
	soft    bool             // some node has a PreferNoSchedule taint

	labels    *labelIndex              // of the running pods
	running   map[string][][]nodeCount // by namespace: where pods with each of its label sets run
	counts    map[string][]nodeCount   // by scope of a group
	repellers []*repeller
	repelling map[cluster.PodKey]*repeller
	terms     []repellerTerm
	selected  map[*podclass.Labels][]int // see selecting

	groups groupMemory
}

// A repellerTerm is one required anti-affinity term of running pods.
type repellerTerm struct {
	from     *repeller
	term     *podTerm
	selector selector
}

// A taintGroup is the nodes with equal taints.
type taintGroup struct {
	taints []corev1.Taint
	nodes  bits.Set
}

// A nodeCount is how many of some pods run on a node.
type nodeCount struct {
	node string
	bin  int // -1 for nodes that are being removed
	n    int32
	// terminating pods are not in n: a spread does not count them, affinity and anti-affinity do until they are gone.
	terminating int32
}

// A repeller is running pods with the same required anti-affinity.
type repeller struct {
	info   *podInfo
	labels *podclass.Labels // of one of them; terms that depend on the pod's labels are the same for all
	pods   []*cluster.Pod
	nodes  []nodeCount // where they run; made when first asked for
}

// worldOf returns the world of the snapshot. It uses the last world again if only waiting pods changed since, and no DaemonSet.
func (m *Memory) worldOf(snap *cluster.Snapshot) *world {
	if w := m.world; w != nil && w.version == m.daemonVersion {
		if w.snap == snap {
			return w
		}
		if alike(w.snap, snap) {
			m.world = w.withSnapshot(snap, m.turn)
			return m.world
		}
	}
	w := &world{snap: snap, version: m.daemonVersion, columns: map[string]*column{}, counts: map[string][]nodeCount{},
		selected:  map[*podclass.Labels][]int{},
		repelling: map[cluster.PodKey]*repeller{}}
	w.readNodes(m)
	w.readRunning()
	w.readComing(m)
	w.readRepellers(m)
	m.world = w
	return w
}

// alike reports whether nothing but waiting pods changed between two snapshots.
func alike(before, now *cluster.Snapshot) bool {
	for range now.NodeChanges(before) {
		return false
	}
	for old, p := range now.PodChanges(before) {
		if old != nil && old.NodeName != "" || p != nil && p.NodeName != "" {
			return false
		}
	}
	return true
}

// withSnapshot returns the same world for a later snapshot, and marks its nodes as used in this turn.
func (w *world) withSnapshot(snap *cluster.Snapshot, turn uint64) *world {
	same := *w
	same.snap = snap
	for _, n := range slices.Concat(same.nodes, same.leaving) {
		n.seen = turn
	}
	return &same
}

// readNodes makes the bins, initialised nodes first, with the room that running and coming pods leave, and sorts nodes by their taints.
func (w *world) readNodes(m *Memory) {
	w.nodes = make([]*nodeInfo, 0, w.snap.NodeCount())
	var later []*nodeInfo
	for row := range w.snap.Nodes() {
		if row.Incomplete || row.MarkedForRemoval {
			if !row.Incomplete {
				w.leaving = append(w.leaving, m.nodeOf(row))
			}
			continue
		}
		n := m.nodeOf(row)
		if n.initialized {
			w.nodes = append(w.nodes, n)
		} else {
			later = append(later, n)
		}
	}
	w.nodes = append(w.nodes, later...)
	r := m.resources.names.Len()
	w.room, w.bins, w.binOf = make(quantity.Vec, r*len(w.nodes)), make([]problem.Node, 0, len(w.nodes)), make(map[string]int, len(w.nodes))
	byTaints := map[string]int{}
	w.asks = map[string]int64{}
	for i, n := range w.nodes {
		w.asks[n.pool] += n.asks()
		w.binOf[n.row.Name] = i
		room := w.room[i*r : (i+1)*r]
		copy(room, n.alloc)
		room.Sub(n.used)
		room.Sub(m.reserveOf(n))
		w.bins = append(w.bins, problem.Node{Name: n.row.Name, Room: room[:r:r]})
		if len(n.ports)+len(n.coming.ports) > 0 {
			w.ported = append(w.ported, i)
		}
		at, ok := byTaints[n.taintKey]
		if !ok {
			at = len(w.taints)
			byTaints[n.taintKey] = at
			w.taints = append(w.taints, taintGroup{n.taints, bits.Make(len(w.nodes))})
			w.soft = w.soft || slices.ContainsFunc(n.taints,
				func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
		}
		w.taints[at].nodes.Add(i)
	}
}

// readRunning sorts the running pods by namespace and label set, so that a selector is asked once for each label set.
func (w *world) readRunning() {
	w.running, w.labels = map[string][][]nodeCount{}, newLabelIndex()
	var ns string
	var labels *podclass.Labels
	var counts []nodeCount // of these labels
	keep := func() {
		if labels != nil {
			w.labels.sets[ns], w.running[ns] = append(w.labels.sets[ns], labels), append(w.running[ns], counts)
		}
	}
	for c := range w.snap.LabelCounts() {
		if c.Labels != labels || c.Namespace != ns {
			keep()
			ns, labels, counts = c.Namespace, c.Labels, nil
		}
		counts = append(counts, nodeCount{node: c.Node, n: int32(c.Count), terminating: int32(c.Terminating)})
	}
	keep()
}

// readComing counts DaemonSet pods that will start on a node as if they ran there already: kube-scheduler will bind them before the pods of
// the question.
func (w *world) readComing(m *Memory) {
	on := map[int][]nodeCount{}
	for _, n := range w.nodes {
		for _, i := range n.coming.sets {
			on[i] = append(on[i], nodeCount{node: n.row.Name, n: 1})
		}
	}
	for _, i := range slices.Sorted(maps.Keys(on)) {
		d := &m.daemons[i]
		w.labels.sets[d.set.Namespace] = append(w.labels.sets[d.set.Namespace], d.labels)
		w.running[d.set.Namespace] = append(w.running[d.set.Namespace], on[i])
	}
}

// readRepellers joins running pods with equal required anti-affinity to repellers, and collects their terms.
func (w *world) readRepellers(m *Memory) {
	type key struct {
		class  *podclass.Class
		labels *podclass.Labels
	}
	index := map[key]*repeller{}
	for p := range w.snap.Repelling() {
		info := m.infoOf(p.Class)
		k := key{class: p.Class}
		if info.ownLabels {
			k.labels = p.Labels
		}
		r := index[k]
		if r == nil {
			r = &repeller{info: info, labels: p.Labels}
			index[k] = r
			w.repellers = append(w.repellers, r)
		}
		r.pods = append(r.pods, p)
		w.repelling[p.PodKey] = r
	}
	for _, r := range w.repellers {
		w.terms = append(w.terms, r.terms()...)
	}
}

// terms returns the required anti-affinity terms of the pods.
func (r *repeller) terms() []repellerTerm {
	var out []repellerTerm
	for k := range r.info.apart {
		t := &r.info.apart[k]
		out = append(out, repellerTerm{r, t, t.selectorFor(r.labels.Map)})
	}
	return out
}

// selecting returns the indexes in w.terms of terms with a selector that matches these labels. It ignores namespaces.
func (w *world) selecting(l *podclass.Labels) []int {
	out, ok := w.selected[l]
	if !ok {
		for i := range w.terms {
			if w.terms[i].selector.matches(l.Map) {
				out = append(out, i)
			}
		}
		w.selected[l] = out
	}
	return out
}

// nodesOf returns on which nodes the pods of a repeller run.
func (w *world) nodesOf(r *repeller) []nodeCount {
	if r.nodes == nil {
		at := map[string]int{}
		for _, p := range r.pods {
			i, ok := at[p.NodeName]
			if !ok {
				i = len(r.nodes)
				at[p.NodeName] = i
				r.nodes = append(r.nodes, nodeCount{node: p.NodeName})
			}
			r.nodes[i].n++
		}
	}
	return r.nodes
}

// column returns the values of a label on the bins, read when first asked for.
func (w *world) column(key string) *column {
	c := w.columns[key]
	if c == nil {
		c = columnOf(key, w.nodes)
		w.columns[key] = c
	}
	return c
}

// countsOf returns how many running and coming pods a group selects on each node. The result depends only on namespaces and selector, by
// which it is cached.
func (w *world) countsOf(g *group) []nodeCount {
	scope := group{namespaces: g.namespaces, every: g.every, selector: g.selector}
	key := scope.text()
	if out, ok := w.counts[key]; ok {
		return out
	}
	at := map[string]int{}
	var out []nodeCount
	for _, ns := range w.labels.namespacesOf(g) {
		for _, i := range w.labels.selected(ns, &g.selector) {
			for _, c := range w.running[ns][i] {
				j, ok := at[c.node]
				if !ok {
					j = len(out)
					at[c.node] = j
					bin, ok := w.binOf[c.node]
					if !ok {
						bin = -1
					}
					out = append(out, nodeCount{node: c.node, bin: bin})
				}
				out[j].n += c.n
				out[j].terminating += c.terminating
			}
		}
	}
	w.counts[key] = out
	return out
}
