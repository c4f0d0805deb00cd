package aws

import (
	"testing"

	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// The laws hold in bad times too.
func TestConformanceInTrouble(t *testing.T) {
	for name, faults := range map[string]func(*awsmodel.Faults){
		"slow answers":                      func(f *awsmodel.Faults) { f.LatencyMillis = 1000 },
		"answers about the past":            func(f *awsmodel.Faults) { f.LagMillis = 5000 },
		"EC2's limits":                      func(f *awsmodel.Faults) { f.Throttle = true },
		"one answer in five gets lost":      func(f *awsmodel.Faults) { f.LostAnswers = 0.2 },
		"two zones without power":           func(f *awsmodel.Faults) { f.ZonesDown = []string{"us-east-1a", "us-east-1b"} },
		"pools that hold one machine":       func(f *awsmodel.Faults) { f.Pools = []awsmodel.PoolRule{{Match: "*/*/*", Depth: 1}} },
		"a quota of vCPUs that is just met": func(f *awsmodel.Faults) { f.OnDemandVCPUs = 16 },
		"one call in five fails on its side": func(f *awsmodel.Faults) {
			f.Fail = map[string]awsmodel.Failure{"*": {Code: "InternalError", Status: 500, Share: 0.2}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cloudtest.ConformInBubble(t, func(t *testing.T) *cloudtest.World { return conformWorld(t, faults) })
		})
	}
}
