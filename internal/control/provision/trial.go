package provision

import (
	"fmt"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/reason"
)

// Machines of a pool whose last ones never got ready are bought one at a time, and only where no other pool will do.

// onTrial puts a pool behind all others while its machines do not get ready.
func onTrial(in engine.Pool) engine.Pool {
	if !lifecycle.TroubleOf(in.Pool).Broken() {
		return in
	}
	last := in.Pool.DeepCopy()
	last.Spec.Weight = new(int32(-1))
	in.Pool = last
	return in
}

// tryOnce keeps of a plan the first machine of each pool on trial. The pods of the others wait for its outcome.
func (l *Loop) tryOnce(snap *cluster.Snapshot, plan *engine.Plan) {
	tried := map[string]bool{}
	var kept []engine.Opening
	for i := range plan.Open {
		o := &plan.Open[i]
		t := lifecycle.Trouble{}
		if pool := cluster.Pools.Get(snap, o.Pool); pool != nil {
			t = lifecycle.TroubleOf(pool)
		}
		if !t.Broken() || !tried[o.Pool] {
			tried[o.Pool] = true
			kept = append(kept, *o)
			continue
		}
		text := fmt.Sprintf("the last %d machines of pool %q did not get ready, another one is tried first", t.Failures, o.Pool)
		for _, p := range o.Pods {
			plan.Refused = append(plan.Refused, told(p, reason.OnTrial, text))
		}
	}
	plan.Open = kept
}
