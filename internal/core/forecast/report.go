package forecast

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An Object is a NodePool or a CapacityBuffer that learns.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String names an object as people do.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Kind is the kind in names of room that was learned. Announced room has the kind of the object that announces it instead.
const Kind = "Forecast"

// A Room is some expected pods for which room is to be kept.
type Room struct {
	Object   Object // that expects them
	Workload Workload
	Slot, At time.Time // the beginning of their slot, and when in it the first one comes
	Pods     int
	Template *corev1.PodTemplateSpec
	Basis    Basis
}

// Name returns a name that is unique among the rooms of a namespace at one time. It has the minute of the slot, not the hour, so that there
// are few names.
func (r *Room) Name() string { return r.Workload.Name + r.Slot.Format(" :04") }

// A Report is what one NodePool or CapacityBuffer expects, and how wrong it was.
type Report struct {
	Object Object    `json:"object"`
	Days   int       `json:"days"`  // in the history
	Bytes  int       `json:"bytes"` // of all histories, as they are stored
	Off    time.Time `json:"offUntil,omitzero"`
	Today  Spending  `json:"todayDollars"`
	Spent  bool      `json:"spent"` // room has cost today what it may cost in a day: nothing is kept until midnight
	Score  Score     `json:"lastDays"`
	Unused float64   `json:"unusedDollars"` // as in Balance
	Saved  float64   `json:"savedDollars"`  // as in Balance
	Hours  []Hour    `json:"hours"`
}

// An Hour is how many pods of one class are expected in an hour, and how many came.
type Hour struct {
	At       time.Time `json:"at"`
	Pods     string    `json:"pods"` // the name of their workload
	Expected int       `json:"expected"`
	Came     int       `json:"came"`
	Over     bool      `json:"over"`                  // the hour has passed
	From     *Basis    `json:"learnedFrom,omitempty"` // of the slot that expects the most pods

	most int // pods that one slot expects
}

// Report returns what is expected and what came, by hour and workload, from back before now until ahead after now. Bytes stays 0.
func (h *History) Report(of Object, now time.Time, back, ahead time.Duration, quantile float64) Report {
	b := h.Balance
	r := Report{Object: of, Days: len(h.Days), Off: b.Off, Today: b.Today, Spent: b.Spent(), Score: h.Score, Unused: b.Unused,
		Saved: b.Saved, Hours: []Hour{}}
	for _, e := range h.Expect(now.Add(-back).Truncate(time.Hour), now.Add(ahead), quantile) {
		at, pods := e.Slot.Truncate(time.Hour), e.Class.Workload.String()
		i := slices.IndexFunc(r.Hours, func(x Hour) bool { return x.At.Equal(at) && x.Pods == pods })
		if i < 0 {
			i = len(r.Hours)
			r.Hours = append(r.Hours, Hour{At: at, Pods: pods, Over: !now.Before(at.Add(time.Hour))})
		}
		x := &r.Hours[i]
		x.Expected, x.Came = x.Expected+e.Pods, x.Came+e.Came
		if e.Pods > x.most {
			x.most, x.From = e.Pods, &e.Basis
		}
	}
	slices.SortStableFunc(r.Hours, func(a, b Hour) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Pods, b.Pods)) })
	return r
}

// A Score is how many pods were expected, how many came, and by how many pods the expectations of slots were wrong. Older days count less.
type Score struct {
	Expected float64 `json:"expected"`
	Came     float64 `json:"came"`
	Wrong    float64 `json:"wrong"`
}

// Add counts a slot that has ended, and returns how many pods of all classes were expected in it and came.
func (s *Score) Add(slot []Expected) (expected, came int) {
	for _, e := range slot {
		expected, came = expected+e.Pods, came+e.Came
		s.Wrong += max(float64(e.Pods-e.Came), float64(e.Came-e.Pods))
	}
	s.Expected, s.Came = s.Expected+float64(expected), s.Came+float64(came)
	return expected, came
}

// fade multiplies all counts by part.
func (s *Score) fade(part float64) { *s = Score{s.Expected * part, s.Came * part, s.Wrong * part} }
