package compile

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Pool may get new nodes of what its node class can launch.
type Pool struct {
	Pool    *v1.NodePool
	Catalog *cloud.Catalog
}

// InterruptionCost returns what it costs when a machine of the pool is taken back: the pool's annotation if it is valid, else usual.
func (p *Pool) InterruptionCost(usual cloud.NanoUSD) cloud.NanoUSD {
	text, said := p.Pool.Annotations[v1.InterruptionCostAnnotationKey]
	if !said {
		return usual
	}
	cost, err := v1.InterruptionCost(text)
	if err != nil {
		return usual
	}
	return cloud.FromDollars(cost)
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

	Ranks             map[cluster.PodKey]int32 // instead of priorities; see Ranks
	AssumeRequests    bool                     // containers without requests count when new nodes are sized
	IgnorePreferences bool
	ReservedCapacity  bool
	DefaultSpread     []corev1.TopologySpreadConstraint
	Terms             problem.Terms   // what new nodes are reckoned to cost
	Selects           devices.Selects // nil: pods that use resource claims are refused
	Work              work.Units      // for the terms of waiting pods; 0: the default
	Ended             func() bool     // reports that no caller waits for the answer any more; nil: one does
}

// A Compiled is a problem with the objects behind its numbers.
type Compiled struct {
	Problem *problem.Problem
	Classes []Class        // the pods behind those of the problem
	Reqs    []label.Reqs   // by problem.Variant.Reqs and problem.Narrowed.To
	Refused []Refused      // pods that no plan can place
	Dropped []reason.Count // why nothing can be launched, for each pool without templates
	Spent   work.Units     // the work that terms of pods caused
	// Renumbered is set if resources got new columns: vectors do not mean what they meant in the problem before.
	Renumbered bool

	nodes      []*nodeInfo
	templates  []*template
	quotas     []quota.Quota
	publishers []string // drivers of devices, by number
}

// Node returns the row behind a node of the problem.
func (l *Compiled) Node(n problem.BinID) *cluster.Node { return l.nodes[n].row }

// DriversOf names the drivers of a new node's devices.
func (l *Compiled) DriversOf(bin *problem.Bin) []string {
	out := make([]string, 0, len(bin.Drivers))
	for _, n := range bin.Drivers {
		out = append(out, l.publishers[n])
	}
	slices.Sort(out)
	return out
}

// Template returns the pool behind a template of the problem, and the requirements on the labels of its nodes.
func (l *Compiled) Template(t problem.TemplateID) (*v1.NodePool, label.Reqs) {
	return l.templates[t].pool, l.templates[t].reqs.And(l.templates[t].part)
}

// Quantify writes Limit, Used and Least of a count about a limit or quota, as quantities for people. It leaves "" what is not known.
func (l *Compiled) Quantify(c *reason.Count) {
	var all v1.Limits
	if c.Code == reason.Quota {
		if at := slices.IndexFunc(l.quotas, func(q quota.Quota) bool { return q.Name == c.Detail }); at >= 0 {
			all = l.quotas[at].Limits
		}
	} else if at := slices.IndexFunc(l.templates, func(t *template) bool { return t.pool.Name == c.Pool }); at >= 0 {
		all = l.templates[at].pool.Spec.Limits
	}
	name := corev1.ResourceName(c.Key)
	limit, ok := all[name]
	if !ok {
		return
	}
	c.Limit, c.Used = limit.String(), written(name, down(name, &limit)-c.Left)
	if name == quota.Dollars {
		c.Limit = written(name, down(name, &limit))
	}
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
