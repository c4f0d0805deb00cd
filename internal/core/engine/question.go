// Package engine answers one question: where do these pods go, and what has to be opened for them.
//
// A Question is objects (a snapshot, pools with their catalogues, pods, settings), a Plan is objects again (claims that are ready to
// create, placements, refusals). In between are numbers: package compile turns objects into a problem, solve places the pods and pack
// makes the fleet cheaper, and raise.go here turns the result back. A caller needs this package and none below it.
//
// An Engine remembers what it derived and what it answered, so that a second question about nearly the same world
// costs little. It looks at no clock: what it may spend is work, and the caller hands in what may cut that short.
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

// A Question is where some pods go, and what has to be opened for them.
type Question struct {
	Snap  *cluster.Snapshot
	Pools []Pool
	// Pods are the pods to place. A pod that is bound now (to a node that is to go) is not counted where it is.
	Pods []*cluster.Pod
	// Gone names nodes (by row name) that are treated as removed, Closed nodes that take no further pods.
	Gone, Closed map[string]bool
	// Kept are places of pods that may come to them, of which nothing may be given away: no room, port or volume,
	// nor the devices that a claim of their own will need there. Until they come, pods are counted where they are.
	Kept []Placement
	// Simulation asks a what-if question for disruption: pods whose only room is on a node that is not initialised yet are refused.
	Simulation bool
	// LeftOut returns, by pod, how many plans in a row left them out (reason.Postponed, reason.NotReached). They come before others.
	LeftOut map[cluster.PodKey]int
	// Commitments are Reserved Instances and Savings Plans that plans count on, and the machines that use them. nil: none.
	Commitments *tariff.Book
	Settings    Settings
	Now         time.Time // when it is asked: room that was promised is kept for a time
	// Stop is asked now and then from when pods begin to be placed: once it says so, the best plan so far is the answer. Ended says
	// that nothing waits for the answer any more, and is asked from the beginning. nil: never.
	Stop, Ended func() bool
}

func (q *Question) ended() bool   { return q.Ended != nil && q.Ended() }
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
	// DefaultTerminationGracePeriod is given to claims whose pool sets none; nil leaves them without.
	DefaultTerminationGracePeriod *time.Duration
	Size                          SizePolicy
	// Search is how much work may go into finding a cheaper fleet once every pod has its place; 0 means the default. A quarter of it is
	// done in any case, the rest as long as there is something to win.
	Search work.Units
	// Terms is how much work the terms of waiting pods may cause before places are looked for; 0 means the default. When it is not
	// enough, namespaces share it; who is left out is refused with reason.Postponed.
	Terms work.Units
	// CutAt cuts the plan where a clock once did: Plan.CutAt of a plan that was cut, given back, repeats it.
	CutAt     work.Units
	Band      shape.Band    // of what a launch sends; zero: the default
	NodePrice cloud.NanoUSD // what decisions add for each node, at most a twentieth of its price; 0: the default, negative: nothing
	// InterruptionCost is what it costs when a spot machine is taken back, where its pool says nothing else; 0: nothing.
	InterruptionCost cloud.NanoUSD
	// FirstFit switches the improvement off: only the incumbent is computed. The baseline of benchmarks.
	FirstFit bool
	// Unproven leaves out the lower bound where it is a question of its own: for what-ifs, of which only the price counts.
	Unproven bool
}

// SizePolicy keeps nodes small where that is nearly free. The zero value means the default: 64 vCPU, 1 %.
type SizePolicy struct {
	// Large is the vCPU above which a node is large; negative switches the policy off. Where the pods of a pool ask for less than four
	// times as much, a quarter of what they ask for is large, but nothing up to 8 vCPU.
	Large        int64
	GainPermille int64 // large nodes must make the bill lower by more than this, unless a pod needs one
}

// DefaultNodePrice is what a node is reckoned to cost by itself unless the user chose another price: $0.002 an hour.
const DefaultNodePrice cloud.NanoUSD = 2_000_000

// SpotBand is what a launch sends of spot, and OwnPrice what decisions add for a node of a price.
func (s *Settings) SpotBand() shape.Band { return s.terms().Band }

func (s *Settings) OwnPrice(price cloud.NanoUSD) cloud.NanoUSD {
	terms := s.terms()
	return cloud.NanoUSD(terms.Own(int64(price)))
}

// terms says what new nodes are reckoned to cost.
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
	// sureSearch is which part of the search is done whatever there is to win, one of so many.
	sureSearch = 4
)

func (s *Settings) solve() problem.Settings {
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
