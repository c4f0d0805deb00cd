package drift

import (
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A Restamp is a claim with the stamp that has to be written to it.
type Restamp struct {
	Claim *v1.NodeClaim
	Stamp Stamp
}

// Migrate returns the claims to restamp if the stamp of their owner, a pool or a node class, has another version than the present one.
// claimStamp reads the owner's kind of stamp from a claim.
//
// A claim gets the present hash, so that no claim drifts because the version changed. A claim that has drifted already keeps its old
// hash under the new version, and so stays drifted. Claims of the present version are left out. Callers must write the claims before the
// owner, or a crash between the two would lose the migration.
func Migrate(stored, present Stamp, claims []*v1.NodeClaim, claimStamp func(*v1.NodeClaim) Stamp) []Restamp {
	if stored.Version == present.Version {
		return nil
	}
	var out []Restamp
	for _, claim := range claims {
		old := claimStamp(claim)
		if old.Version == present.Version {
			continue
		}
		next := present
		if condition.IsTrue(claim, v1.ConditionTypeDrifted) {
			next.Hash = old.Hash
		}
		out = append(out, Restamp{Claim: claim, Stamp: next})
	}
	return out
}
