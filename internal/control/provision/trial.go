package provision

import (
	"fmt"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/reason"
)

// A pool whose last machines never got ready is on trial: its machines are bought one at a time, and only if no other pool will do.

// onTrial returns a pool with the lowest weight if it is on trial, so that the engine prefers all other pools. Otherwise it returns it
// unchanged.
func onTrial(in engine.Pool) engine.Pool {
	if !lifecycle.TroubleOf(in.Pool).Broken() {
		return in
	}
	last := in.Pool.DeepCopy()
	last.Spec.Weight = new(int32(-1))
	in.Pool = last
	return in
}

// tryOnce keeps only the first opening of each pool on trial. The pods of its other openings are refused: they wait for the outcome.
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
