package disrupt

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A World is everything that a decision about disruption rests on.
type World struct {
	Snap *cluster.Snapshot
	// Pools are the pools that this provider serves and whose instance types are known, by name. A pool that
	// is not Ready stands here too, because its nodes may still be removed; NotReady names it, so that nothing is opened for it.
	Pools    map[string]engine.Pool
	NotReady map[string]bool
	// Busy holds the claims that take part in a step that is being carried out.
	Busy map[types.UID]bool
	// Promised counts, by pool, the nodes of steps that wait for their confirmation: budgets keep room for them.
	Promised map[string]int
	// Vacant says since when nodes have been empty and promised to no pod, by claim; one that it does not name always was, if it is now.
	Vacant map[types.UID]time.Time
	// Landing names the nodes that pods of other steps are on their way to: nothing else is planned onto them or removes them.
	Landing  map[string]bool
	Settings Settings
	Engine   engine.Settings
	Now      time.Time

	promises map[string]time.Time // of Snap, once somebody has asked
}

// Settings are the tunables of disruption. The zero value is replaced by the defaults of DefaultSettings.
type Settings struct {
	SpotToSpot bool // feature gate SpotToSpotConsolidation
	// MinSaving is the part of the price of the removed nodes that a step must gain, before any pod is moved for it.
	MinSaving float64
	// Toll is what a step must save in an hour for each pod that it moves, in units of what an average pod costs. It is smaller in
	// proportion where less than the part Unrest of the pods comes by itself in an hour. Where more than the part Moves of the pods was moved
	// within a day, it is larger by the square of how much more. Where the fleet is more than Slack dearer than its target, as a part of its
	// price, it falls and is nothing at twice that. A fleet that was so far off is brought back to two thirds of Slack.
	Toll, Unrest, Moves, Slack float64
	// Trials is how many what-if questions one consolidation pass asks; what it did not reach is first next time.
	Trials int
}

// DefaultSettings are the values that are used unless somebody chose others.
var DefaultSettings = Settings{MinSaving: 0.03, Toll: 1, Unrest: 0.02, Moves: 0.3, Slack: 0.06, Trials: 96}

// planEngine is the part of engine.Engine that disruption asks what-if questions.
type planEngine interface {
	Plan(in engine.Question) *engine.Plan
}

// capacityTypes lists the capacity types in the order in which a launch prefers them.
var capacityTypes = []string{v1.CapacityTypeReserved, v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}

// priceOf returns what a running node costs: the offering of its type in its zone and of its capacity type, available
// or not. It returns false when the type or the offering is not known any more.
func priceOf(catalog *cloud.Catalog, n *cluster.Node) (cloud.NanoUSD, bool) {
	labels := n.Labels()
	it := typeNamed(catalog, labels[corev1.LabelInstanceTypeStable])
	if it == nil {
		return 0, false
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if o.Zone() == labels[corev1.LabelTopologyZone] && o.CapacityType() == labels[v1.CapacityTypeLabelKey] {
			return o.Price, true
		}
	}
	return 0, false
}
