// Package lower turns objects into numbers: a snapshot of the cluster, the pools with what they can launch and the pods that wait into
// the problem that package solve works on.
//
// A Memory keeps what was derived from rows and catalogues, by their pointers, so that a second question about nearly the same world
// costs little. A Lowered problem keeps what its numbers stand for, from which package engine makes objects again.
package lower

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Pool may get new nodes of what its node class can launch.
type Pool struct {
	Pool    *v1.NodePool
	Catalog *cloud.Catalog
}

// A Placement puts a pod on a node that exists or is on its way.
type Placement struct {
	Pod  *cluster.Pod
	Node string // row name
}

// An Input is what the numbers depend on. The fields that an engine.Question has too are explained there.
type Input struct {
	Snap         *cluster.Snapshot
	Pools        []Pool
	Pods         []*cluster.Pod
	Gone, Closed map[string]bool
	Kept         []Placement
	LeftOut      map[cluster.PodKey]int
	Simulation   bool
	Now          time.Time

	IgnorePreferences bool
	ReservedCapacity  bool
	DefaultSpread     []corev1.TopologySpreadConstraint
	Terms             problem.Terms // what new nodes are reckoned to cost
	Selects           Selects       // nil: pods that use resource claims are refused
	Work              work.Units    // for the terms of waiting pods; 0: the default
	Ended             func() bool   // nothing waits for the answer any more; nil: something does
}

// A Lowered problem, and what its numbers stand for.
type Lowered struct {
	Problem *problem.Problem
	Classes []Class        // the pods behind those of the problem
	Reqs    []label.Reqs   // by solve.Variant.Reqs and solve.Narrowed.To
	Refused []Refused      // pods that no plan can place
	Dropped []reason.Count // pools that nothing can be launched for
	Spent   work.Units     // what lowering has cost
	// Renumbered is set where a column of resources turned up: numbers do not mean what they meant in the problem before.
	Renumbered bool

	nodes      []*nodeInfo
	templates  []*template
	publishers []string // drivers of devices, by number
}

// Node returns the row behind a node of the problem.
func (l *Lowered) Node(n problem.BinID) *cluster.Node { return l.nodes[n].row }

// Template returns the pool behind a template of the problem, and the requirements on the labels of its nodes.
func (l *Lowered) Template(t problem.TemplateID) (*v1.NodePool, label.Reqs) {
	return l.templates[t].pool, l.templates[t].reqs
}

// Quantify writes into a count what the limit is that is reached, how much of it is used, and what would be needed, where that is known.
func (l *Lowered) Quantify(c *reason.Count) {
	at := slices.IndexFunc(l.templates, func(t *template) bool { return t.pool.Name == c.Pool })
	if at < 0 {
		return
	}
	name := corev1.ResourceName(c.Key)
	limit, ok := l.templates[at].pool.Spec.Limits[name]
	if !ok {
		return
	}
	c.Limit, c.Used = limit.String(), written(name, down(name, &limit)-c.Left)
	if name != v1.ResourceNodes && c.Needs > 0 {
		c.Least = written(name, c.Needs)
	}
}

// A Class is the pods behind a class of the problem, and on which nodes earlier plans put them.
type Class struct {
	Pods   []*cluster.Pod
	Sticky map[cluster.PodKey]problem.BinID
	// Exclusive are volume claims of these pods that one pod at a time may use and that others of the problem want too.
	Exclusive []string
}

// A Refused pod cannot run now, and why.
type Refused struct {
	Pod     *cluster.Pod
	Reasons []reason.Count
}
