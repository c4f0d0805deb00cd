package page

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/journal"
)

// A moment describes the fleet at one time, and what happened since the moment before.
type moment struct {
	At      time.Time `json:"at"`
	PerHour float64   `json:"perHour"`
	Spot    float64   `json:"spot,omitempty"`   // the part of PerHour that is spot
	Target  float64   `json:"target,omitempty"` // what would be left if everything that may move moved; 0 if not known
	Least   float64   `json:"least,omitempty"`  // the proven least; 0 if not known
	Nodes   int       `json:"nodes,omitempty"`
	Pods    int       `json:"pods,omitempty"`
	Waiting int       `json:"waiting,omitempty"` // pods without a node
	Wait    int       `json:"wait,omitempty"`    // seconds that the oldest of them has waited

	Launched    int `json:"launched,omitempty"`    // machines
	Steps       int `json:"steps,omitempty"`       // disruption steps that began
	Interrupted int `json:"interrupted,omitempty"` // machines that the cloud took back, or announced to
	Failed      int `json:"failed,omitempty"`      // launches that the cloud refused
	Paused      int `json:"paused,omitempty"`      // NodePools whose voluntary disruption is paused
}

// A series holds moments, the oldest first. It keeps all moments of the last hour, one in five minutes of the last
// day, and one in half an hour of the last week.
type series []moment

const (
	costEvery = 15 * time.Second
	hour      = time.Hour
	coarse    = 5 * time.Minute
	day       = 24 * time.Hour
	coarser   = 30 * time.Minute
	week      = 7 * day
)

// next returns when the next moment is due; the zero time if there is none yet.
func (s series) next() time.Time {
	if len(s) == 0 {
		return time.Time{}
	}
	return s[len(s)-1].At.Add(costEvery)
}

// add returns the series with another moment, and leaves out old ones as series says. The events of a moment that is
// left out are added to the next moment that stays.
func (s series) add(p moment) series {
	out := make(series, 0, len(s)+1)
	var left moment
	for i, old := range s {
		gap := time.Duration(0)
		switch age := p.At.Sub(old.At); {
		case age >= week:
			continue
		case age >= day:
			gap = coarser
		case age >= hour:
			gap = coarse
		}
		old.addEvents(left)
		if gap > 0 && len(out) > 0 && i+1 < len(s) && s[i+1].At.Sub(out[len(out)-1].At) <= gap {
			left = old
			continue
		}
		left, out = moment{}, append(out, old)
	}
	p.addEvents(left)
	return append(out, p)
}

// addEvents adds the events of another moment. Of paused pools it keeps the larger number.
func (p *moment) addEvents(o moment) {
	p.Launched += o.Launched
	p.Steps += o.Steps
	p.Interrupted += o.Interrupted
	p.Failed += o.Failed
	p.Paused = max(p.Paused, o.Paused)
}

// withOlder returns the moments of older that are before those of s, followed by s.
func (s series) withOlder(older series) series {
	if len(s) > 0 {
		if i := slices.IndexFunc(older, func(p moment) bool { return !p.At.Before(s[0].At) }); i >= 0 {
			older = older[:i]
		}
	}
	return append(slices.Clone(older), s...)
}

// leastLeast stands for a proven least of nothing, since 0 means that none is known.
const leastLeast = 0.0001

// momentOf returns the moment of an input. fresh are the journal's records since the last moment.
func momentOf(in input, fresh []journal.Record) moment {
	p := moment{At: in.Now, Nodes: len(in.Rows), Pods: in.Snap.PodCount()}
	for _, r := range in.Rows {
		p.PerHour += r.Machine.Price.Dollars()
		if r.Machine.CapacityType == v1.CapacityTypeSpot {
			p.Spot += r.Machine.Price.Dollars()
		}
	}
	p.PerHour, p.Spot = round(p.PerHour), round(p.Spot)
	if d := in.Verdict.Disruption; d.Before > 0 { // Before and Target are of what may move only; what they save comes off the whole cost
		p.Target = round(max(0, p.PerHour-(d.Before-d.Target).Dollars()))
	}
	if more, known := gap(in.Verdict.Savings, in.Now); known && p.PerHour > 0 {
		p.Least = max(leastLeast, round(p.PerHour-more))
	}
	for _, pod := range in.Snap.Provisionable() {
		p.Waiting++
		p.Wait = max(p.Wait, int(in.Now.Sub(pod.Created).Seconds()))
	}
	for pool := range cluster.Pools.All(in.Snap) {
		if _, halted := paused.Of(in.Snap, pool.Name, in.Now); halted {
			p.Paused++
		}
	}
	interrupted := map[string]bool{} // machines; each of their pods that is evicted has a record
	for i := range fresh {
		switch r := &fresh[i]; r.Act {
		case journal.Launched:
			p.Launched++
		case journal.Stepped:
			p.Steps++
		case journal.FellBack:
			p.Failed++
		case journal.Evicted:
			if r.Reason == journal.Interrupted {
				for _, o := range r.About {
					if o.Kind == "Node" {
						interrupted[o.Name] = true
					}
				}
			}
		}
	}
	p.Interrupted = len(interrupted)
	return p
}

// clearGuessedPrices sets the prices of spot machines to 0 (unknown) while spot prices are not known yet, because they would look like a
// peak of the cost, and reports whether it did. They are not known if all spot machines have exactly the on-demand price, which providers
// use meanwhile.
func clearGuessedPrices(rows []view.Row, pools map[string]engine.Pool) bool {
	spot := 0
	for i := range rows {
		m := &rows[i].Machine
		if m.CapacityType != v1.CapacityTypeSpot || m.Price == 0 {
			continue
		}
		labels := map[string]string{corev1.LabelInstanceTypeStable: m.Type, corev1.LabelTopologyZone: m.Zone,
			v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}
		if onDemand, known := pools[m.Pool].Catalog.Price(labels); !known || onDemand != m.Price {
			return false
		}
		spot++
	}
	for i := range rows {
		if m := &rows[i].Machine; spot > 0 && m.CapacityType == v1.CapacityTypeSpot {
			m.Price = 0
		}
	}
	return spot > 0
}
