package forecast

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Slot is the length of time by which arrivals are counted.
	Slot = 5 * time.Minute
	// slots is the number of slots of a day.
	slots = int(24 * time.Hour / Slot)
	// mostDays is the most days of a History: four weeks, and today.
	mostDays = 29
	// mostClasses is the most classes of a History. It keeps those with the most pods.
	mostClasses = 32
	// mostSlots is the most slots of one class on a day. It keeps those with the most pods.
	mostSlots = 96
	// mostTemplate is the most bytes of the template of a class as JSON. Larger ones are not learned.
	mostTemplate = 4 << 10
	// halfLife is the number of days after which a day counts half.
	halfLife = 10.0
)

// A History has the arrivals of one NodePool or CapacityBuffer, by class, day and slot. It has only days on which the controller looked.
type History struct {
	Days    []*Day   `json:"days,omitempty"` // the oldest first
	Classes []*Class `json:"classes,omitempty"`
	Balance Balance  `json:"balance"`
	Score   Score    `json:"score"`
}

// A Day has the slots in which the controller looked.
type Day struct {
	Date int    `json:"date"` // days since 1970-01-01
	Seen []byte `json:"seen"` // a bit for each slot
}

// A Class is the arrivals of one workload.
type Class struct {
	Workload Workload                `json:"workload"`
	Template *corev1.PodTemplateSpec `json:"template"` // the newest, as far as it decides where such pods can run
	Came     map[int]counts          `json:"came"`     // by date

	model  model // the model of expectations for the date judged
	judged int   // the date for which the model was chosen
}

// A counts has the slots of a day in which pods came, in order.
type counts []count

// A count is how many pods came in a slot, and the minutes of the slot, from 0 to 4, in which the first and the last one came.
type count struct {
	slot, pods  uint16
	first, last uint8
}

// dateOf returns the date (days since 1970-01-01) and the slot of a time, in its time zone.
func dateOf(at time.Time) (date, slot int) {
	y, m, d := at.Date()
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400), (at.Hour()*60 + at.Minute()) / int(Slot.Minutes())
}

// seen reports whether the controller looked in a slot of the day.
func (d *Day) seen(slot int) bool { return d.Seen[slot/8]&(1<<(slot%8)) != 0 }

// at returns how many pods came in a slot.
func (c counts) at(slot int) int { return int(c.of(slot).pods) }

// of returns the count of a slot, the zero count if no pods came.
func (c counts) of(slot int) count {
	if i, ok := c.find(slot); ok {
		return c[i]
	}
	return count{}
}

// find returns the index of a slot, or where it would be, and whether it is there.
func (c counts) find(slot int) (int, bool) {
	return slices.BinarySearchFunc(c, slot, func(a count, slot int) int { return int(a.slot) - slot })
}

// See notes that the controller looks now. It reports whether this begins a new day. At a new day it forgets days that are too old, and
// lets the score fade.
func (h *History) See(now time.Time) (newDay bool) {
	date, slot := dateOf(now)
	if len(h.Days) == 0 || h.Days[len(h.Days)-1].Date < date {
		h.Days = append(h.Days, &Day{Date: date, Seen: make([]byte, (slots+7)/8)})
		h.Days = slices.DeleteFunc(h.Days, func(d *Day) bool { return d.Date <= date-mostDays })
		h.forget()
		h.Score.fade(math.Exp2(-1 / balanceHalfLife))
		newDay = true
	}
	today := h.Days[len(h.Days)-1]
	today.Seen[slot/8] |= 1 << (slot % 8)
	return newDay
}

// forget drops arrivals before the oldest day, and classes without arrivals.
func (h *History) forget() {
	oldest := h.Days[0].Date
	for _, c := range h.Classes {
		for date := range c.Came {
			if date < oldest {
				delete(c.Came, date)
			}
		}
	}
	h.Classes = slices.DeleteFunc(h.Classes, func(c *Class) bool { return len(c.Came) == 0 })
}

// Add counts pods of a workload that came at a time. The template replaces earlier ones of the workload. Nothing is counted if the template
// is too large, or the history is full of classes with more pods.
func (h *History) Add(at time.Time, w Workload, template *corev1.PodTemplateSpec, pods int) {
	date, slot := dateOf(at)
	if text, err := json.Marshal(template); err != nil || len(text) > mostTemplate {
		return
	}
	c := h.class(w)
	if c == nil {
		if c = h.admit(w, date, pods); c == nil {
			return
		}
	}
	c.Template = template
	c.add(date, slot, uint8(at.Minute()%int(Slot.Minutes())), pods)
}

// class returns the class of a workload, nil if there is none.
func (h *History) class(w Workload) *Class {
	for _, c := range h.Classes {
		if c.Workload == w {
			return c
		}
	}
	return nil
}

// admit makes a class for a workload. If the history is full, it replaces the class with the least weight, or returns nil if all weigh
// more than the new one.
func (h *History) admit(w Workload, date, pods int) *Class {
	c := &Class{Workload: w, Came: map[int]counts{}}
	if len(h.Classes) < mostClasses {
		h.Classes = append(h.Classes, c)
		return c
	}
	least := 0
	for i := range h.Classes {
		if h.Classes[i].weight(date) < h.Classes[least].weight(date) {
			least = i
		}
	}
	if h.Classes[least].weight(date) > float64(pods) {
		return nil
	}
	h.Classes[least] = c
	return c
}

// weight returns the number of pods that came; pods of older days count less.
func (c *Class) weight(date int) (sum float64) {
	for day, came := range c.Came {
		for _, n := range came {
			sum += float64(n.pods) * decayed(date-day)
		}
	}
	return sum
}

// decayed returns the weight of the day that was days ago: it is halved after each halfLife.
func decayed(days int) float64 { return math.Exp2(-float64(days) / halfLife) }

// add counts pods in a slot. If the day has more than mostSlots slots then, it drops the slot with the fewest pods.
func (c *Class) add(date, slot int, minute uint8, pods int) {
	list := c.Came[date]
	i, ok := list.find(slot)
	if !ok {
		list = slices.Insert(list, i, count{slot: uint16(slot), first: minute, last: minute}) //nolint:gosec // a slot of the day
	}
	list[i].first, list[i].last = min(list[i].first, minute), max(list[i].last, minute)
	list[i].pods = uint16(min(int(list[i].pods)+pods, math.MaxUint16)) //nolint:gosec // it is within the type
	if len(list) > mostSlots {
		least := 0
		for i := range list {
			if list[i].pods < list[least].pods {
				least = i
			}
		}
		list = slices.Delete(list, least, least+1)
	}
	c.Came[date] = list
}

// MarshalJSON writes two numbers for each slot, as base64 of binary uvarints: gap<<6 | first<<3 | last, where gap is the number of slots
// since the slot before, and the pods.
func (c counts) MarshalJSON() ([]byte, error) {
	var out []byte
	last := uint16(0)
	for _, n := range c {
		out = binary.AppendUvarint(out, uint64(n.slot-last)<<6|uint64(n.first)<<3|uint64(n.last))
		out = binary.AppendUvarint(out, uint64(n.pods))
		last = n.slot
	}
	return json.Marshal(base64.RawStdEncoding.EncodeToString(out))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *counts) UnmarshalJSON(text []byte) error {
	var packed string
	if err := json.Unmarshal(text, &packed); err != nil {
		return err
	}
	in, err := base64.RawStdEncoding.DecodeString(packed)
	if err != nil {
		return err
	}
	slot := uint64(0)
	for *c = nil; len(in) > 0; {
		later, n := binary.Uvarint(in)
		pods, m := binary.Uvarint(in[max(n, 0):])
		slot += later >> 6
		if n <= 0 || m <= 0 || later>>6 > uint64(slots) || slot >= uint64(slots) || pods > math.MaxUint16 {
			return errors.New("counts of pods are malformed")
		}
		in = in[n+m:]
		*c = append(*c, count{uint16(slot), uint16(pods), uint8(later >> 3 & 7), uint8(later & 7)})
	}
	return nil
}

// Shorten forgets the oldest day. The caller repeats it until all histories together are small enough to be stored.
func (h *History) Shorten() {
	if len(h.Days) > 0 {
		h.Days = h.Days[1:]
	}
	if len(h.Days) == 0 {
		h.Classes = nil
		return
	}
	h.forget()
}

// Valid reports whether a History that was read can be used.
func (h *History) Valid() bool {
	return h != nil && !slices.ContainsFunc(h.Days, func(d *Day) bool { return d == nil || len(d.Seen) != (slots+7)/8 }) &&
		!slices.ContainsFunc(h.Classes, func(c *Class) bool { return c == nil || c.Template == nil || c.Came == nil })
}
