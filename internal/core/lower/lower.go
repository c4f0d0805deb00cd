// Package lower turns a snapshot of the cluster and the pools' catalogues into the numbers that package solve works on, and
// turns its plan back into objects: NodeClaims that are ready to create, placements, refusals.
//
// An Engine remembers what it derived from rows, keyed by their pointers, so that a second question about nearly
// the same world costs little. It looks at no clock: what it may spend is work, and the caller hands in what may cut that short.
package lower

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/work"
)

// A PoolInput is a pool that may get new nodes, with what its node class can launch.
type PoolInput struct {
	Pool    *v1.NodePool
	Catalog *cloud.Catalog
}

// An Input is one question: where do these pods go, and what has to be opened for them.
type Input struct {
	Snap  *cluster.Snapshot
	Pools []PoolInput
	// Pods are the pods to place. A pod that is bound now (to a node that is to go) is not counted where it is.
	Pods []*cluster.Pod
	// Gone names nodes (by row name) that are treated as removed, Closed nodes that take no further pods.
	Gone, Closed map[string]bool
	// Simulation asks a what-if question for disruption: pods whose only room is on a node that is not initialised yet
	// are refused, unless FromDeleting names them.
	Simulation   bool
	FromDeleting map[cluster.PodKey]bool
	// LeftOut says of pods how many plans in a row left them out (reason.Postponed, reason.NotReached). They come before others.
	LeftOut map[cluster.PodKey]int
	// Virtual pods hold room for others; they come last.
	Virtual  map[cluster.PodKey]bool
	Settings Settings
	Now      time.Time
	// Stop is asked now and then from when pods begin to be placed. Once it says so, the best plan so far is the answer. nil: never.
	Stop  func() bool
	ended func() bool // nobody waits for the answer any more; nil: somebody does
}

// Settings are the tunables of the engine. The zero value is usable.
type Settings struct {
	IgnorePreferences   bool // drop soft constraints instead of treating them as hard first
	MinValuesBestEffort bool // lower minValues that cannot be met, instead of refusing
	ReservedCapacity    bool // feature gate: reserved offerings are counted and come first
	DefaultSpread       []corev1.TopologySpreadConstraint
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

// A Plan answers an Input.
type Plan struct {
	Open    []Opening
	Place   []Placement
	Refused []Refused
	// Price is what the openings cost together; Floor the same if each claim got its cheapest offering, so that
	// Price − Floor is what the diversity of spot claims costs.
	Price, Floor cloud.NanoUSD
	// Cost is what decisions reckon with: Price, and more for each node, and where a spot claim has few types to choose from.
	Cost cloud.NanoUSD
	// VolumeBound and ConfigBound are proven lower bounds on Cost; 0 when not computed.
	VolumeBound, ConfigBound cloud.NanoUSD
	Partial                  bool // it was cut before all pods were reached; the others are in Refused with reason.NotReached
	Work                     work.Units
	// CutAt is set where Input.Stop ended the plan, which a quieter machine might have made cheaper: after so much work.
	CutAt work.Units
}

// Gap returns how much more the plan costs than its best bound, as a fraction; 0 when there is no bound.
func (p *Plan) Gap() float64 {
	bound := max(p.VolumeBound, p.ConfigBound)
	if bound <= 0 {
		return 0
	}
	return float64(p.Cost)/float64(bound) - 1
}

// An Opening is a new node.
type Opening struct {
	Claim *v1.NodeClaim // ready to create, without a name
	Pool  string
	Pods  []*cluster.Pod
	// Type is the instance type that was priced, the cheapest of Types, which are ordered by price.
	Type  string
	Types []string
	// Price is what launch will pay: the lowest offering for on-demand and reserved, the mean of what is sent for spot.
	// Floor is the cheapest offering, Worst the dearest that the claim could end up with.
	Price, Floor, Worst  cloud.NanoUSD
	Zones, CapacityTypes []string // what the claim may become, sorted
	Zone, CapacityType   string   // the offering that was priced
	Sent, Offers         int      // how many types launch sends, and in how many offerings
	Static               bool     // its pool has a fixed number of nodes
}

// A Replacement is new nodes that take the place of others.
type Replacement struct {
	Open []Opening
	Of   map[types.UID]bool // claims of the machines that go when the new ones are there: limits are asked as if they were gone
}

// A Placement puts a pod on a node that exists or is on its way.
type Placement struct {
	Pod  *cluster.Pod
	Node string // row name
}

// A Refused pod cannot run now, and why.
type Refused struct {
	Pod     *cluster.Pod
	Reasons []reason.Count
	Text    string
}

// Plan places the pods of in. The answer depends on in only, unless in.Stop or the end of ctx cuts it short or the last question was
// nearly the same: then what did not change stays as it was answered.
func (e *Engine) Plan(ctx context.Context, in Input) *Plan {
	sound := false
	defer func() {
		if !sound { // a panic left half of what the engine remembers; the next question must not be built on that
			*e = *New()
		}
	}()
	plan := e.plan(ctx, in)
	sound = true
	return plan
}
