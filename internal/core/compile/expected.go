package compile

import (
	"iter"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An expected pod has a seat and is not part of this question. It is counted on the node of its seat, and not where it still runs.
type expected struct {
	info   *podInfo
	labels *podclass.Labels
	pod    *cluster.Pod // nil where the seat is vacant
	target string       // the row where the seat is
}

// readExpected lists the pods that have seats and are not in this batch.
func (b *builder) readExpected() {
	for s := range b.in.Snap.Seats() {
		if !s.Vacant() && b.seats.seated[s.Pod] && !b.admission.postponed[s.Pod] || !seat.Kept(b.in.Snap, s, b.in.Now) {
			continue
		}
		e := expected{info: b.mem.infoOf(s.Class), labels: s.Labels, target: b.in.Snap.Target(s.Target).Name}
		if !s.Vacant() {
			e.pod = b.in.Snap.Pod(s.Pod)
		}
		b.seats.expected = append(b.seats.expected, e)
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
			b.seats.kept = append(b.seats.kept, expected{info: b.mem.infoOf(k.Pod.Class), labels: k.Pod.Labels, pod: k.Pod, target: k.Node})
		}
	}
}

// withPlaces yields the pods whose place is taken for this question: expected pods, and pods for which a place is kept.
func (b *builder) withPlaces() iter.Seq[*expected] {
	return func(yield func(*expected) bool) {
		for _, list := range [][]expected{b.seats.expected, b.seats.kept} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// leaves returns the node where the pod still runs and is counted; "" if there is none.
func (e *expected) leaves(gone map[string]bool) string {
	if e.pod == nil || gone[e.pod.NodeName] {
		return ""
	}
	return e.pod.NodeName
}

// countExpected counts each expected pod on the node of its seat instead of the node where it still runs, in every group that selects it.
func (b *builder) countExpected(cr *counter) {
	type kind struct {
		namespace string
		labels    *podclass.Labels
	}
	selecting := map[kind][]*group{}
	for i := range b.seats.expected {
		e := &b.seats.expected[i]
		k := kind{e.info.class.Namespace, e.labels}
		groups, known := selecting[k]
		if !known {
			for _, g := range b.topology.groups.list {
				if g.owned && !g.claim && g.covers(k.namespace) && g.selector.matches(k.labels.Map) {
					groups = append(groups, g)
				}
			}
			selecting[k] = groups
		}
		for _, g := range groups {
			cr.countMove(e, g, &b.problem.Groups[g.id])
		}
	}
}

// countMove takes an expected pod off the counts where it is, and counts it where it will be.
func (cr *counter) countMove(e *expected, g *group, out *spread.Group) {
	if from := e.leaves(cr.gone); from != "" && (e.pod.Deleted.IsZero() || g.kind != spread.Spread) {
		cr.count(g, out, from, -1)
	}
	if !cr.gone[e.target] {
		cr.count(g, out, e.target, 1)
	}
}

// expectedTerms lists the required anti-affinity of expected pods, once for pods that mean the same. Postponed pods are left out: their
// nodes are closed instead.
func (b *builder) expectedTerms() []repellerTerm {
	type kind struct {
		info   *podInfo
		labels *podclass.Labels
	}
	index := map[kind]*repeller{}
	var list []*repeller
	for i := range b.seats.expected {
		e := &b.seats.expected[i]
		if len(e.info.apart) == 0 || e.pod != nil && b.admission.postponed[e.pod.PodKey] {
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
