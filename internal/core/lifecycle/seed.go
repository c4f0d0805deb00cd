package lifecycle

import (
	"hash/fnv"
	"strconv"

	"karpenter.sh/karpenter/internal/cluster"
)

// Seed returns a text from which the opener derives the names of new claims, together with what each claim is for. It depends on the loop
// and on the claims in the snapshot.
//
// If a loop decides the same again on the same snapshot, because it does not know whether its call succeeded, the claims get the same names
// and none is created twice. Once the snapshot shows a new claim, the seed is another one: pods that still wait then need another claim.
func Seed(loop string, snap *cluster.Snapshot) string {
	h := fnv.New64a()
	for n := range snap.Nodes() {
		if n.Claim != nil {
			h.Write([]byte(n.Claim.UID + " "))
		}
	}
	return loop + " " + strconv.FormatUint(h.Sum64(), 16)
}
