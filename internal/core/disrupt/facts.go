package disrupt

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

// Facts is a cache of what a survey reads from the row of each node (cluster.Node) and its pods alone. A row never changes: when something
// about a node changes, the snapshot has a new row for it. From one survey to the next almost all rows stay the same. Without this cache,
// reading the pods of the fleet again was a third of the cost of confirming a step.
//
// The zero value is an empty cache; a nil pointer caches nothing. It is not safe for concurrent use.
type Facts struct {
	of   map[*cluster.Node]*facts
	turn uint64
}

// facts are what follows from a row alone. They depend neither on the time nor on PodDisruptionBudgets nor on other nodes.
type facts struct {
	seen uint64 // the number of the survey that asked for them last

	initialized, ready   bool
	leaving, terminating bool
	// rebooting nodes come back, and rebooted ones were initialized before.
	rebooting, rebooted bool
	consolidatable      bool
	drifted             *metav1.Condition // while it is True
	pool                string
	bought              purchase
	labels              map[string]string // of the node, by which price finds its offering
	catalog             *cloud.Catalog    // from which dollars and priced were read
	dollars             cloud.NanoUSD
	priced              bool
	zone                string

	cost   float64        // see Candidate
	moving []*cluster.Pod // need another home when the node goes
	// sorts has one pod for each combination of namespace and labels on the node: PodDisruptionBudgets select by nothing else. guarded says
	// that some pod has the annotation do-not-disrupt.
	sorts   []*cluster.Pod
	guarded bool
}

// look begins a new survey of so many nodes. It removes rows that the last survey did not ask for, once about half of the cache is such.
func (f *Facts) look(nodes int) {
	if f == nil {
		return
	}
	if len(f.of) > 2*nodes+64 { // half of them are gone, so to forget costs no more than it did to read
		maps.DeleteFunc(f.of, func(_ *cluster.Node, x *facts) bool { return x.seen != f.turn })
	}
	f.turn++
}

// about returns the facts of the row of a node with a claim, from the cache if they are there.
func (f *Facts) about(n *cluster.Node) *facts {
	if f == nil {
		return factsOf(n)
	}
	x := f.of[n]
	if x == nil {
		x = factsOf(n)
		if f.of == nil {
			f.of = map[*cluster.Node]*facts{}
		}
		f.of[n] = x
	}
	x.seen = f.turn
	return x
}

// factsOf reads the facts of a row. Of a claim without Node it reads only whether it is initialized.
func factsOf(n *cluster.Node) *facts {
	f := &facts{initialized: n.Initialized(), cost: 1}
	if n.Node == nil {
		return f
	}
	f.labels = n.Labels()
	labels := n.Node.Labels
	f.pool, f.zone = labels[v1.NodePoolLabelKey], labels[corev1.LabelTopologyZone]
	f.bought = purchase{labels[corev1.LabelInstanceTypeStable], labels[v1.CapacityTypeLabelKey]}
	f.ready, f.leaving, f.terminating = ready(n.Node), leaving(n), condition.IsTrue(n.Claim, v1.ConditionTypeInstanceTerminating)
	if r := condition.Get(n.Claim, v1.ConditionTypeRebooting); r != nil {
		f.rebooting, f.rebooted = r.Status == metav1.ConditionTrue, true
	}
	f.consolidatable = condition.IsTrue(n.Claim, v1.ConditionTypeConsolidatable)
	if d := condition.Get(n.Claim, v1.ConditionTypeDrifted); d != nil && d.Status == metav1.ConditionTrue {
		f.drifted = d
	}
	for _, p := range n.Pods {
		f.guarded = f.guarded || p.DoNotDisrupt != ""
		if !slices.ContainsFunc(f.sorts, func(x *cluster.Pod) bool { return x.Labels == p.Labels && x.Namespace == p.Namespace }) {
			f.sorts = append(f.sorts, p)
		}
		if movable.Reschedulable(p) {
			f.cost += max(0, movable.EvictionCost(p))
			f.moving = append(f.moving, p)
		}
	}
	return f
}

// price returns what the node costs by a catalogue, and whether that is known. A catalogue never changes, so the last answer is returned
// for the same catalogue.
func (f *facts) price(by *cloud.Catalog) (dollars cloud.NanoUSD, known bool) {
	if f.catalog != by {
		f.catalog = by
		f.dollars, f.priced = by.Price(f.labels)
	}
	return f.dollars, f.priced
}

// unguarded reports whether no pod of the node has do-not-disrupt and none is under a PodDisruptionBudget. Then nothing about its pods
// depends on the time.
func (f *facts) unguarded(budgets *movable.PDBs) bool {
	return !f.guarded && (budgets.None() || !slices.ContainsFunc(f.sorts, func(p *cluster.Pod) bool { return len(budgets.Of(p)) > 0 }))
}

// leaving reports whether a node is marked for removal, or it or its claim is being deleted.
func leaving(n *cluster.Node) bool {
	return n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil || n.Node.DeletionTimestamp != nil
}

func ready(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
