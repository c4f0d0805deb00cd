package ztime

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestNoTimeIsLeftOut(t *testing.T) {
	early, late, none := time.Unix(1, 0), time.Unix(2, 0), time.Time{}
	for name, tc := range map[string]struct{ a, b, sooner, later time.Time }{
		"of two times each has its turn":              {early, late, early, late},
		"in whatever order they come":                 {late, early, early, late},
		"no time is neither sooner nor later":         {none, late, late, late},
		"whichever side it is on":                     {early, none, early, early},
		"without any time there is none":              {none, none, none, none},
		"a time before the year one is a time itself": {none.Add(-time.Hour), early, none.Add(-time.Hour), early},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Sooner(tc.a, tc.b); !got.Equal(tc.sooner) {
				t.Errorf("Sooner = %v, want %v", got, tc.sooner)
			}
			if got := Later(tc.a, tc.b); !got.Equal(tc.later) {
				t.Errorf("Later = %v, want %v", got, tc.later)
			}
		})
	}
}

// The naive twin sorts what is a time, and takes the first or the last.
func TestAnyNumberOfTimesEqualsTheTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		times := make([]time.Time, r.IntN(6))
		for i := range times {
			if r.IntN(3) > 0 {
				times[i] = time.Unix(r.Int64N(8), 0)
			}
		}
		var soonest, latest, first, last time.Time
		for _, at := range times {
			soonest, latest = Sooner(soonest, at), Later(latest, at)
		}
		known := slices.DeleteFunc(slices.Clone(times), time.Time.IsZero)
		slices.SortFunc(known, time.Time.Compare)
		if len(known) > 0 {
			first, last = known[0], known[len(known)-1]
		}
		if !soonest.Equal(first) || !latest.Equal(last) {
			t.Fatalf("of %v the soonest is %v and the latest %v, want %v and %v", times, soonest, latest, first, last)
		}
	}
}
