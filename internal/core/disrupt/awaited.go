package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/engine"
)

// awaited holds the pods that are on their way to their seats and have constraints. It finds the running pods that must stay until these
// pods have arrived.
//
// A seat meets the constraints of its pod only while the pods that they count stay where they are. The engine counts seats like pods, so
// it plans no pod that would be in the way. But it does not check a seat again, so it does not notice when a pod goes that a seat needs.
type awaited struct {
	terms constraints
	by    map[cohort][]*cluster.Node // awaited pods by cohort, with the nodes of their seats
	known map[cohort][]wait          // results of waitsFor, by the cohort of running pods
	snap  *cluster.Snapshot
}

// A wait is a constraint of awaited pods, with the nodes on which these have their seats.
type wait struct {
	constraint
	at []*cluster.Node
}

// awaitedOf collects the pods with seats that are kept now.
func awaitedOf(snap *cluster.Snapshot, now time.Time) *awaited {
	a := &awaited{terms: constraints{}, by: map[cohort][]*cluster.Node{}, known: map[cohort][]wait{}, snap: snap}
	for s := range snap.Seats() {
		if len(a.terms.of(s.Class)) > 0 && seat.Kept(snap, s, now) {
			c := cohort{s.Class, s.Labels}
			a.by[c] = append(a.by[c], snap.Target(s.Target))
		}
	}
	return a
}

// looksFor reports whether some awaited pod needs the running pod p to stay on its node. Each counted pod that goes changes a spread.
// Affinity needs p only if p may be in the domain of a seat.
func (a *awaited) looksFor(p *cluster.Pod, on *cluster.Node) bool {
	if len(a.by) == 0 {
		return false
	}
	c := cohort{p.Class, p.Labels}
	waits, ok := a.known[c]
	if !ok {
		waits = a.waitsFor(c)
		a.known[c] = waits
	}
	return slices.ContainsFunc(waits, func(w wait) bool {
		return w.kind == even || slices.ContainsFunc(w.at, func(n *cluster.Node) bool { return mayShare(w.key, n, on) })
	})
}

// waitsFor lists the constraints of awaited pods that count the pods of cohort c. A spread is left out if the pods of c have an equal
// one: that keeps the spread even wherever they go. Affinity has no such exception: until the pods of c have arrived too, no pod is
// near.
func (a *awaited) waitsFor(c cohort) (out []wait) {
	for by, at := range a.by {
		for _, t := range a.terms.of(by.class) {
			if t.kind == away || t.key == corev1.LabelHostname || !t.counts(c) {
				continue
			}
			if t.kind == even && (by.class.Namespace != c.class.Namespace || slices.ContainsFunc(a.terms.of(c.class), t.equal)) {
				continue
			}
			out = append(out, wait{t, at})
		}
	}
	return out
}

// mayShare reports whether n could be in the same domain of a key as the node with. A machine that has not registered may not have the
// label yet, and could then be in any domain.
func mayShare(key string, n, with *cluster.Node) bool {
	domain, ok := with.Labels()[key]
	if may, known := n.Labels()[key]; ok && known {
		return may == domain
	}
	return ok && !n.Registered()
}

// upsetBy reports whether a step may make kube-scheduler refuse an awaited pod. It may if it puts a pod that a spread counts where the
// awaited pod goes, or if it opens a node in a new domain: a domain without counted pods is the fewest that a spread compares with.
func (a *awaited) upsetBy(step *Step) bool {
	for by, at := range a.by {
		for _, t := range a.terms.of(by.class) {
			if t.kind == even && (a.crowdedBy(step, by, &t, at) || t.key != corev1.LabelHostname && a.opensNewDomain(step, t.key)) {
				return true
			}
		}
	}
	return false
}

// crowdedBy reports whether a step puts pods that spread t counts into a domain where awaited pods of cohort by go (at are their nodes).
// Pods that have an equal spread do not matter.
func (a *awaited) crowdedBy(step *Step, by cohort, t *constraint, at []*cluster.Node) bool {
	counted := func(p *cluster.Pod) bool {
		return p.Namespace == by.class.Namespace && t.counts(cohort{p.Class, p.Labels}) &&
			!slices.ContainsFunc(a.terms.of(p.Class), t.equal)
	}
	for _, place := range step.Place {
		on := a.snap.Target(place.Node)
		shares := func(n *cluster.Node) bool { return n == on || mayShare(t.key, n, on) }
		if on != nil && counted(place.Pod) && slices.ContainsFunc(at, shares) {
			return true
		}
	}
	return t.key != corev1.LabelHostname && slices.ContainsFunc(step.Open, func(o engine.Opening) bool {
		return slices.ContainsFunc(o.Pods, counted) && slices.ContainsFunc(at, func(n *cluster.Node) bool {
			domain, known := n.Labels()[t.key]
			may, told := mayBe(&o, t.key)
			return !known || !told || slices.Contains(may, domain)
		})
	})
}

// opensNewDomain reports whether a step may open a node with a value of label key that no node has so far.
func (a *awaited) opensNewDomain(step *Step, key string) bool {
	if len(step.Open) == 0 {
		return false
	}
	var known []string
	for n := range a.snap.Nodes() {
		if v, ok := n.Labels()[key]; ok && !slices.Contains(known, v) {
			known = append(known, v)
		}
	}
	return slices.ContainsFunc(step.Open, func(o engine.Opening) bool {
		may, told := mayBe(&o, key)
		return !told && len(known) > 0 || slices.ContainsFunc(may, func(v string) bool { return !slices.Contains(known, v) })
	})
}

// mayBe returns the values that a label of an opening's node may have. told is false if the claim does not say.
func mayBe(o *engine.Opening, key string) (values []string, told bool) {
	switch key {
	case corev1.LabelTopologyZone:
		return o.Zones, true
	case v1.CapacityTypeLabelKey:
		return o.CapacityTypes, true
	case corev1.LabelInstanceTypeStable:
		return o.Types, true
	}
	if v, ok := o.Claim.Labels[key]; ok {
		return []string{v}, true
	}
	for _, r := range o.Claim.Spec.Requirements {
		if r.Key == key && r.Operator == corev1.NodeSelectorOpIn {
			return r.Values, true
		}
	}
	return nil, false
}
