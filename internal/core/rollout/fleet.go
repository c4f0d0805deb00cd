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

// A Fleet counts the machines of a pool by their part in a rollout.
type Fleet struct {
	Nodes   int             // machines that are not on their way out
	Drifted int             // drifted machines, Stale included, that are not on their way out; expiry is no drift here
	Leaving int             // drifted machines that are on their way out
	Fresh   []*cluster.Node // machines created since the rollout began that have not drifted
	Stale   int             // machines created since it began that have drifted: what new machines are made from has changed
}

// Fleets counts the machines of the pools in since. The value is when the rollout of the pool began, zero if there is none.
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

// drifts reports whether a claim has drifted for any reason but its age.
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
