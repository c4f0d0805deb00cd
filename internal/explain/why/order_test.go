package why

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/reason"
)

func TestEveryReasonHasAPlaceInTheOrder(t *testing.T) {
	for c := reason.None + 1; c.Name() != "Unknown"; c++ {
		if !slices.Contains(fixes, c) {
			t.Errorf("%s is not in fixes, so it would be told before what is wrong with the pod", c.Name())
		}
	}
}
