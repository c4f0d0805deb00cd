package sentence

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

func TestSpot(t *testing.T) {
	for want, tc := range map[string]struct {
		hours   int64
		dollars float64
	}{
		"spot c7g.large in us-east-1a: $0.0210/h, taken back about once in 40 days, counts as $0.0241/h": {40 * 24, 3},
		"spot c7g.large in us-east-1a: $0.0210/h, taken back about once in 40 days":                      {40 * 24, 0},
		"spot c7g.large in us-east-1a: $0.0210/h, taken back about once in 1 hour, counts as $1.0210/h":  {1, 1},
		"spot c7g.large in us-east-1a: $0.0210/h, taken back about once in 3 years, counts as $0.0210/h": {3 * 365 * 24, 1},
	} {
		o := &cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: "us-east-1a"}, Price: cloud.FromDollars(0.021), Hazard: 1e9 / tc.hours}
		if got := Spot("c7g.large", o, cloud.FromDollars(tc.dollars)); got != want {
			t.Errorf("Spot = %q, want %q", got, want)
		}
	}
}
