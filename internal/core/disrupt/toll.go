package disrupt

// A toll is what a step must save in an hour for each pod that it moves, in dollars:
//
//	toll = Toll · perPod · max(nearness · restlessness, min(halfEmpty, steady · HoursPerMove))
//
//	nearness     = min(1, max(0, 2 − distance / SlackOfPrice))
//	restlessness = max(min(1, arrivals / ArrivalsPerHour), (moved / MovedPerDay)²)
//
// Near its target, in a cluster whose pods come and go, that is what an average pod costs (Toll is 1). In a calm
// cluster what a move saves lasts, and the toll is smaller. Pods that were moved should not be moved again: the
// part that was moved within a day is hardly felt at half of MovedPerDay, and ends nearly every move at twice that.
// A fleet that is more than SlackOfPrice dearer than its target pays less, and none at twice that.
//
// But a saving is over when so many pods have come that the fleet looks different anyway, and where they come all
// the time it is known when that will be: as many as there are come in an hour divided by steady. By then a move
// must have brought in what an average pod costs in HoursPerMove, however far the target is. Such a fleet never
// arrives there, and would move the same pods again and again on the way.
//
// A fleet that was once that far off is recovering until it is as near as returned says: it is judged by that smaller slack, and what was
// moved on the way does not speak against the rest of the way.
type toll struct {
	settings   Settings
	perPod     float64 // what an average pod costs, in dollars an hour
	rates      rates
	recovering bool
}

// returned is the part of SlackOfPrice within which a fleet has recovered: the work is half done then, and ends
// closer to the target than what pods that come and go are allowed to do to a fleet.
const returned = 2.0 / 3

// halfEmpty is what pods save, in what they cost, that leave a node half empty which nothing replaces. So much pays
// however many pods come.
const halfEmpty = 2

// look notes how far the fleet is from its target before anything is done, as a part of its price.
//
// Without that memory a fleet that has grown too large would be brought back to just within the distance at which moves cost their full
// price, and stay there, always as far from its target as is tolerated. Hysteresis lets it come most of the way once it has begun.
func (t *toll) look(distance float64) {
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

// Of the two parts the larger counts, and they are not added: pods that come by themselves make a saving short, pods that were moved make
// the next move unkind, and a cluster that is restless gains nothing by having been left alone.
func (t *toll) restlessness() float64 {
	often := t.rates.moved / t.settings.MovedPerDay
	return max(min(1, t.rates.arrivals/t.settings.ArrivalsPerHour), often*often)
}
