// Package work counts what the engine does instead of looking at a clock. The same question costs the same work on every machine,
// however busy it is, so that it gets the same plan.
//
// Work is charged where it is done, by the number of steps of the innermost loops; a benchmark and a test of package compile compare it
// with processor time. A clock has one say only: the caller's, which may cut a plan short while pods wait for it. Where it cut is
// a number of units again, which repeats the plan.
package work

// Units of work. One takes a processor of the reference machine, two virtual cores of an AMD EPYC, about a nanosecond.
type Units int64

// Second is what the reference machine does in a second.
const Second Units = 1e9

// Seconds is how long the reference machine takes.
func (u Units) Seconds() float64 { return float64(u) / float64(Second) }

// A Meter counts the work of one plan. The zero value has no limit.
type Meter struct {
	limit Units
	stop  func() bool
	spent Units
	asked Units // when the clock was asked last
	cutAt Units // 0: it was not cut
}

// askEvery is how much work is done between two looks at the clock.
const askEvery = Second / 10_000

// NewMeter returns a meter that cuts the plan at limit units (0: never), or as soon as stop says so (nil: never).
func NewMeter(limit Units, stop func() bool) *Meter { return &Meter{limit: limit, stop: stop} }

// Charge notes work that was done.
func (m *Meter) Charge(n Units) { m.spent += n }

// Spent is the work so far.
func (m *Meter) Spent() Units { return m.spent }

// Cut reports whether the plan has to end now. Once it has it stays so. No two questions are asked at the same count: a limit that is
// set to CutAt cuts at the very question at which the clock did.
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

// CutAt is when the plan was cut, 0 if it was not.
func (m *Meter) CutAt() Units { return m.cutAt }

// Steps counts what the innermost loops of one algorithm do, until it is charged.
type Steps int

// Take returns the steps since it was last asked.
func (s *Steps) Take() int {
	n := int(*s)
	*s = 0
	return n
}
