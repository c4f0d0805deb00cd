package telemetry

import "github.com/prometheus/client_golang/prometheus"

// disruptionMetrics are about nodes that are removed for a better fleet.
type disruptionMetrics struct {
	DisruptionEvaluation        *prometheus.HistogramVec
	DisruptionDecisions         *prometheus.CounterVec
	DisruptionDecisionsByPool   *prometheus.CounterVec
	DisruptionTerminateFirst    *prometheus.CounterVec
	DisruptionEligibleNodes     *prometheus.GaugeVec
	DisruptionTimeouts          *prometheus.CounterVec
	DisruptionFailedValidations *prometheus.CounterVec
	DisruptionQueueFailures     *prometheus.CounterVec
	DisruptionHeldBackSavings   *prometheus.GaugeVec
	DisruptionBreakerTrips      *prometheus.CounterVec
	DeletionCostPending         *prometheus.GaugeVec
	DeletionCostWrites          *prometheus.CounterVec
	RolloutTrips                *prometheus.CounterVec
	Reboots                     *prometheus.CounterVec
	RebootDuration              *prometheus.HistogramVec
	RebootRecovery              *prometheus.HistogramVec
	ConsolidationScore          *prometheus.HistogramVec
	ConsolidationMoves          *prometheus.CounterVec
}

// Labels that several of them share.
var (
	decided  = []string{"decision", "reason", "consolidation_type"}
	balanced = []string{"decision", "nodepool", "policy"}
)

func newDisruptionMetrics(t *maker) disruptionMetrics {
	m := disruptionMetrics{
		DisruptionEvaluation: t.histogram("karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Beta, turns,
			"Time of one pass of a disruption method, with the wait for validation.", "reason", "consolidation_type"),
		DisruptionDecisions: t.counter("karpenter_voluntary_disruption_decisions_total", Stable,
			"Disruption commands that were started.", decided...),
		DisruptionDecisionsByPool: t.counter("karpenter_voluntary_disruption_decisions_by_nodepool_total", Alpha,
			"Disruption commands that were started, once for each pool concerned.", append([]string{"nodepool"}, decided...)...),
		DisruptionTerminateFirst: t.counter("karpenter_voluntary_disruption_terminate_first_decisions_total", Alpha,
			"Nodes that went before their replacements, because there could be none beside them.",
			"nodepool", "reason", "terminate_first_reason"),
		DisruptionEligibleNodes: t.gauge("karpenter_voluntary_disruption_eligible_nodes", Beta,
			"Nodes that the latest pass considered.", "reason"),
		DisruptionTimeouts: t.counter("karpenter_voluntary_disruption_consolidation_timeouts_total", Beta,
			"Passes of consolidation that ran out of time: none, because a pass has no limit of time.", "consolidation_type"),
		DisruptionFailedValidations: t.counter("karpenter_voluntary_disruption_failed_validations_total", Alpha,
			"Candidates that were lost between decision and execution.", "consolidation_type"),
		DisruptionQueueFailures: t.counter("karpenter_voluntary_disruption_queue_failures_total", Beta,
			"Replacements that were not ready when their command failed.", decided...),
		DisruptionHeldBackSavings: t.gauge("karpenter_voluntary_disruption_held_back_savings_dollars", Alpha,
			"Hourly savings that the budgets of a pool hold back now.", "nodepool"),
		DisruptionBreakerTrips: t.counter("karpenter_voluntary_disruption_breaker_trips_total", Alpha,
			"How often the breaker stopped voluntary disruption, by what did not get ready: machines or pods.", "cause"),
		DeletionCostPending: t.gauge("karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes", Alpha,
			"Nodes some of whose pods wait for the annotation controller.kubernetes.io/pod-deletion-cost.", "nodepool"),
		DeletionCostWrites: t.counter("karpenter_pod_deletion_cost_pod_annotation_writes_total", Alpha,
			"Writes of the annotation controller.kubernetes.io/pod-deletion-cost: updated, skipped_notfound, skipped_conflict or error.",
			"result"),
		RolloutTrips: t.counter("karpenter_rollout_trips_total", Alpha,
			"How often a gate of a RolloutPolicy stopped a rollout, by policy and gate.", "policy", "gate"),
		Reboots: t.counter("karpenter_nodes_reboots_total", Beta,
			"Reboots of broken machines, by result: succeeded, provider_error, drain_timeout, recovery_timeout or invalid_request.",
			"result"),
		RebootDuration: t.histogram("karpenter_nodes_reboot_duration_seconds", Beta, reboots,
			"Time of a reboot of a broken machine from its request to its end, by result.", "result"),
		RebootRecovery: t.histogram("karpenter_nodes_reboot_recovery_duration_seconds", Beta, reboots,
			"Time from when the cloud was asked for a reboot until the node had booted and was ready."),
		ConsolidationScore: t.histogram("karpenter_consolidation_score", Alpha, scores,
			"Score of moves under policy Balanced, by whether they were approved or rejected.", balanced...),
		ConsolidationMoves: t.counter("karpenter_consolidation_moves_total", Alpha,
			"Moves of consolidation, by whether they were approved, or rejected by a pool with policy Balanced.", balanced...),
	}
	for _, kind := range []string{"multi", "single"} {
		m.DisruptionTimeouts.WithLabelValues(kind) // there from the start, so that a rate has something to start from
	}
	return m
}
