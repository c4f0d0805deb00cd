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

// A Method is the kind of thinking that proposed a step.
type Method string

// The methods, in the order in which they are asked.
const (
	Repair     Method = "repair"
	Emptiness  Method = "empty"
	Drift      Method = ""
	MultiNode  Method = "multi"
	SingleNode Method = "single"
)

// ConsolidationType is the method in metrics: "" for those that do not consolidate.
func (m Method) ConsolidationType() string {
	if m == Repair {
		return ""
	}
	return string(m)
}

// Waits reports whether steps of this method are looked at again after the validation delay, before anything is done. Only
// consolidation moves pods for money; an empty node disturbs no pod, and a drifted one is replaced at any price.
func (m Method) Waits() bool { return m == MultiNode || m == SingleNode }

// A Step is one change of the fleet that can be made by itself: open what replaces, wait for it, remove the rest.
//
// It is complete: the loop that carries it out needs nothing else, and a reader, in the journal or in a plan that waits for
// approval, can say what was going to happen and why it was worth it. Prices are of an hour, as expected when it was proposed.
//
// Invariant: After ≤ Worst, and Worst < Before, or equal where nodes get fewer;
// drift and repair alone may cost more than what they replace. A reboot opens nothing, and its nodes stay.
type Step struct {
	Method Method
	Reason v1.DisruptionReason
	Remove []*Candidate
	Open   []engine.Opening   // opened and initialised before anything is removed
	Place  []engine.Placement // pods of removed nodes that go to running nodes
	Before cloud.NanoUSD      // price of what is removed
	After  cloud.NanoUSD      // what launch is expected to pay for what is opened
	Worst  cloud.NanoUSD      // the most that launch can come to pay for it
	Own    cloud.NanoUSD      // what the nodes that there will be fewer are reckoned to cost by themselves
	Risk   cloud.NanoUSD      // by how much less interruptions are reckoned to cost; negative where it is more
	Score  []PoolScore        // how pools with policy Balanced judge the step
	Reboot bool               // the machines are rebooted and not removed
	First  TerminateFirst     // why nothing is opened although the nodes are replaced; "" otherwise
}

// ID names the step: the same nodes for the same reason have the same ID.
//
// A step is found again by it after the world has changed: the openings may be others by then, while it is still the same thing that was
// refused, that failed, or that waits for its second look.
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

// Gains is what decisions make of that: a node costs something by itself, and so may an interruption; neither is on a bill.
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

// Cost is what the step costs in moved pods.
func (s *Step) Cost() float64 {
	cost := 0.0
	for _, c := range s.Remove {
		cost += c.Cost
	}
	return cost
}

// moves is how much the pods mind that a step moves, an ordinary one as much as 1.
func (s *Step) moves() float64 { return s.Cost() - float64(len(s.Remove)) }

// Begin notes that the step is under way: its nodes go, and their pods have seats where they are to be. claims are
// those that were created for what it opens, in that order; they stand in the draft already. Pods that do not
// exist, for which a buffer keeps room, get no seats.
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
