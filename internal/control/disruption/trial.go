package disruption

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// waits reports whether a pool may not open replacements now, because its last machines never got ready. Its nodes may still go if
// nothing has to be opened for them.
func waits(snap *cluster.Snapshot, pool *v1.NodePool, now time.Time) bool {
	t := lifecycle.TroubleOf(pool)
	if !t.Broken() {
		return false
	}
	return now.Before(t.ReplaceAt()) || lifecycle.Trying(snap, pool.Name, now) != ""
}

// crowds reports whether a step would buy a second machine of a pool whose last machines never got ready. Such a pool tries one machine
// at a time. tried has the pools that try one in this turn; crowds adds those of a step that may begin.
func crowds(w *disrupt.World, step *disrupt.Step, tried map[string]bool) bool {
	opens := map[string]bool{}
	for i := range step.Open {
		pool := step.Open[i].Pool
		if !lifecycle.TroubleOf(w.Pools[pool].Pool).Broken() {
			continue
		}
		if opens[pool] || tried[pool] {
			return true
		}
		opens[pool] = true
	}
	for pool := range opens {
		tried[pool] = true
	}
	return false
}
