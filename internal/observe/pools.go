package observe

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

var (
	poolLimit = telemetry.Gauge("karpenter_nodepools_limit")
	poolUsage = telemetry.Gauge("karpenter_nodepools_usage")
	poolCost  = telemetry.Gauge("karpenter_nodepools_cost_total")
	poolHalt  = telemetry.Gauge("karpenter_nodepools_disruption_paused")
	poolPlans = telemetry.Gauge("karpenter_nodepools_disruption_plans_waiting")
)

// writePools writes the gauges about pools: limits, use, cost, pauses and plans that wait for approval.
func (o *Observer) writePools(out *telemetry.Text, snap *cluster.Snapshot) {
	pools, _ := o.Catalogs.Pools(telemetry.WithController(context.Background(), "metrics.nodepool"), snap)
	cost := map[string]cloud.NanoUSD{}
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		labels := n.Claim.Labels
		if in, ok := pools[labels[v1.NodePoolLabelKey]]; ok {
			price, _ := in.Catalog.Price(labels)
			cost[in.Pool.Name] += price
		}
	}
	amounts := func(f telemetry.Family, of func(*v1.NodePool) corev1.ResourceList) {
		for _, f := range o.names(f) {
			out.Begin(f)
			for _, name := range slices.Sorted(maps.Keys(pools)) {
				list := of(pools[name].Pool)
				for _, r := range slices.Sorted(maps.Keys(list)) {
					out.Gauge(number(r, list[r]), nil, resourceType(r), name)
				}
			}
		}
	}
	amounts(poolLimit, func(p *v1.NodePool) corev1.ResourceList { return corev1.ResourceList(p.Spec.Limits) })
	amounts(poolUsage, func(p *v1.NodePool) corev1.ResourceList { return p.Status.Resources })
	out.Begin(poolCost)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		out.Gauge(cost[name].Dollars(), nil, name)
	}
	out.Begin(poolHalt)
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		value := 0.0
		if _, halted := paused.Of(snap, name, now); halted {
			value = 1
		}
		out.Gauge(value, nil, name)
	}
	out.Begin(poolPlans)
	waiting := waitingPlans(snap)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		out.Gauge(float64(waiting[name]), nil, name)
	}
}

// waitingPlans counts, by pool, the DisruptionPlans that wait for a user's decision.
func waitingPlans(snap *cluster.Snapshot) map[string]int {
	out := map[string]int{}
	for plan := range snap.DisruptionPlans() {
		if !plan.Open() || plan.Approved() || plan.Spec.Decision != "" {
			continue
		}
		of := map[string]bool{}
		for _, n := range plan.Status.Step.Remove {
			if !of[n.NodePool] {
				of[n.NodePool] = true
				out[n.NodePool]++
			}
		}
	}
	return out
}

// costErrors counts new claims whose cost cannot be looked up, because their pool is gone or the provider has no instance types for it.
// A claim counts once: when it appears, before it has a node.
func (o *Observer) costErrors(ctx context.Context, last, snap *cluster.Snapshot) {
	var news []string // the pools of new claims that name an instance type
	for was, is := range snap.NodeChanges(last) {
		if is == nil || is.Claim == nil || was != nil && was.Claim != nil || is.Node != nil {
			continue
		}
		if pool := is.Claim.Labels[v1.NodePoolLabelKey]; pool != "" && is.Claim.Labels[corev1.LabelInstanceTypeStable] != "" {
			news = append(news, pool)
		}
	}
	if len(news) == 0 {
		return
	}
	pools, _ := o.Catalogs.Pools(ctx, snap) // only pools with instance types
	for _, pool := range news {
		if _, known := pools[pool]; !known {
			o.Metrics.PoolCostTrackerErrors.WithLabelValues(pool).Inc()
		}
	}
}
