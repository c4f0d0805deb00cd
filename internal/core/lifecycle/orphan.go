package lifecycle

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// orphanAge is how old a machine must be before it can be an orphan: its claim may not have learnt of it yet.
const orphanAge = 30 * time.Second

// Orphaned says whether nobody answers for a machine: its claim is gone, or the claim has another machine. A claim without a
// machine that bears the name in the machine's tags is about to adopt it, by repeating the launch that a crash or a lost answer
// cut short. byID is the claim that has this machine, byName the one that it was launched for; either may be nil.
func Orphaned(m cloud.Machine, byID, byName *v1.NodeClaim, now time.Time) bool {
	if m.Deleting || byID != nil || now.Sub(m.Created) < orphanAge {
		return false
	}
	return byName == nil || byName.Status.ProviderID != "" || byName.DeletionTimestamp != nil
}
