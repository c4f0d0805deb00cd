package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// fewest is how many earlier days of a kind there must be before anything is expected, fewestSame how many of the same day of the week.
	fewest     = 3
	fewestSame = 2
	// triedDays is on how many days the models are compared, and better which part of the loss of a guess without times a model may have.
	triedDays = 7
	better    = 0.8
)

// A model says which earlier days are like a day.
type model int

const (
	none     model = iota // times of the day say nothing about the class
	everyDay              // all are
	kindOfDay
	sameDay // of the week
)

func weekday(date int) int { return (date + 4) % 7 } // 1970-01-01 was a Thursday, and Sunday is 0

func weekend(date int) bool { return weekday(date)%6 == 0 }

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

// A Basis is what an expectation rests on: the earlier days that are like the day, and on how many of them pods came.
type Basis struct {
	Came int    `json:"came"`
	Of   int    `json:"of"`
	Days string `json:"days"` // all, weekday, weekend, or the day of the week
}

// An Expected is how many pods of a class are expected in a slot.
type Expected struct {
	Class *Class
	Slot  time.Time // its begin
	At    time.Time // when the first pod comes
	Pods  int
	Came  int // so far
	Left  int // of those that are expected and may still come, without those that came a slot early
	Basis Basis
}

// Expect returns what is expected of each class in the slots from that of a time on, until another time. Left is what did not come until
// from.
func (h *History) Expect(from, until time.Time, quantile float64) (out []Expected) {
	first := from.Truncate(Slot)
	for _, c := range h.Classes {
		left := 0 // of the slot before
		date, slot := dateOf(first.Add(-Slot))
		before := c.Came[date].at(slot) // that came then
		for at := first; !at.After(until); at = at.Add(Slot) {
			date, slot := dateOf(at)
			if c.judged < date {
				c.model, c.judged = h.choose(c, date, quantile), date
			}
			if slot == 0 {
				before, left = 0, 0 // a day is looked at for itself
			}
			e := Expected{Class: c, Slot: at, At: at, Came: c.Came[date].at(slot)}
			past := h.past(c, c.model, date, slot, 1)
			e.Pods = past.quantilePods(quantile)
			if e.Pods > 0 {
				// Pods that come a little before or after the border of two slots are not expected twice.
				both := h.past(c, c.model, date, slot, 2).quantilePods(quantile)
				came := past.that()
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

// A sample is how many pods came on an earlier day, and how much that counts.
type sample struct {
	pods, first, last int // the minutes in which the first and the last came
	weight            float64
}

type samples []sample

// past returns what came on earlier days that are like a date, in a slot or, with a width of two, also in the slot before; nothing if there
// were too few days.
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

// that are the days on which any pods came.
func (s samples) that() (out samples) {
	for _, x := range s {
		if x.pods > 0 {
			out = append(out, x)
		}
	}
	return out
}

// quantile is the value that is not exceeded on such a part of the days.
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

// quantilePods is the quantile of the number of pods.
func (s samples) quantilePods(q float64) int {
	return s.quantile(q, func(x sample) int { return x.pods })
}

// choose returns the model that would have erred least on the last days, none if no model was clearly better than the same number of pods
// at all times: pods that come by chance are not expected at the times at which they came by chance.
func (h *History) choose(c *Class, date int, q float64) model {
	var days []*Day
	for _, d := range h.Days {
		if d.Date < date {
			days = append(days, d)
		}
	}
	flat := flatQuantile(c, days, q)
	days = days[min(len(days), max(fewest, len(days)-triedDays)):]
	busy := map[int]bool{} // in all others every model is right
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

// flatQuantile is the quantile of all slots of some days.
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

// loss is what an expectation costs that is wrong: the quantile has the least loss on average.
func loss(expected, came int, q float64) float64 {
	if came > expected {
		return q * float64(came-expected)
	}
	return (1 - q) * math.Abs(float64(expected-came))
}
