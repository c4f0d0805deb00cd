package aws

import (
	"testing"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/fleet"
)

func TestInflexible(t *testing.T) {
	of := func(capacityType string, types int) fleet.Choice {
		return fleet.Choice{CapacityType: capacityType, Candidates: make([]fleet.Candidate, types)}
	}
	both, onDemand := newClaim("a"), newClaim("b")
	both.Spec.Requirements[2].Values = []string{"spot", "on-demand"}
	for name, tc := range map[string]struct {
		claim  *v1.NodeClaim
		choice fleet.Choice
		want   bool
	}{
		"few types, on demand although spot is allowed": {both, of("on-demand", 4), true},
		"enough types":              {both, of("on-demand", 5), false},
		"spot":                      {both, of("spot", 1), false},
		"on demand is asked for":    {onDemand, of("on-demand", 1), false},
		"any capacity type will do": {&v1.NodeClaim{}, of("on-demand", 1), true},
	} {
		if got := inflexible(tc.claim, tc.choice); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
