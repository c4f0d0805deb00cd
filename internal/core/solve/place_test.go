package solve_test

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/testing/problems"
)

// In every scenario the first placement and placements in other orders keep all rules, and each refused pod has a reason.
func TestPlacementsKeepTheRules(t *testing.T) {
	problems.Each(t, "../../..", func(t *testing.T, compile func() *problem.Problem) {
		p := compile()
		at, r := solve.Place(p)
		check := func(what string) {
			t.Helper()
			if err := solve.Check(p, r); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			for class, n := range r.Left {
				if n > 0 && len(r.Why[class]) == 0 && !r.Partial {
					t.Errorf("%s: %d pods of class %d are refused without a reason", what, n, class)
				}
			}
		}
		check("the first placement")
		if !at.Movable() {
			return
		}
		backwards := make([]int32, len(p.Classes))
		for i := range backwards {
			backwards[i] = int32(len(backwards) - 1 - i)
		}
		for _, size := range []solve.Size{solve.Usual, solve.Cheapest, solve.Roomiest} {
			cost, left := r.Cost, slices.Clone(r.Left)
			taken := at.Take(r, at.Another(solve.Preference{Classes: backwards, Size: size}))
			if taken && slices.Equal(left, r.Left) && r.Cost >= cost || !taken && (r.Cost != cost || !slices.Equal(left, r.Left)) {
				t.Errorf("taken: %v; it costs %d after %d and leaves %v after %v", taken, r.Cost, cost, r.Left, left)
			}
			check("another order")
		}
	})
}
