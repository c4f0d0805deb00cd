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

// Facts remember what rows of nodes say by themselves, from one look at the fleet to the next. A row never changes,
// and between two looks next to no node gets another one; to read all pods of a fleet again for each step that is
// looked at twice was a third of what that costs.
//
// The zero value remembers nothing, and a nil one never does. It is not safe for concurrent use.
type Facts struct {
	of   map[*cluster.Node]*facts
	turn uint64
}

// facts are what a row says whatever the time, the budgets and the other nodes.
type facts struct {
	seen uint64 // the look of the last question

	initialized, ready   bool
	leaving, terminating bool
	// rebooting nodes come back, and rebooted ones were initialized before.
	rebooting, rebooted bool
	consolidatable      bool
	drifted             *metav1.Condition // while it is True
	pool                string
	bought              purchase
	labels              map[string]string // by which it is priced
	catalog             *cloud.Catalog    // of which it was priced last
	dollars             cloud.NanoUSD
	priced              bool
	zone                string

	cost   float64        // see Candidate
	moving []*cluster.Pod // need another home when the node goes
	// sorts are one pod of each namespace and labels: budgets tell no others apart. guarded says that some pod asks not to be disrupted.
	sorts   []*cluster.Pod
	guarded bool
}

// look begins a look at so many nodes, and forgets rows that are gone.
func (f *Facts) look(nodes int) {
	if f == nil {
		return
	}
	if len(f.of) > 2*nodes+64 { // half of them are gone, so to forget costs no more than it did to read
		maps.DeleteFunc(f.of, func(_ *cluster.Node, x *facts) bool { return x.seen != f.turn })
	}
	f.turn++
}

// about returns what the row of a node with a claim says.
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

// price is what the node costs by a catalogue, and whether that is known. A catalogue never changes, so the last
// answer is good while the catalogue is the same.
func (f *facts) price(by *cloud.Catalog) (dollars cloud.NanoUSD, known bool) {
	if f.catalog != by {
		f.catalog = by
		f.dollars, f.priced = by.Price(f.labels)
	}
	return f.dollars, f.priced
}

// unguarded reports whether all pods of a node that need another home may leave it, whatever the time.
func (f *facts) unguarded(budgets *movable.PDBs) bool {
	return !f.guarded && (budgets.None() || !slices.ContainsFunc(f.sorts, func(p *cluster.Pod) bool { return len(budgets.Of(p)) > 0 }))
}

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
