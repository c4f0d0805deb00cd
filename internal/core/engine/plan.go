package engine

import (
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// A Plan answers a Question.
type Plan struct {
	Open    []Opening
	Place   []Placement
	Refused []Refused
	// Price is what the openings cost together. Floor is the same if each claim got its cheapest offering. Price − Floor is what it costs
	// that spot claims spread over several types.
	Price, Floor cloud.NanoUSD
	// Cost is what decisions compare: Price, plus Settings.NodePrice for each node, and more for spot claims with few types to choose from.
	Cost cloud.NanoUSD
	// VolumeBound and ConfigBound are proven lower bounds on Cost, for all fleets of the same pods: if some pods are in Place, another
	// fleet may place others of them on existing nodes. 0 if not computed.
	VolumeBound, ConfigBound cloud.NanoUSD
	Partial                  bool // it was cut before all pods were reached; the others are in Refused with reason.NotReached
	Work                     work.Units
	// CutAt is the work after which Question.Stop ended the plan; 0: it did not. With more time the plan might be cheaper.
	CutAt work.Units
	// Bill is the effect of commitments on the price; nil without commitments.
	Bill *Bill
	// Zones counts waiting pods by the zones that they were tied to before anything was placed.
	Zones Zones
}

// Zones counts pods by zone.
type Zones = compile.Zones

// dropFalseBound reports a bug if a bound is above the cost of the plan itself, and removes the bounds. Every plan passes here, so every
// test, judge, benchmark and replay checks it.
func (p *Plan) dropFalseBound() {
	if bound := max(p.VolumeBound, p.ConfigBound); bound > p.Cost {
		bug.FalseBound(int64(p.Cost), int64(bound))
		p.VolumeBound, p.ConfigBound = 0, 0
	}
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
	// Price is what the launch is expected to pay: the lowest offering for on-demand and reserved, the mean of the offerings sent for spot.
	// Floor is the cheapest offering, Worst the dearest that the claim may get.
	Price, Floor, Worst  cloud.NanoUSD
	Risk                 cloud.NanoUSD // what interruptions add to Price in decisions; it is on no bill
	Zones, CapacityTypes []string      // what the claim may become, sorted
	Zone, CapacityType   string        // the offering that was priced
	Sent, Offers         int           // how many types launch sends, and in how many offerings
	Static               bool          // its pool has a fixed number of nodes
	Covered              float64       // the part of the machine that commitments cover, for which no more is paid
}

// A Bill is what a plan does to the hourly bill of all machines, with commitments.
type Bill struct {
	Adds cloud.NanoUSD // what the openings add to the bill, spot machines included
	Used []Use         // of each commitment
}

// A Use is which part of a commitment is used, from 0 to 1, without the plan and with it.
type Use struct {
	ID            string
	Before, After float64
}

// A Replacement is new nodes that take the place of others.
type Replacement struct {
	Open []Opening
	Of   map[types.UID]bool // claims of the machines that go when the new ones are there: limits are asked as if they were gone
}

// A Placement puts a pod on a node that exists or is on its way.
type Placement = compile.Placement

// A Refused pod cannot run now, and why.
type Refused = compile.Refused
