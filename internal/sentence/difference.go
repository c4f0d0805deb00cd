package sentence

import "karpenter.sh/karpenter/internal/core/approval"

// Difference says why a step is not the one that was approved.
func Difference(d approval.Difference) string {
	return map[approval.Difference]string{
		approval.Why:      "its nodes would go for another reason now",
		approval.Nodes:    "other nodes would go now",
		approval.Machines: "other machines would come now",
		approval.Pods:     "pods would move now of which it does not speak",
		approval.Saving:   "it would save less now",
		approval.Ruled:    "no rule approves what would be done now",
	}[d]
}
