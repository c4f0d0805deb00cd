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

// Kind stands before the names of room that is learned, where room that is announced has the kind of the object.
const Kind = "Forecast"

// A Room is pods for which room is to be kept.
type Room struct {
	Object   Object // that expects them
	Workload Workload
	Slot, At time.Time // when they come
	Pods     int
	Template *corev1.PodTemplateSpec
	Basis    Basis
}

// Name tells the rooms of a namespace apart. A slot has the same name in each hour, so that there are few.
func (r *Room) Name() string { return r.Workload.Name + r.Slot.Format(" :04") }

// A Report is what one NodePool or CapacityBuffer expects, and how wrong it was.
type Report struct {
	Object Object    `json:"object"`
	Days   int       `json:"days"`  // that are remembered
	Bytes  int       `json:"bytes"` // of all histories, as they are kept
	Off    time.Time `json:"offUntil,omitzero"`
	Today  Spending  `json:"todayDollars"`
	Spent  bool      `json:"spent"` // room has cost today what it may cost in a day: nothing is kept until midnight
	Score  Score     `json:"lastDays"`
	Unused float64   `json:"unusedDollars"` // room of the last days that was kept and not used
	Saved  float64   `json:"savedDollars"`  // room for the time that pods did not wait
	Hours  []Hour    `json:"hours"`
}

// An Hour is what is expected of one class in an hour, and what came.
type Hour struct {
	At       time.Time `json:"at"`
	Pods     string    `json:"pods"` // of which workload, or which alike
	Expected int       `json:"expected"`
	Came     int       `json:"came"`
	Over     bool      `json:"over"`                  // the hour has passed
	From     *Basis    `json:"learnedFrom,omitempty"` // of the slot that expects the most pods

	most int // pods that one slot expects
}

// Report returns, by hour and workload, what is expected from back before now until ahead of it, and what came.
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

// A Score is how many pods were expected and came, and of how many that was wrong; of the last days mostly.
type Score struct {
	Expected float64 `json:"expected"`
	Came     float64 `json:"came"`
	Wrong    float64 `json:"wrong"`
}

// Add counts a slot that has ended, from the Expected of which it returns the pods.
func (s *Score) Add(slot []Expected) (expected, came int) {
	for _, e := range slot {
		expected, came = expected+e.Pods, came+e.Came
		s.Wrong += max(float64(e.Pods-e.Came), float64(e.Came-e.Pods))
	}
	s.Expected, s.Came = s.Expected+float64(expected), s.Came+float64(came)
	return expected, came
}

// fade lets what was counted count less.
func (s *Score) fade(part float64) { *s = Score{s.Expected * part, s.Came * part, s.Wrong * part} }
