package disrupt

import (
	"slices"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A Method is the part of the planner that proposed a step.
type Method string

// The methods, in the order in which they are asked.
const (
	Repair     Method = "repair"
	Emptiness  Method = "empty"
	Drift      Method = ""
	MultiNode  Method = "multi"
	SingleNode Method = "single"
)

// ConsolidationType returns the method as metrics name it, "" for drift and repair.
func (m Method) ConsolidationType() string {
	if m == Repair {
		return ""
	}
	return string(m)
}

// Waits reports whether steps of this method are confirmed after the validation delay before they are started. Only the consolidation of
// nodes with pods is: it moves pods to save money. The removal of an empty node moves no pod, and drifted and broken nodes are replaced at
// any price.
func (m Method) Waits() bool { return m == MultiNode || m == SingleNode }

// A Step is one change of the fleet that can be made by itself: open what replaces, wait for it, remove the rest.
//
// It is complete: the loop that carries it out needs nothing else, and a reader, in the journal or in a plan that waits for
// approval, can say what was going to happen and why it was worth it. Prices are of an hour, as expected when it was proposed.
//
// Invariant: After ≤ Worst, and Worst < Before; Worst may equal Before if there are fewer nodes afterwards. Only drift and repair may cost
// more than what they replace. A reboot opens nothing, and its nodes stay.
type Step struct {
	Method Method
	Reason v1.DisruptionReason
	Remove []*Candidate
	Open   []engine.Opening   // opened and initialised before anything is removed
	Place  []engine.Placement // pods of removed nodes that go to running nodes
	Before cloud.NanoUSD      // price of what is removed
	After  cloud.NanoUSD      // what launch is expected to pay for what is opened
	Worst  cloud.NanoUSD      // the most that launch may pay for it
	Own    cloud.NanoUSD      // by how much the estimated overhead of nodes falls, which is on no bill; at least 0, see Gains
	Risk   cloud.NanoUSD      // by how much the estimated cost of interruptions falls; negative if it rises
	Score  []PoolScore        // how pools with policy Balanced judge the step
	Reboot bool               // the machines are rebooted and not removed
	First  TerminateFirst     // why nothing is opened although the nodes are replaced; "" otherwise
}

// ID returns the reason and the sorted names of the claims. Steps that remove the same nodes for the same reason have the same ID, whatever
// they open. So a step that waits, failed or was refused is recognized when a later pass proposes it again with other replacements.
func (s *Step) ID() string {
	names := make([]string, len(s.Remove))
	for i, c := range s.Remove {
		names[i] = c.Node.Claim.Name
	}
	slices.Sort(names)
	return string(s.Reason) + "/" + strings.Join(names, ",")
}

// Decision is "reboot" when the machines stay, "delete" when nothing is opened, "terminate-first" when the replacement opens afterwards,
// "replace" otherwise.
func (s *Step) Decision() string {
	switch {
	case s.Reboot:
		return "reboot"
	case s.First != "":
		return "terminate-first"
	case len(s.Open) == 0:
		return "delete"
	}
	return "replace"
}

// TerminateFirst says why a node goes before its replacement comes.
type TerminateFirst string

const (
	// StaticAtLimit says that the limit of nodes of a static pool leaves no room for a replacement beside the node.
	StaticAtLimit TerminateFirst = "static-at-limit"
	// NoReservedCapacity says that the replacement needs the place in a capacity reservation that the node has.
	NoReservedCapacity TerminateFirst = "no-reserved-capacity"
)

// restarts is how many workloads are restarted so that their pods leave.
func (s *Step) restarts() (n int) {
	for _, c := range s.Remove {
		n += c.Restarts
	}
	return n
}

// Saves is what the step is expected to take off the hourly bill. At the worst it takes off Before − Worst, which is more than nothing, or
// nothing where there are fewer nodes.
func (s *Step) Saves() cloud.NanoUSD { return s.Before - s.After }

// Gains returns by how much the step is better for decisions: what it saves, and the estimated overhead of nodes and cost of interruptions
// that it avoids. These two are on no bill.
func (s *Step) Gains() cloud.NanoUSD { return s.Saves() + s.Own + s.Risk }

// removes reports whether the step removes a candidate's node.
func (s *Step) removes(c *Candidate) bool {
	return slices.ContainsFunc(s.Remove, func(r *Candidate) bool { return r.Node == c.Node })
}

// Pods counts the pods that have to move.
func (s *Step) Pods() int {
	n := 0
	for _, c := range s.Remove {
		n += len(c.Pods)
	}
	return n
}

// Cost returns the sum of the costs of its candidates, as Candidate defines them: 1 for each node, and about 1 for each pod that moves.
func (s *Step) Cost() float64 {
	cost := 0.0
	for _, c := range s.Remove {
		cost += c.Cost
	}
	return cost
}

// moves returns the cost of moving the pods alone, 1 for an ordinary pod.
func (s *Step) moves() float64 { return s.Cost() - float64(len(s.Remove)) }

// Begin notes in the draft that the step is under way: it marks the nodes for removal, and plans a seat for each pod on the node where it
// is to go. claims are the names of the claims created for Open, in the same order; the draft must have them already. The placeholder pods
// of capacity buffers get no seats.
func (s *Step) Begin(d *cluster.Draft, claims []string, now time.Time) {
	for _, c := range s.Remove {
		d.MarkForRemoval(c.Node.Claim.Name)
	}
	seat := func(p *cluster.Pod, target string) {
		if p.Spare == nil {
			d.Plan(p.PodKey, target, now)
		}
	}
	for _, p := range s.Place {
		seat(p.Pod, p.Node)
	}
	for i := range s.Open {
		for _, p := range s.Open[i].Pods {
			seat(p, claims[i])
		}
	}
}
