package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"karpenter.sh/karpenter/cloud"
)

func TestMass(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	some := func(prefix string, n int, age time.Duration, deleting bool) (out []cloud.Machine) {
		for i := range n {
			out = append(out, cloud.Machine{ProviderID: fmt.Sprint(prefix, i), Created: now.Add(-age), Deleting: deleting})
		}
		return out
	}
	for name, tc := range map[string]struct {
		good, orphans []cloud.Machine
		want          int
	}{
		"all of three":                              {nil, some("o", 3, time.Hour, false), 3},
		"two are too few to tell":                   {nil, some("o", 2, time.Hour, false), 0},
		"half is not most":                          {some("g", 4, time.Hour, false), some("o", 4, time.Hour, false), 0},
		"one more than half is":                     {some("g", 3, time.Hour, false), some("o", 4, time.Hour, false), 4},
		"young orphans do not count":                {nil, append(some("o", 2, time.Hour, false), some("y", 9, 59*time.Second, false)...), 0},
		"nor are they kept":                         {nil, append(some("o", 3, time.Minute, false), some("y", 9, 59*time.Second, false)...), 3},
		"young machines do not make orphans few":    {some("g", 9, 59*time.Second, false), some("o", 3, time.Hour, false), 3},
		"stopping machines do not make orphans few": {some("g", 9, time.Hour, true), some("o", 3, time.Hour, false), 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Mass(append(tc.good, tc.orphans...), tc.orphans, now); len(got) != tc.want {
				t.Errorf("%d, want %d", len(got), tc.want)
			}
		})
	}
}
