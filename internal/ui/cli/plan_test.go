package cli

import (
	"testing"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
)

// More time must never cost more: the GPU trace came to $5,150.70 with two seconds and to $5,147.24 without.
func TestMoreTimeNeverGivesADearerPlan(t *testing.T) {
	type answer struct {
		cost, bound cloud.NanoUSD
		refused     int
	}
	for name, tc := range map[string]struct {
		search      work.Units
		long, usual answer
		want        answer
		plans       int
	}{
		"the longer search is dearer": {search: 2 * work.Second, long: answer{103, 101, 0}, usual: answer{102, 99, 0},
			want: answer{102, 101, 0}, plans: 2},
		"it is cheaper": {search: 2 * work.Second, long: answer{101, 100, 0}, usual: answer{102, 99, 0}, want: answer{101, 100, 0}, plans: 2},
		"it places fewer pods": {search: 2 * work.Second, long: answer{90, 89, 1}, usual: answer{102, 99, 0},
			want: answer{102, 99, 0}, plans: 2},
		"it places more":          {search: 2 * work.Second, long: answer{103, 101, 0}, usual: answer{90, 89, 1}, want: answer{103, 101, 0}, plans: 2},
		"no more time than usual": {search: work.Second, long: answer{103, 101, 0}, want: answer{103, 101, 0}, plans: 1},
	} {
		t.Run(name, func(t *testing.T) {
			plans := 0
			in := engine.Question{}
			in.Settings.Search = tc.search
			got := bestPlan(in, func(in engine.Question) *engine.Plan {
				plans++
				a := tc.long
				if in.Settings.Search == 0 {
					a = tc.usual
				}
				return &engine.Plan{Cost: a.cost, ConfigBound: a.bound, Refused: make([]engine.Refused, a.refused)}
			})
			if have := (answer{got.Cost, got.ConfigBound, len(got.Refused)}); have != tc.want || plans != tc.plans {
				t.Errorf("the plan is %+v after %d plans, want %+v after %d", have, plans, tc.want, tc.plans)
			}
		})
	}
}
