package lifecycle

import (
	"hash/fnv"
	"strconv"

	"karpenter.sh/karpenter/internal/cluster"
)

// Seed names the decisions of a loop, for the names of claims: what a claim is for tells the decisions of one
// picture apart. A decision that is made again on the same picture, because its outcome is unknown, gives the same
// names. Once the picture shows a claim, pods that still wait are not their purpose any more, and need another
// name.
func Seed(loop string, snap *cluster.Snapshot) string {
	h := fnv.New64a()
	for n := range snap.Nodes() {
		if n.Claim != nil {
			h.Write([]byte(n.Claim.UID + " "))
		}
	}
	return loop + " " + strconv.FormatUint(h.Sum64(), 16)
}
