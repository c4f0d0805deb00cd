package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Act is what a loop did. Its text is stable.
type Act string

// The acts.
const (
	Planned  Act = "planned"  // a plan for waiting pods was worked out
	Opened   Act = "opened"   // a NodeClaim was created for some pods, or in place of others
	Refused  Act = "refused"  // pods have no place, and why
	Placed   Act = "placed"   // pods were given room that is there, or on its way
	Stepped  Act = "stepped"  // a disruption step was begun: which nodes go, which come, what that saves
	HeldBack Act = "heldBack" // a change was not begun, or was taken back
	Evicted  Act = "evicted"  // the API server accepted evictions
	Launched Act = "launched" // the cloud gave a machine
	FellBack Act = "fellBack" // a launch failed: the cloud had no such machine, or refused
	Repaired Act = "repaired" // the claim of a broken machine was deleted
)

// Interrupted is the reason of evictions from a machine that the cloud takes back.
const Interrupted = "Interrupted"

// Acts lists them.
func Acts() []Act {
	return []Act{Planned, Opened, Refused, Placed, Stepped, HeldBack, Evicted, Launched, FellBack, Repaired}
}

// An Object is something that a record is about.
type Object struct {
	Kind      string `json:"kind"` // Pod, Node, NodeClaim or NodePool
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// An Option is something that was chosen, or could have been.
type Option struct {
	Pool         string  `json:"pool,omitempty"`
	Type         string  `json:"type,omitempty"`
	Zone         string  `json:"zone,omitempty"`
	CapacityType string  `json:"capacityType,omitempty"`
	Types        int     `json:"types,omitempty"` // how many instance types the claim may become
	PricePerHour float64 `json:"pricePerHour"`
	RuledOut     string  `json:"ruledOut,omitempty"` // the first rule that kept it from being chosen; "" for what was chosen
}

// A Record is one act.
type Record struct {
	Seq      uint64    `json:"seq"` // counts from 1 in each run of the controller
	At       time.Time `json:"at"`
	Act      Act       `json:"act"`
	Loop     string    `json:"loop"`
	Snapshot uint64    `json:"snapshot,omitempty"` // number of the picture that the act rests on
	Digest   string    `json:"digest,omitempty"`   // of that picture: equal where two saw the same
	About    []Object  `json:"about,omitempty"`
	More     int       `json:"more,omitempty"` // objects that are not listed
	Reason   string    `json:"reason,omitempty"`
	Text     string    `json:"text,omitempty"`

	Chosen []Option `json:"chosen,omitempty"`
	// Others are what came next, with what ruled each out. Only what the plan still knows is here: the types that a claim may become
	// besides the priced one. Types that cannot hold the pods are counted by "karpenter why", not here.
	Others []Option `json:"others,omitempty"`

	PricePerHour float64 `json:"pricePerHour,omitempty"`
	// what decisions reckon with: the price, and what a node and a short spot list are reckoned to cost
	CostPerHour   float64 `json:"costPerHour,omitempty"`
	BoundPerHour  float64 `json:"boundPerHour,omitempty"` // no fleet for the same pods has a lower cost; 0 if that was not computed
	SavingPerHour float64 `json:"savingPerHour,omitempty"`
	Evictions     int     `json:"evictions,omitempty"` // pods that have to move because of it
}

// Limits of one record, so that a batch of thousands of pods is no burden.
const (
	mostObjects = 100
	mostOptions = 8
	mostText    = 1000
)

// cut shortens a record to its limits.
func (r *Record) cut() {
	r.More += max(0, len(r.About)-mostObjects)
	r.About, r.Chosen, r.Others = fitted(r.About, mostObjects), fitted(r.Chosen, mostOptions), fitted(r.Others, mostOptions)
	if len(r.Text) > mostText {
		r.Text = strings.ToValidUTF8(r.Text[:mostText], "") + " …"
	}
}

// fitted returns a list with at most most entries and no spare capacity, so that size is right about the memory it
// takes.
func fitted[T any](list []T, most int) []T {
	if list = list[:min(len(list), most)]; len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// Rough sizes in memory of a record, an object and an option, without their texts.
const (
	recordBytes = 320
	objectBytes = 48
	optionBytes = 88
)

// size returns about how many bytes of memory a record takes.
func (r *Record) size() int {
	n := recordBytes + len(r.Digest) + len(r.Reason) + len(r.Text) + len(r.Loop)
	for i := range r.About {
		n += objectBytes + len(r.About[i].Namespace) + len(r.About[i].Name)
	}
	for _, options := range [][]Option{r.Chosen, r.Others} {
		for i := range options {
			o := &options[i]
			n += optionBytes + len(o.Pool) + len(o.Type) + len(o.Zone) + len(o.CapacityType) + len(o.RuledOut)
		}
	}
	return n
}

// Subject names the first two objects of a record and counts the others, "-" where there is none.
func (r *Record) Subject() string {
	const few = 2
	var names []string
	for _, o := range r.About[:min(few, len(r.About))] {
		name := o.Name
		if o.Namespace != "" {
			name = o.Namespace + "/" + name
		}
		names = append(names, strings.ToLower(o.Kind)+"/"+name)
	}
	text := strings.Join(names, ", ")
	if more := len(r.About) + r.More - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "-")
}

// Money says how a record changes the bill in dollars an hour: with a minus what it saves, with a plus what it adds,
// without a sign a price. A saving goes before a price. "-" means that neither is known (both are 0).
func (r *Record) Money() string {
	switch {
	case r.SavingPerHour != 0:
		return fmt.Sprintf("%+.4f", -r.SavingPerHour)
	case r.PricePerHour != 0:
		return fmt.Sprintf("%.4f", r.PricePerHour)
	}
	return "-"
}

// Mentions reports whether a record is about an object. An empty namespace or kind stands for any.
func (r *Record) Mentions(o Object) bool {
	return slices.ContainsFunc(r.About, func(a Object) bool {
		return a.Name == o.Name && (o.Kind == "" || a.Kind == o.Kind) && (o.Namespace == "" || a.Namespace == o.Namespace)
	})
}

// A Query selects records. A zero field selects all.
type Query struct {
	After  uint64 // only records with a greater number
	Since  time.Time
	Object *Object
	Act    Act
	Reason string
	Last   int // at most this many records, the newest; 0 for all
}

// Select returns the records that match a query, in their order.
func (q *Query) Select(records []Record) []Record {
	var out []Record
	for i := range records {
		r := &records[i]
		if r.Seq > q.After && !r.At.Before(q.Since) && (q.Object == nil || r.Mentions(*q.Object)) &&
			(q.Act == "" || r.Act == q.Act) && (q.Reason == "" || r.Reason == q.Reason) {
			out = append(out, *r)
		}
	}
	if q.Last > 0 && len(out) > q.Last {
		out = out[len(out)-q.Last:]
	}
	return out
}
