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

// promises returns the machines on which pods have seats, by the name of their row, and until when seats keep each machine at the latest.
//
// A seat ends by itself, because its pod may never come: kube-scheduler may have found it another place. Without an end such a seat would
// keep a node for good.
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

// Vacancies remembers since when nodes are vacant: ready for pods, without a pod that needs another place, and without seats that still
// count. The zero value has seen nothing. A node that it has not seen before is vacant from the first look on.
//
// A snapshot shows only that a node is empty now. Node.Visits counts the pods that came to a node. If it has grown between two looks, a
// pod was there and has gone, and the node is vacant only since then. So a job of three seconds every minute is noticed, even if no
// look ever sees its pod.
type Vacancies struct {
	seen map[types.UID]vacancy
}

type vacancy struct {
	since   time.Time // the first look at which it was vacant, or the last at which it was not
	row     *cluster.Node
	vacated bool // Vacated(row): kept, so that it is worked out only when the row changes
	vacant  bool // vacated, and no seat counts any more
}

// Look returns, by claim, since when each node is vacant: now for a node that is not vacant. It remembers the answers for the next look.
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

// vacant returns from when on a vacant node may go: leastVacancy after it became vacant.
func (s *survey) vacant(c *Candidate) time.Time {
	return s.w.Vacant[c.Node.Claim.UID].Add(leastVacancy)
}
