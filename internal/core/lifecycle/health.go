package lifecycle

import "slices"

// remembered is how many outcomes of registration are kept for a pool.
const remembered = 4

// Health is what the last few registrations of a pool say about it. The zero value knows nothing.
type Health struct{ outcomes []bool }

// A Verdict is what a Health says.
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

// Verdict is Unhealthy if half of what is remembered, at its fullest, failed: one failure among few is no verdict.
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

// HealthOf is the health that a restarted controller assumes of a pool, by the verdict that stands in its condition.
func HealthOf(v Verdict) Health {
	switch v {
	case Healthy:
		return Health{}.With(true)
	case Unhealthy:
		return Health{}.With(false).With(false)
	}
	return Health{}
}
