package operator

import (
	"runtime/metrics"
	"testing"
)

func TestGCPercent(t *testing.T) {
	for name, tc := range map[string]struct {
		live uint64
		want int
	}{
		"a small cluster": {20 << 20, 100},
		"the limit":       {64 << 20, 100},
		"a large cluster": {128 << 20, 50},
		"a huge one":      {2 << 30, 40},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gcPercent(tc.live); got != tc.want {
				t.Errorf("gc percent of %d bytes = %d, want %d", tc.live, got, tc.want)
			}
		})
	}
	sample := []metrics.Sample{{Name: heapKey}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		t.Errorf("the runtime does not know %s", heapKey)
	}
}
