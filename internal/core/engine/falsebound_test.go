package engine

import (
	"testing"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// A bound that is above the plan's own cost is a bug, and no user sees it.
func TestABoundAboveTheCostIsABug(t *testing.T) {
	bug.Expect(t)
	before := bug.Count()
	honest, wrong := &Plan{Cost: 10, VolumeBound: 9, ConfigBound: 10}, &Plan{Cost: 10, VolumeBound: 9, ConfigBound: 11}
	honest.dropFalseBound()
	if bug.Count() != before || honest.ConfigBound != 10 {
		t.Errorf("an honest bound is a bug: %+v", honest)
	}
	wrong.dropFalseBound()
	if bug.Count() != before+1 || wrong.VolumeBound != 0 || wrong.ConfigBound != 0 {
		t.Errorf("a bound above the cost is kept: %+v", wrong)
	}
}
