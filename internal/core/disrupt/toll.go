package disrupt

// A toll is what a step must save in an hour for each pod that it moves, in dollars:
//
//	toll = Toll · perPod · max(nearness · restlessness, min(halfEmpty, steady · HoursPerMove))
//
//	nearness     = min(1, max(0, 2 − distance / SlackOfPrice))
//	restlessness = max(min(1, arrivals / ArrivalsPerHour), (moved / MovedPerDay)²)
//
// Near its target, in a cluster whose pods come and go, the toll is what an average pod costs (Toll is 1). In a calm cluster the saving
// of a move lasts, and the toll is smaller. Pods that were moved should not be moved again: the part of the pods that was moved within
// a day adds little at half of MovedPerDay, and stops nearly every move at twice MovedPerDay. A fleet that is more than SlackOfPrice
// dearer than its target pays a smaller toll, and none at twice SlackOfPrice.
//
// Under steady arrivals a saving lasts only until all pods have turned over once, which takes 1/steady hours. In that time a move must
// save what an average pod costs in HoursPerMove, however far the target is. Such a fleet never reaches its target, and would move the
// same pods again and again.
//
// A fleet that is more than twice SlackOfPrice dearer than its target is recovering until it is nearer than returned says. Until then the
// smaller slack counts, and pods that were moved on the way hardly raise the toll.
type toll struct {
	settings   Settings
	perPod     float64 // what an average pod costs, in dollars an hour
	rates      rates
	recovering bool
}

// returned is the part of SlackOfPrice below which a fleet has recovered. It is below 1, so that a recovered fleet is closer to its
// target than arrivals and departures of pods may bring it without a move.
const returned = 2.0 / 3

// halfEmpty is the most that steady arrivals ask of a pod, in units of what it costs. The pods of a half-empty node save as much if the
// node goes without a replacement, so such a move always pays.
const halfEmpty = 2

// updateRecovering sets recovering by the distance of the fleet from its target before the pass, as a part of its price.
//
// This is hysteresis. Without it a fleet that has grown too large would be brought back only to the distance at which moves cost the full
// toll, and would stay there.
func (t *toll) updateRecovering(distance float64) {
	t.recovering = distance > 2*t.settings.SlackOfPrice || t.recovering && distance > returned*t.settings.SlackOfPrice
}

// at returns the toll at a distance from the target, as a part of the fleet's price.
func (t *toll) at(distance float64) float64 {
	slack, restlessness := t.settings.SlackOfPrice, t.restlessness()
	if t.recovering {
		slack, restlessness = returned*slack, min(1, restlessness)
	}
	nearness := min(1, max(0, 2-distance/slack))
	return t.settings.Toll * t.perPod * max(nearness*restlessness, min(halfEmpty, t.rates.steady*t.settings.HoursPerMove))
}

// restlessness returns the factor of the toll by which pods that arrive or were moved speak against a move. The larger of the two counts;
// they are not added. The part for moved pods is squared, so that few moves hardly count.
func (t *toll) restlessness() float64 {
	often := t.rates.moved / t.settings.MovedPerDay
	return max(min(1, t.rates.arrivals/t.settings.ArrivalsPerHour), often*often)
}
