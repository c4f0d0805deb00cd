package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A Fleet is where the machines of a pool are in a rollout.
type Fleet struct {
	Nodes   int             // that stay
	Drifted int             // that are to be replaced and have not begun to go; expired ones do not count, as they begin no rollout
	Leaving int             // drifted ones that are on their way out
	Fresh   []*cluster.Node // machines of the rollout
	Stale   int             // machines of the rollout that drifted: what new machines are made from has changed
}

// Fleets counts the machines of all pools of which since has an entry: when their rollout began, zero while there is none.
func Fleets(snap *cluster.Snapshot, since map[string]time.Time) map[string]*Fleet {
	out := make(map[string]*Fleet, len(since))
	for pool := range since {
		out[pool] = &Fleet{}
	}
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		pool := n.Claim.Labels[v1.NodePoolLabelKey]
		f := out[pool]
		if f == nil {
			continue
		}
		began := since[pool]
		drifted := drifts(n.Claim)
		fresh := !began.IsZero() && !n.Claim.CreationTimestamp.Time.Before(began) && !wentBack(n.Claim)
		if n.Deleting() {
			if drifted && !fresh {
				f.Leaving++
			}
			continue
		}
		if !n.MarkedForRemoval {
			f.Nodes++
		}
		switch {
		case fresh && drifted:
			f.Stale++
			f.Drifted++
		case fresh:
			f.Fresh = append(f.Fresh, n)
		case drifted && n.MarkedForRemoval:
			f.Leaving++
		case drifted:
			f.Drifted++
		}
	}
	return out
}

// drifts reports whether a claim is no longer what its pool and class ask for. Its age alone does not count.
func drifts(claim *v1.NodeClaim) bool {
	c := condition.Get(claim, v1.ConditionTypeDrifted)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason != v1.ReasonExpired
}

// Began returns when the rollout of a pool began by its entry, and since when machines of it are judged; zero if there is none.
func Began(e *v1alpha1.RolloutPool) (began, judged time.Time) {
	if e == nil || e.Since == nil {
		return time.Time{}, time.Time{}
	}
	began, judged = e.Since.Time, e.Since.Time
	if e.JudgedSince != nil {
		judged = ztime.Later(judged, e.JudgedSince.Time)
	}
	return began, judged
}
