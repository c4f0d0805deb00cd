package disrupt

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/core/surge"
)

// A World is everything that a decision about disruption rests on.
//
// Snapshot, catalogues, budgets and the clock are taken together and not again: a pass that read the store twice could plan with a node
// that it had just found to be gone. What may have changed meanwhile is found out by Confirm, with a world of its own.
type World struct {
	Snap *cluster.Snapshot
	// Pools are the pools that this provider serves and whose instance types are known, by name. A pool that
	// is not Ready stands here too, because its nodes may still be removed; NotReady names it, so that nothing is opened for it.
	Pools    map[string]engine.Pool
	NotReady map[string]bool
	// Busy holds the claims that take part in a step that is being carried out, or waits to be looked at again.
	Busy map[types.UID]bool
	// Promised counts, by pool, the nodes of steps that wait for their confirmation or their turn. Consolidation leaves budget for them.
	Promised map[string]int
	// Ahead says that steps may wait for their turn, so consolidation plans for more nodes than may go at once.
	Ahead bool
	// Vacant says since when nodes have been vacant, by claim (see Vacancies). A claim that is missing counts as vacant for long.
	Vacant map[types.UID]time.Time
	// Facts are what was read of rows at earlier looks, nil if rows are read once.
	Facts *Facts
	// Landing names the nodes that pods of other steps are on their way to: nothing else is planned onto them or removes them.
	Landing map[string]bool
	// Coming are the places of pods of other steps that wait for their second look: nothing else is planned onto their room, and nothing
	// removes those nodes.
	Coming []engine.Placement
	// Repairs says which nodes are broken; nil where nodes are not repaired.
	Repairs *lifecycle.Repairs
	// Surge has the verdict on each owner of pods that a PodDisruptionBudget holds: whether they move by restart. It is nil where that is
	// off. SurgeTurn changes with it.
	Surge     map[types.UID]surge.Verdict
	SurgeTurn uint64
	Settings  Settings
	Now       time.Time
	// Commitments are Reserved Instances and Savings Plans, with the machines that use them. nil: none.
	Commitments *commitment.Books
	// Rollouts say what RolloutPolicies let happen to the nodes of pools, by pool. nil: there are no policies.
	Rollouts map[string]rollout.Allowance
	// Engine answers what-if questions, and Terms are part of each of them.
	Engine asker
	Terms  engine.Settings
	// Ended reports that the caller no longer needs the answer. Then no further question is asked. nil: never.
	Ended func() bool
}

// asker is the part of engine.Engine that is asked what-if questions.
type asker interface {
	Plan(q engine.Question) *engine.Plan
}

func (w *World) ended() bool { return w.Ended != nil && w.Ended() }

// Settings are the tunables of disruption. Trials and the numbers that the toll divides by must be above 0: otherwise those of
// DefaultSettings are used (complete).
type Settings struct {
	SpotToSpot bool // feature gate SpotToSpotConsolidation
	// A node goes before its replacement comes where there can be none beside it: feature gates TerminateFirstDrift,
	// TerminateFirstRepair.
	TerminateFirstDrift, TerminateFirstRepair bool
	// MinSaving is the part of the price of the removed nodes that a step must gain, before any pod is moved for it.
	MinSaving float64
	// Toll is what a step must save in an hour for each pod that it moves, in units of what an average pod costs. The settings below
	// make it larger or smaller: see type toll.
	Toll float64
	// ArrivalsPerHour is the part of the pods that comes by itself in an hour of a restless cluster, MovedPerDay
	// the part that may be moved within a day before moves get dearer, and SlackOfPrice the part of its price by
	// which a fleet may be dearer than its target before they get cheaper.
	ArrivalsPerHour, MovedPerDay, SlackOfPrice float64
	// HoursPerMove says what a move must save until all pods have turned over once: what an average pod costs in so many hours.
	HoursPerMove float64
	// Surge says that pods which must not go without a successor move by a restart of their Deployment.
	Surge bool
	// RestartSaving is what consolidation must save in dollars an hour for each workload that it restarts.
	RestartSaving float64
	// Trials is how many what-if questions one consolidation pass asks; what it did not reach is first next time.
	Trials int
}

// terminatesFirst reports whether a node may go for the reason before its replacement comes.
func (s Settings) terminatesFirst(reason v1.DisruptionReason) bool {
	switch reason {
	case v1.DisruptionReasonDrifted:
		return s.TerminateFirstDrift
	case v1.DisruptionReasonUnhealthy:
		return s.TerminateFirstRepair
	}
	return false
}

// DefaultSettings are the values that are used unless the user chose others. They are a compromise between the bill of a day and the
// number of moved pods; internal/testing/daysim simulates days of arrivals and departures to compare others.
func DefaultSettings() Settings {
	return Settings{MinSaving: 0.03, Toll: 1, ArrivalsPerHour: 0.02, MovedPerDay: 0.3, SlackOfPrice: 0.06, HoursPerMove: 4,
		RestartSaving: 0.01, Trials: 96}
}

// complete returns the settings with defaults in place of those that are not above 0, or not a number, and would break the toll or a
// search.
func (s Settings) complete() Settings {
	d := DefaultSettings()
	if !(s.ArrivalsPerHour > 0) {
		s.ArrivalsPerHour = d.ArrivalsPerHour
	}
	if !(s.MovedPerDay > 0) {
		s.MovedPerDay = d.MovedPerDay
	}
	if !(s.SlackOfPrice > 0) {
		s.SlackOfPrice = d.SlackOfPrice
	}
	if s.Trials <= 0 {
		s.Trials = d.Trials
	}
	return s
}
