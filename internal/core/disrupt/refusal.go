package disrupt

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
)

// A Refusal is the reason why a node stays, or why a step is not carried out, as data: a code and its details. Package sentence turns it
// into a text.
//
// There is one type with few general fields, instead of a type for each code, so that other code can sort, count, store and compare
// refusals without knowing the codes. The comment of each code says which fields it uses. A function that returns a Refusal with the code
// "" refuses nothing.
type Refusal struct {
	Code Code `json:"code"`
	// Reason is why the node would have been removed; "" if the refusal holds for every reason.
	Reason v1.DisruptionReason `json:"reason,omitempty"`
	// Node and Claim name what stays. Node is "" for a claim whose Node has not registered.
	Node  string `json:"node,omitempty"`
	Claim string `json:"nodeClaim,omitempty"`
	// Pod is the pod that keeps the node, nil if no pod does.
	Pod *cluster.PodKey `json:"pod,omitempty"`
	// Name is the label, annotation, pool, budget or instance type that the code is about, and Value is its value.
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
	// Detail is what a gate or an error said.
	Detail string `json:"detail,omitempty"`
	// Have is the present number or amount, and Need the amount it is compared with, as the comment of the code says.
	Have float64 `json:"have,omitempty"`
	Need float64 `json:"need,omitempty"`
	// Until is when this ends by itself, zero where it does not.
	Until time.Time `json:"until,omitzero"`
	// Stuck are pods without another place, the first few by name, and More how many there are beside them.
	Stuck []Stuck `json:"stuck,omitempty"`
	More  int     `json:"more,omitempty"`
	// Limits names the pools whose limits forbid a replacement.
	Limits []string `json:"limits,omitempty"`
	// Quotas names the CapacityQuotas that forbid a replacement.
	Quotas []string `json:"quotas,omitempty"`
	// Why is the engine's reason for a machine that cannot be opened.
	Why reason.Explanation `json:"why,omitempty"`
}

// A Stuck pod has no place other than the node it is on; Why is the engine's reason.
type Stuck struct {
	Pod cluster.PodKey     `json:"pod"`
	Why reason.Explanation `json:"why"`
}

// A Code names what holds a node or ends a step. Its text is stable: events are distinguished by it, and readers of JSON know it by that.
type Code string

// What keeps a node from going for any reason.
const (
	NoNode         Code = "NoNode"           // it has not registered
	NotInitialized Code = "NotInitialized"   // it has not been ready for pods yet
	Deleting       Code = "Deleting"         // it is on its way out already
	Nominated      Code = "Nominated"        // pods that wait are promised its room, until Until at the latest
	Rebooting      Code = "Rebooting"        // its machine is being rebooted, and the node comes back
	Landing        Code = "Landing"          // pods of a node that goes are on their way to it
	Awaited        Code = "Awaited"          // pods are on their way to places that their affinity or spread allows only while Pod stays
	NodeProtected  Code = "NodeDoNotDisrupt" // the Node has the annotation Name
	ClaimProtected Code = "NodeClaimDoNotDisrupt"
	Paused         Code = "Paused" // an operator stopped disruption of the pool Name, of all pools if that is empty, and said why in Value
	NoPool         Code = "NoPool" // its pool Name is gone, or its catalogue is not known; without Name it names no pool
)

// What keeps a node for a while, whatever the reason.
const (
	InStep  Code = "InStep"         // a step with it is under way or waits to be looked at again, or it is left aside because of a bug
	Setback Code = "RecentlyFailed" // its last step failed, and it is left alone until Until
)

// What keeps a node as long as its pods are there: from drift too, unless the claim has a termination grace period.
const (
	PodProtected Code = "PodDoNotDisrupt" // Pod has the annotation Name with the value Value
	// the budget Name allows no disruption of Pod; without Name it is under several, and so evicted by none. Value is the
	// surge.Verdict about its workload, "" where none is known
	PodBudget Code = "PodDisruptionBudget"
)

// NoPlace keeps a drifted node, and a node that is to be consolidated. The pods Stuck would find no other place. A
// node of a pool with a fixed number of nodes goes only after a machine like it was opened: Limits forbid it, or
// there is none, as Why says.
const NoPlace Code = "NoPlace"

// What keeps a broken node.
const (
	RepairForbidden Code = "DoNotRepair"   // the Node or its claim has the annotation Name
	TooManyBroken   Code = "TooManyBroken" // of the Need nodes of its pool Name, Have are broken: it is hardly the machines
)

// What keeps a node from going for Reason.
const (
	DriftReturns Code = "DriftReturns" // machines of its class Value drift from birth for the reason Name; one more is tried at Until
	Rollout      Code = "Rollout"      // the RolloutPolicy Name holds it, for the rollout.State Value; Detail says more
	FixedNodes   Code = "FixedNodes"   // its pool Name has a fixed number of nodes
	Settling     Code = "Settling"     // consolidateAfter of its pool Name is not over since a pod came or went
	JustVacated  Code = "JustVacated"  // its last pod has only just gone, and another may come
	BudgetUnread Code = "BudgetUnread" // a budget of its pool Name cannot be read, as Value says
	SearchWaits  Code = "SearchWaits"  // the last search found nothing, and the next has to wait until Until
)

// What keeps a node from being consolidated.
const (
	NoLabel          Code = "NoLabel"          // without the label Name its price is not known
	DoNotConsolidate Code = "DoNotConsolidate" // it has the annotation Name
	NotOffered       Code = "NotOffered"       // its instance type Name is not offered any more where it runs
	ConsolidateNever Code = "ConsolidateNever" // its pool Name has consolidateAfter: Never
	OnlyWhenEmpty    Code = "OnlyWhenEmpty"    // its pool Name consolidates empty nodes only
	FeedsBuffer      Code = "FeedsBuffer"      // no pod that counts runs on it, but the objects Name keep room there
	// NothingCheaper: no replacement saves the part Need of what it costs; the cheapest saves Have, if there is one
	NothingCheaper Code = "NothingCheaper"
	NothingButSpot Code = "NothingButSpot" // nothing but spot is cheaper, and spot is not replaced by spot
	SpotForSpot    Code = "SpotForSpot"    // as many spot nodes of other types are no saving
	FewSpotTypes   Code = "FewSpotTypes"   // one spot node needs Need cheaper types to be replaced by spot, there are Have
	MinValues      Code = "MinValues"      // what is cheaper has fewer kinds than its pool asks for
	// its pool's policy Balanced finds that the saving is too small for the pods that would move
	Unbalanced Code = "Unbalanced"
	// a step saves Have dollars an hour for each workload that is restarted for it, and must save Need
	TooManyRestarts Code = "TooManyRestarts"
	TooManyMoves    Code = "TooManyMoves" // a step saves Have dollars an hour for each pod that moves, and must save Need
)

// Why a step is not carried out after all.
const (
	Churn      Code = "Churn"      // a node is no candidate for it any more
	Budget     Code = "Budget"     // the budgets of the pools do not let its nodes go now
	Scheduling Code = "Scheduling" // its pods would not all find a place, or it does not save what it did
	NotEmpty   Code = "NotEmpty"   // Node is not empty any more
	NotOurs    Code = "NotOurs"    // a candidate is no Karpenter node
)

// Codes lists all codes, in the order in which they are explained.
func Codes() []Code {
	return []Code{
		NoNode, Rebooting, NotInitialized, Deleting, Nominated, Landing, Awaited, NodeProtected, ClaimProtected, Paused, NoPool,
		InStep, Setback, PodProtected, PodBudget, NoPlace, RepairForbidden, TooManyBroken, DriftReturns, Rollout,
		FixedNodes, Settling, JustVacated, BudgetUnread, SearchWaits,
		NoLabel, DoNotConsolidate, NotOffered, ConsolidateNever, OnlyWhenEmpty, FeedsBuffer,
		NothingCheaper, NothingButSpot, SpotForSpot, FewSpotTypes, MinValues, Unbalanced, TooManyRestarts, TooManyMoves,
		Churn, Budget, Scheduling, NotEmpty, NotOurs,
	}
}

// Passes reports whether the code describes a state of a node that ends by itself, so that a user need do nothing.
func (c Code) Passes() bool {
	return c == NoNode || c == Rebooting || c == NotInitialized || c == Deleting || c == Nominated || c == Landing || c == Awaited
}

// of returns the refusal with the names of the candidate's node and claim.
func (r Refusal) of(c *Candidate) Refusal {
	r.Node, r.Claim = c.Name(), c.Node.Claim.Name
	return r
}

// named bounds the stuck pods that a refusal names.
const named = 5
