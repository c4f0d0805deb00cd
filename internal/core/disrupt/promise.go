package disrupt

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// promises says on which machines there are seats, by the name of their row, and until when that keeps them at the latest.
//
// A seat ends by itself because no pod may come for it: kube-scheduler may have found the pod another place, or its
// owner made none. Without an end one such seat would keep a node for good.
func promises(snap *cluster.Snapshot, now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for s := range snap.Seats() {
		if target := snap.Target(s.Target); target != nil {
			out[target.Name] = ztime.Later(out[target.Name], seat.Until(snap, s, now))
		}
	}
	return out
}

// leastVacancy is how long a node must have been vacant before it goes because it is empty, whatever its pool says: the next pod of a
// Deployment that is recreated, or the next job of a chain, comes within seconds.
const leastVacancy = 15 * time.Second

// Vacancies knows since when nodes are vacant: ready for pods, without a pod that needs another place when they go, and promised to none.
// The zero value has seen nothing. What it has not seen before is vacant from the first look on: it is not known what was promised then.
//
// A snapshot shows that a node is empty now, not since when. visits counts the pods that came to a node: if it has grown between two
// looks, a pod was there and has gone, and the node has been vacant only since. So a job of three seconds every minute is seen, though
// no look may ever meet it.
type Vacancies struct {
	seen map[types.UID]vacancy
}

type vacancy struct {
	since           time.Time // the first look at which it was vacant, or the last at which it was not
	row             *cluster.Node
	vacated, vacant bool
}

// Look returns, by claim, since when each node is vacant; for a node that is not vacant that is now.
func (v *Vacancies) Look(snap *cluster.Snapshot, now time.Time) map[types.UID]time.Time {
	promised := promises(snap, now)
	seen, out := map[types.UID]vacancy{}, map[types.UID]time.Time{}
	for n := range snap.Nodes() {
		if n.Claim == nil || n.Node == nil {
			continue
		}
		last := v.seen[n.Claim.UID]
		mine := vacancy{since: now, row: n, vacated: last.vacated}
		if last.row != n {
			mine.vacated = Vacated(n)
		}
		mine.vacant = mine.vacated && !promised[n.Name].After(now)
		if last.vacant && mine.vacant && last.row.Visits == n.Visits {
			mine.since = last.since
		}
		seen[n.Claim.UID], out[n.Claim.UID] = mine, mine.since
	}
	v.seen = seen
	return out
}

// Vacated reports whether an initialized node runs nothing that needs another place when it goes.
func Vacated(n *cluster.Node) bool {
	return n.Initialized() && !slices.ContainsFunc(n.Pods, movable.Reschedulable)
}

// vacant returns when a node without pods may go: it must have been vacant for a while.
func (s *survey) vacant(c *Candidate) time.Time {
	return s.w.Vacant[c.Node.Claim.UID].Add(leastVacancy)
}
