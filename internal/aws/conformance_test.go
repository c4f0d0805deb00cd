package aws

import (
	"testing"

	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/internal/aws/awsmodel"
)

// The laws hold in bad times too.
func TestConformanceInTrouble(t *testing.T) {
	for name, faults := range map[string]func(*awsmodel.Faults){
		"slow answers":                func(f *awsmodel.Faults) { f.LatencyMillis = 100 },
		"answers about the past":      func(f *awsmodel.Faults) { f.LagMillis = 500 },
		"EC2's limits":                func(f *awsmodel.Faults) { f.Throttle = true },
		"one answer in ten gets lost": func(f *awsmodel.Faults) { f.LostAnswers = 0.1 },
	} {
		t.Run(name, func(t *testing.T) {
			cloudtest.Conform(t, func(t *testing.T) *cloudtest.World { return conformWorld(t, faults) })
		})
	}
}
