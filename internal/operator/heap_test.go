package operator

import (
	"runtime/metrics"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for name, tc := range map[string]struct {
		live, cycles uint64
		want         int
	}{
		"nothing":                     {0, 0, 100},
		"a small cluster":             {20 << 20, 30, 100},
		"a small cluster that rests":  {20 << 20, 1, 100},
		"the limit":                   {64 << 20, 30, 100},
		"a cluster that rests":        {48 << 20, 2, 50},
		"the same when it is at work": {48 << 20, 3, 100},
		"a large cluster":             {128 << 20, 30, 50},
		"a large one that rests":      {128 << 20, 0, 40},
		"a huge one":                  {2 << 30, 30, 40},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gcPercent(tc.live, tc.cycles); got != tc.want {
				t.Errorf("gc percent of %d bytes after %d collections = %d, want %d", tc.live, tc.cycles, got, tc.want)
			}
		})
	}
	sample := []metrics.Sample{{Name: heapKey}, {Name: cyclesKey}}
	metrics.Read(sample)
	for _, s := range sample {
		if s.Value.Kind() != metrics.KindUint64 {
			t.Errorf("the runtime does not know %s", s.Name)
		}
	}
}
