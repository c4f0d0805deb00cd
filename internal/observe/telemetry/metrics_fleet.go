package telemetry

import "github.com/prometheus/client_golang/prometheus"

// fleetMetrics are about claims, nodes and pools.
type fleetMetrics struct {
	NodeClaimsCreated            *prometheus.CounterVec
	NodeClaimsTerminated         *prometheus.CounterVec
	NodeClaimsDisrupted          *prometheus.CounterVec
	PodsAnnounced                *prometheus.CounterVec
	ForecastPods                 *prometheus.CounterVec
	ForecastUnused               *prometheus.CounterVec
	ForecastOff                  *prometheus.GaugeVec
	NodeClaimsUnhealthy          *prometheus.CounterVec
	NodeClaimTermination         *prometheus.HistogramVec
	NodeClaimInstanceTermination *prometheus.HistogramVec
	MachinesOrphaned             *prometheus.CounterVec
	MachinesLatched              prometheus.Gauge
	NodesCreated                 *prometheus.CounterVec
	NodesTerminated              *prometheus.CounterVec
	NodesDrained                 *prometheus.CounterVec
	NodeTermination              *prometheus.SummaryVec
	NodeLifetime                 *prometheus.HistogramVec
	PoolCostTrackerErrors        *prometheus.CounterVec
	PoolAllowedDisruptions       *prometheus.GaugeVec
	PoolNodesConsumingBudgets    *prometheus.GaugeVec
}

// poolAndZone are labels that several of them share.
var poolAndZone = []string{"nodepool", "zone"}

func newFleetMetrics(t *maker) fleetMetrics {
	return fleetMetrics{
		NodeClaimsCreated: t.counter("karpenter_nodeclaims_created_total", Stable,
			"NodeClaims that Karpenter created, by the reason it had.", "reason", "nodepool", "min_values_relaxed"),
		NodeClaimsTerminated: t.counter("karpenter_nodeclaims_terminated_total", Stable,
			"NodeClaims whose machine is gone and whose finalizer was removed.", "nodepool", "capacity_type", "zone"),
		PodsAnnounced: t.counter("karpenter_foresight_pods_total", Alpha,
			"Pods that were announced for a time that has passed, by the kind of object and by whether they came or were missed.",
			"kind", "outcome"),
		ForecastPods: t.counter("karpenter_forecast_pods_total", Alpha,
			"Pods that were expected because of earlier days, and pods that came, in five minutes that have passed, by the NodePool or "+
				"CapacityBuffer that learns.", "object", "outcome"),
		ForecastUnused: t.counter("karpenter_forecast_unused_dollars_total", Alpha,
			"What room cost that was kept for pods that were expected because of earlier days, while it was not used.", "object"),
		ForecastOff: t.gauge("karpenter_forecast_switched_off", Alpha,
			"1 while no room is kept for what was learned, because it cost more than it brought.", "object"),
		NodeClaimsDisrupted: t.counter("karpenter_nodeclaims_disrupted_total", Alpha,
			"NodeClaims that Karpenter deleted of its own accord.", disrupted...),
		NodeClaimsUnhealthy: t.counter("karpenter_nodeclaims_unhealthy_disrupted_total", Alpha,
			"NodeClaims that were deleted because their node was broken for too long, by the condition that said so.",
			"condition", "nodepool", "capacity_type", "image_id", "termination_mode"),
		NodeClaimTermination: t.histogram("karpenter_nodeclaims_termination_duration_seconds", Beta, exponential(1, 2, 12),
			"From the deletion of a NodeClaim to the removal of its finalizer.", "nodepool"),
		NodeClaimInstanceTermination: t.histogram("karpenter_nodeclaims_instance_termination_duration_seconds", Beta,
			exponential(1, 2, 11),
			"From the order to stop a machine to the cloud's word that it is gone.", "nodepool"),
		MachinesOrphaned: t.counter("karpenter_machines_orphaned_total", Alpha,
			"Machines that were found without NodeClaim, by what was done: adopted or terminated.", "outcome"),

		MachinesLatched: t.gauge("karpenter_machines_latched", Alpha,
			"Machines without NodeClaim that are kept because most machines have none.").WithLabelValues(),

		NodesCreated: t.counter("karpenter_nodes_created_total", Stable,
			"Nodes that registered.", poolAndZone...),
		NodesTerminated: t.counter("karpenter_nodes_terminated_total", Stable,
			"Nodes whose finalizer was removed.", poolAndZone...),
		NodesDrained: t.counter("karpenter_nodes_drained_total", Alpha,
			"Nodes that were drained completely.", "nodepool"),
		NodeTermination: t.summary("karpenter_nodes_termination_duration_seconds", Beta,
			"From the deletion of a Node to the removal of its finalizer.", "nodepool"),
		NodeLifetime: t.histogram("karpenter_nodes_lifetime_duration_seconds", Alpha, lifetimes,
			"From the creation of a Node to the removal of its finalizer.", "nodepool"),

		PoolCostTrackerErrors: t.counter("karpenter_nodepools_cost_tracker_errors_total", Alpha,
			"NodeClaims whose cost could not be found because the pool or its instance types could not.", "nodepool"),
		PoolAllowedDisruptions: t.gauge("karpenter_nodepools_allowed_disruptions", Alpha,
			"Nodes of a pool that budgets allow to be disrupted at a time; 2147483647 while no budget is active.", "nodepool", "reason"),
		PoolNodesConsumingBudgets: t.gauge("karpenter_nodepools_nodes_consuming_budgets", Alpha,
			"Nodes of a pool that are not ready or being removed, and so use up its budgets.", "nodepool", "reason"),
	}
}
