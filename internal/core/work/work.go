// Package work counts what the engine does, so that it need not look at a clock. The same question costs the same work on every machine,
// even a busy one, and so gets the same plan.
//
// The code that does work charges it, by the number of steps of the innermost loops; a benchmark and a test of package compile compare it
// with processor time. Only the caller may use a clock, to cut a plan short while pods wait for it. The cut is recorded as a number of
// units, so the plan can be repeated.
package work

// Units of work. One takes a processor of the reference machine, two virtual cores of an AMD EPYC, about a nanosecond.
type Units int64

// Second is the work that the reference machine does in a second.
const Second Units = 1e9

// Seconds returns how many seconds the reference machine needs for the work.
func (u Units) Seconds() float64 { return float64(u) / float64(Second) }

// A Meter counts the work of one plan. The zero value has no limit.
type Meter struct {
	limit Units
	stop  func() bool
	spent Units
	asked Units // the work at the last call of stop
	cutAt Units // the work at which the plan was cut; 0: it was not
}

// askEvery is the work between two calls of stop.
const askEvery = Second / 10_000

// NewMeter returns a meter that cuts the plan at limit units (0: never), or as soon as stop returns true (nil: never).
func NewMeter(limit Units, stop func() bool) *Meter { return &Meter{limit: limit, stop: stop} }

// Charge adds work that was done.
func (m *Meter) Charge(n Units) { m.spent += n }

// Spent returns the work so far.
func (m *Meter) Spent() Units { return m.spent }

// Cut reports whether the plan has to end now. After it has returned true it always does. Each call adds one unit, so no two calls see the
// same count: if a plan is repeated with CutAt as its limit, it is cut at the same call.
func (m *Meter) Cut() bool {
	m.spent++
	switch {
	case m.cutAt > 0:
	case m.limit > 0 && m.spent >= m.limit:
		m.cutAt = m.spent
	case m.stop != nil && (m.asked == 0 || m.spent-m.asked >= askEvery):
		if m.asked = m.spent; m.stop() {
			m.cutAt = m.spent
		}
	}
	return m.cutAt > 0
}

// CutAt returns the work at which the plan was cut, 0 if it was not.
func (m *Meter) CutAt() Units { return m.cutAt }

// Steps counts the steps of the innermost loops of one algorithm, until they are charged to a meter.
type Steps int

// Take returns the steps since the last call, and sets them to 0.
func (s *Steps) Take() int {
	n := int(*s)
	*s = 0
	return n
}
