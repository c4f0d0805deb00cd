package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// fewest is the least number of earlier days that are alike from which pods are expected; for the model sameDay it is fewestSame.
	fewest     = 3
	fewestSame = 2
	// triedDays is the number of days on which models are compared. A model must have at most the part better of the loss of model none.
	triedDays = 7
	better    = 0.8
)

// A model says which earlier days are alike, so that arrivals of one are expected on another.
type model int

const (
	none      model = iota // no days: the time of day says nothing about the arrivals of the class
	everyDay               // all days
	kindOfDay              // weekdays, and weekends
	sameDay                // the same day of the week
)

// weekday returns the day of the week of a date. Sunday is 0; 1970-01-01 was a Thursday.
func weekday(date int) int { return (date + 4) % 7 }

// weekend reports whether a date is a Saturday or a Sunday.
func weekend(date int) bool { return weekday(date)%6 == 0 }

// alike reports whether two dates are alike by the model.
func (m model) alike(a, b int) bool {
	switch m {
	case everyDay:
		return true
	case kindOfDay:
		return weekend(a) == weekend(b)
	case sameDay:
		return weekday(a) == weekday(b)
	}
	return false
}

// days names the days that are like a date: "all", "weekday", "weekend", or the day of the week.
func (m model) days(date int) string {
	switch {
	case m == sameDay:
		return time.Weekday(weekday(date)).String()
	case m == kindOfDay && weekend(date):
		return "weekend"
	case m == kindOfDay:
		return "weekday"
	}
	return "all"
}

// A Basis says from which earlier days pods are expected.
type Basis struct {
	Came int    `json:"came"` // days on which pods came
	Of   int    `json:"of"`   // days that are alike
	Days string `json:"days"` // which ones: all, weekday, weekend, or the day of the week
}

// An Expected is how many pods of a class are expected in a slot.
type Expected struct {
	Class *Class
	Slot  time.Time // its begin
	At    time.Time // when the first pod comes
	Pods  int
	Came  int // so far
	Left  int // expected pods that may still come: without those that came, in this slot or a slot early
	Basis Basis
}

// Expect returns what is expected of each class in each slot from the slot of from until another time, by slot. It leaves out slots without
// expected pods and arrivals. from is the present when Left is used: Left is 0 for slots whose pods should have come by then.
func (h *History) Expect(from, until time.Time, quantile float64) (out []Expected) {
	first := from.Truncate(Slot)
	for _, c := range h.Classes {
		left := 0 // Left of the slot before
		date, slot := dateOf(first.Add(-Slot))
		before := c.Came[date].at(slot) // pods that came in the slot before
		for at := first; !at.After(until); at = at.Add(Slot) {
			date, slot := dateOf(at)
			if c.judged < date {
				c.model, c.judged = h.choose(c, date, quantile), date
			}
			if slot == 0 {
				before, left = 0, 0 // pods of the day before do not count
			}
			e := Expected{Class: c, Slot: at, At: at, Came: c.Came[date].at(slot)}
			past := h.past(c, c.model, date, slot, 1)
			e.Pods = past.quantilePods(quantile)
			if e.Pods > 0 {
				// Pods that come a little before or after the border of two slots are not expected twice.
				both := h.past(c, c.model, date, slot, 2).quantilePods(quantile)
				came := past.withPods()
				e.At = at.Add(time.Duration(came.quantile(1-quantile, func(s sample) int { return s.first })) * time.Minute)
				end := at.Add(time.Duration(came.quantile(quantile, func(s sample) int { return s.last })+1) * time.Minute)
				if e.Left = max(0, min(e.Pods-e.Came, both-before-left-e.Came)); !from.Before(end) {
					e.Left = 0
				}
				e.Basis = Basis{len(came), len(past), c.model.days(date)}
			}
			if e.Pods > 0 || e.Came > 0 {
				out = append(out, e)
			}
			before, left = e.Came, e.Left
		}
	}
	slices.SortStableFunc(out, func(a, b Expected) int { return a.Slot.Compare(b.Slot) })
	return out
}

// A sample is how many pods came on an earlier day, and the weight of that day.
type sample struct {
	pods, first, last int // the minutes in which the first and the last came
	weight            float64
}

type samples []sample

// past returns what came in a slot on earlier days that are like a date; with a width of 2 the pods of the slot before are added. It
// returns nil if there were too few such days.
func (h *History) past(c *Class, m model, date, slot, width int) (out samples) {
	for _, d := range h.Days {
		if d.Date >= date || !m.alike(d.Date, date) || !d.seen(slot) {
			continue
		}
		came := c.Came[d.Date].of(slot)
		one := sample{int(came.pods), int(came.first), int(came.last), decayed(date - d.Date)}
		if width > 1 && slot > 0 {
			one.pods += c.Came[d.Date].at(slot - 1)
		}
		out = append(out, one)
	}
	if len(out) < fewestSame || len(out) < fewest && m != sameDay {
		return nil
	}
	return out
}

// withPods returns the days on which pods came.
func (s samples) withPods() (out samples) {
	for _, x := range s {
		if x.pods > 0 {
			out = append(out, x)
		}
	}
	return out
}

// quantile returns the lowest value that is not exceeded on the part q of the days, by weight. of returns the value of a day.
func (s samples) quantile(q float64, of func(sample) int) int {
	all := slices.Clone(s)
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(of(a), of(b)) })
	total, sum := 0.0, 0.0
	for _, x := range all {
		total += x.weight
	}
	for _, x := range all {
		if sum += x.weight; sum >= q*total-1e-9 {
			return of(x)
		}
	}
	return 0
}

// quantilePods returns the quantile of the number of pods.
func (s samples) quantilePods(q float64) int {
	return s.quantile(q, func(x sample) int { return x.pods })
}

// choose returns the model that would have had the least loss on the last days. It returns none if no model was clearly better than
// expecting the same number of pods in all slots: then pods come by chance, and the times at which they came say nothing.
func (h *History) choose(c *Class, date int, q float64) model {
	var days []*Day
	for _, d := range h.Days {
		if d.Date < date {
			days = append(days, d)
		}
	}
	flat := flatQuantile(c, days, q)
	days = days[min(len(days), max(fewest, len(days)-triedDays)):]
	busy := map[int]bool{} // slots in which pods came on some day; in the others every model expects 0, which is right
	for _, came := range c.Came {
		for _, n := range came {
			busy[int(n.slot)] = true
		}
	}
	losses := [sameDay + 1]float64{}
	for _, d := range days {
		for slot := range slots {
			if !d.seen(slot) {
				continue
			}
			came := c.Came[d.Date].at(slot)
			losses[none] += loss(flat, came, q)
			for m := everyDay; m <= sameDay && busy[slot]; m++ {
				losses[m] += loss(h.past(c, m, d.Date, slot, 1).quantilePods(q), came, q)
			}
		}
	}
	best := none
	for m := everyDay; m <= sameDay; m++ {
		if losses[m] < better*losses[none] && (best == none || losses[m] < losses[best]) {
			best = m
		}
	}
	return best
}

// flatQuantile returns the quantile of the pods of all slots of some days.
func flatQuantile(c *Class, days []*Day, q float64) int {
	var all samples
	for _, d := range days {
		for slot := range slots {
			if d.seen(slot) {
				all = append(all, sample{pods: c.Came[d.Date].at(slot), weight: 1})
			}
		}
	}
	return all.quantilePods(q)
}

// loss returns the loss of an expectation (the pinball loss): on average, the quantile q has the least.
func loss(expected, came int, q float64) float64 {
	if came > expected {
		return q * float64(came-expected)
	}
	return (1 - q) * math.Abs(float64(expected-came))
}
