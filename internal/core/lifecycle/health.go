package lifecycle

import "slices"

// remembered is how many outcomes of registration are kept for a pool.
const remembered = 4

// Health remembers whether the last few registrations of machines of a pool succeeded. The zero value remembers none.
type Health struct{ outcomes []bool }

// A Verdict is what follows from a Health.
type Verdict uint8

// Verdicts.
const (
	NothingKnown Verdict = iota
	Healthy
	Unhealthy
)

// With returns the health after one more registration that succeeded or failed.
func (h Health) With(succeeded bool) Health {
	out := append(slices.Clone(h.outcomes), succeeded)
	return Health{out[max(0, len(out)-remembered):]}
}

// Verdict returns Unhealthy if at least half of remembered outcomes failed, that is two, even while fewer than four are known: one failure
// does not make a pool unhealthy.
func (h Health) Verdict() Verdict {
	failed := 0
	for _, ok := range h.outcomes {
		if !ok {
			failed++
		}
	}
	switch {
	case len(h.outcomes) == 0:
		return NothingKnown
	case 2*failed >= remembered:
		return Unhealthy
	}
	return Healthy
}

// HealthOf returns the health that a restarted controller assumes for a pool: outcomes that give the verdict in the pool's condition.
func HealthOf(v Verdict) Health {
	switch v {
	case Healthy:
		return Health{}.With(true)
	case Unhealthy:
		return Health{}.With(false).With(false)
	}
	return Health{}
}
