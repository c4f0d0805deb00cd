// Package engine answers one question: where do these pods go, and which nodes have to be opened for them.
//
//	question.go  a Question is objects: a snapshot, pools with their catalogues, pods, settings
//	engine.go    an Engine compiles the question to numbers (package compile), and lets repack solve them: package solve places
//	             the pods, package pack makes the fleet cheaper
//	raise.go     a raiser turns the numbers of the result back into objects
//	claim.go     the NodeClaims of new nodes
//	plan.go      a Plan is objects again: claims that are ready to create, placements, refusals
//
// A caller needs this package and none below it. An Engine remembers what it derived and what it answered, so that a second
// question about nearly the same cluster costs little. It reads no clock: its budget is work (package work), and the caller
// passes in functions that may cut a plan short.
package engine

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Pool is a node pool that may get new nodes, with what its node class can launch.
type Pool = compile.Pool

// MarketOf returns what pools sell, as quotas read it.
func MarketOf(pools map[string]Pool) quota.Market {
	out := quota.Market{}
	for name, p := range pools {
		out[name] = p.Catalog
	}
	return out
}

// A Question asks where some pods go, and which nodes have to be opened for them.
type Question struct {
	Snap  *cluster.Snapshot
	Pools []Pool
	// Pods are the pods to place. A pod that is bound now (to a node that is to go) is not counted where it is.
	Pods []*cluster.Pod
	// Gone names nodes (by row name) that are treated as removed, Closed nodes that take no further pods.
	Gone, Closed map[string]bool
	// Kept are places that are kept for pods that may come to them. Their room, ports, volumes and devices there are not given to other
	// pods. Until the pods come, they are counted where they are.
	Kept []Placement
	// Simulation asks a what-if question for disruption: pods are refused if their only room is on a node that is not initialised yet.
	Simulation bool
	// LeftOut is, by pod, how many plans in a row left it out (reason.Postponed, reason.NotReached). Such pods come before others.
	LeftOut map[cluster.PodKey]int
	// Commitments are Reserved Instances and Savings Plans that plans count on, and the machines that use them. nil: none.
	Commitments *tariff.Book
	Settings    Settings
	Now         time.Time // when it is asked: room that was promised is kept for a time
	// Stop is called again and again once pods are being placed: when it returns true, the best plan so far is the answer. Ended is called
	// from the beginning, and reports that no caller waits for the answer any more. nil: never.
	Stop, Ended func() bool
}

// ended reports whether no caller waits for the answer any more.
func (q *Question) ended() bool { return q.Ended != nil && q.Ended() }

// stopped reports whether the search should end with the best plan so far.
func (q *Question) stopped() bool { return q.ended() || q.Stop != nil && q.Stop() }

// Settings are the tunables of the engine. The zero value is usable.
type Settings struct {
	IgnorePreferences   bool // drop soft constraints instead of treating them as hard first
	AssumeRequests      bool // when a new node is sized, a container without CPU or memory request counts as 100m and 200Mi
	MinValuesBestEffort bool // lower minValues that cannot be met, instead of refusing
	ReservedCapacity    bool // feature gate: reserved offerings are counted and come first
	DefaultSpread       []corev1.TopologySpreadConstraint
	// Selects answers selectors of device classes and resource claims. nil: pods that use resource claims are refused.
	Selects devices.Selects
	// DefaultTerminationGracePeriod is given to claims of pools that set none; nil leaves them without.
	DefaultTerminationGracePeriod *time.Duration
	Size                          SizePolicy
	// Search is how much work may go into finding a cheaper fleet once every pod has its place; 0 means the default. A quarter of it is
	// always spent, the rest as long as it may bring the cost down.
	Search work.Units
	// Terms is how much work the terms of waiting pods may cause before pods are placed; 0 means the default. If it is not enough,
	// namespaces share it, and the remaining pods are refused with reason.Postponed.
	Terms work.Units
	// CutAt cuts the plan after this much work. With Plan.CutAt of a plan that a clock cut, it repeats that plan.
	CutAt     work.Units
	Band      shape.Band    // how many types a launch lists; zero: the default
	NodePrice cloud.NanoUSD // what decisions add for each node, at most a twentieth of its price; 0: the default, negative: nothing
	// InterruptionCost is what it costs when a spot machine is taken back, unless its pool sets another amount; 0: nothing.
	InterruptionCost cloud.NanoUSD
	// FirstFit switches the search for a cheaper fleet off. It is the baseline of benchmarks.
	FirstFit bool
	// Unproven leaves out work that only proves the lower bound: for what-if questions, in which only the price counts.
	Unproven bool
}

// SizePolicy keeps nodes small if that costs little. The zero value means the default: 64 vCPU, 1 %.
type SizePolicy struct {
	// Large is the vCPU above which a node is large; negative switches the policy off. In small pools less is large: more than a quarter of
	// the CPU that all pods of the pool ask for, but never 8 vCPU or less.
	Large        int64
	GainPermille int64 // large nodes must make the bill lower by more than this, unless a pod needs one
}

// DefaultNodePrice is what decisions add for each node unless the user chose another amount: $0.002 an hour.
const DefaultNodePrice cloud.NanoUSD = 2_000_000

// SpotBand returns how many types a spot launch lists.
func (s *Settings) SpotBand() shape.Band { return s.terms().Band }

// OwnPrice returns what decisions add for a node with this price.
func (s *Settings) OwnPrice(price cloud.NanoUSD) cloud.NanoUSD {
	terms := s.terms()
	return cloud.NanoUSD(terms.Own(int64(price)))
}

// terms returns by which terms new nodes are costed, with defaults filled in.
func (s *Settings) terms() problem.Terms {
	terms := problem.Terms{Band: s.Band, Node: int64(max(s.NodePrice, 0)), Interruption: int64(s.InterruptionCost)}
	if s.NodePrice == 0 {
		terms.Node = int64(DefaultNodePrice)
	}
	if s.Band == (shape.Band{}) {
		terms.Band = shape.DefaultBand
	}
	return terms
}

// Defaults of the size policy and of the search.
const (
	defaultLarge  = 64
	defaultGain   = 10
	DefaultSearch = work.Second * 5 / 4
	// One sureSearch-th of the search is always done.
	sureSearch = 4
)

// problem returns the settings of the problem, with defaults filled in.
func (s *Settings) problem() problem.Settings {
	out := problem.Settings{
		MinBestEffort: s.MinValuesBestEffort, Large: s.Size.Large, GainPermille: s.Size.GainPermille,
		Terms: s.terms(), Most: cmp.Or(s.Search, DefaultSearch), FirstFit: s.FirstFit, Unproven: s.Unproven,
	}
	out.Least = max(out.Most/sureSearch, 1)
	switch {
	case out.Large == 0:
		out.Large, out.GainPermille = defaultLarge, defaultGain
	case out.Large < 0:
		out.Large = 0
	}
	return out
}
