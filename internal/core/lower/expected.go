package lower

import (
	"iter"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An expected pod has a seat that it keeps, whatever this question is answered: it is not asked where it goes. It
// is counted where it will be, and not where it still runs.
type expected struct {
	info   *podInfo
	labels *podclass.Labels
	pod    *cluster.Pod // nil where the seat is vacant
	target string       // the row where the seat is
}

// readExpected lists the pods that have seats and are not in this batch.
func (b *builder) readExpected() {
	for s := range b.in.Snap.Seats() {
		if !s.Vacant() && b.seated[s.Pod] && !b.postponed[s.Pod] || !seat.Kept(b.in.Snap, s, b.in.Now) {
			continue
		}
		e := expected{info: b.mem.infoOf(s.Class), labels: s.Labels, target: b.in.Snap.Target(s.Target).Name}
		if !s.Vacant() {
			e.pod = b.in.Snap.Pod(s.Pod)
		}
		b.expected = append(b.expected, e)
	}
}

// readKept lists the places that are kept for pods which are not in this batch.
func (b *builder) readKept() {
	if len(b.in.Kept) == 0 {
		return
	}
	asked := make(map[cluster.PodKey]bool, len(b.in.Pods))
	for _, p := range b.in.Pods {
		asked[p.PodKey] = true
	}
	for _, k := range b.in.Kept {
		if !asked[k.Pod.PodKey] {
			b.kept = append(b.kept, expected{info: b.mem.infoOf(k.Pod.Class), labels: k.Pod.Labels, pod: k.Pod, target: k.Node})
		}
	}
}

// comers yields the pods that have a place that is not free any more: the expected pods, and those for which one is kept.
func (b *builder) comers() iter.Seq[*expected] {
	return func(yield func(*expected) bool) {
		for _, list := range [][]expected{b.expected, b.kept} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// leaves is the node where the pod still runs and is counted; "" if there is none.
func (e *expected) leaves(b *builder) string {
	if e.pod == nil || b.in.Gone[e.pod.NodeName] {
		return ""
	}
	return e.pod.NodeName
}

// countExpected counts expected pods for the groups that select them.
func (b *builder) countExpected() {
	type kind struct {
		namespace string
		labels    *podclass.Labels
	}
	selecting := map[kind][]*group{}
	for i := range b.expected {
		e := &b.expected[i]
		k := kind{e.info.class.Namespace, e.labels}
		groups, known := selecting[k]
		if !known {
			for _, g := range b.groups.list {
				if g.owned && !g.claim && g.covers(k.namespace) && g.selector.matches(k.labels.Map) {
					groups = append(groups, g)
				}
			}
			selecting[k] = groups
		}
		for _, g := range groups {
			b.countMove(e, g)
		}
	}
}

// countMove takes an expected pod off the counts where it is, and counts it where it will be.
func (b *builder) countMove(e *expected, g *group) {
	out := &b.problem.Groups[g.id]
	if from := e.leaves(b); from != "" && (e.pod.Deleted.IsZero() || g.kind != spread.Spread) {
		b.count(g, out, from, -1)
	}
	if !b.in.Gone[e.target] {
		b.count(g, out, e.target, 1)
	}
}

// expectedTerms lists the required anti-affinity of expected pods. That of pods which were left out is not known:
// no pod is put beside them.
func (b *builder) expectedTerms() []repellerTerm {
	type kind struct {
		info   *podInfo
		labels *podclass.Labels
	}
	index := map[kind]*repeller{}
	var list []*repeller
	for i := range b.expected {
		e := &b.expected[i]
		if len(e.info.apart) == 0 || e.pod != nil && b.postponed[e.pod.PodKey] {
			continue
		}
		k := kind{info: e.info}
		if e.info.ownLabels {
			k.labels = e.labels
		}
		r := index[k]
		if r == nil {
			r = &repeller{info: e.info, labels: e.labels}
			index[k], list = r, append(list, r)
		}
		at := slices.IndexFunc(r.nodes, func(c nodeCount) bool { return c.node == e.target })
		if at < 0 {
			at = len(r.nodes)
			r.nodes = append(r.nodes, nodeCount{node: e.target})
		}
		r.nodes[at].n++
	}
	var out []repellerTerm
	for _, r := range list {
		out = append(out, r.terms()...)
	}
	return out
}
