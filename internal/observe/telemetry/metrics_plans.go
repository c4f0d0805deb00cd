package telemetry

import "github.com/prometheus/client_golang/prometheus"

// planMetrics are about plans and their outcome.
type planMetrics struct {
	SchedulingDuration          *prometheus.HistogramVec
	SchedulingQueueDepth        *prometheus.GaugeVec
	SchedulingUnfinishedWork    *prometheus.GaugeVec
	SchedulingIgnoredPods       prometheus.Gauge
	SchedulingUnschedulablePods *prometheus.GaugeVec
	SchedulingPendingPodsByZone *prometheus.GaugeVec
	PlanPrice                   *prometheus.GaugeVec
	PlanBound                   *prometheus.GaugeVec
	PlanPartial                 *prometheus.CounterVec
	CommitmentUtilization       *prometheus.GaugeVec
	CommitmentUnused            *prometheus.GaugeVec
	CommitmentCoverage          *prometheus.GaugeVec
	CommitmentImportFailures    prometheus.Counter
	BatchDuration               prometheus.Histogram
	UnschedulableToClaim        prometheus.Histogram
	HintsWritten                *prometheus.CounterVec
	PodsBound                   *prometheus.CounterVec
	MachinesForStrays           *prometheus.CounterVec
	MachinesForStraysCost       *prometheus.CounterVec
}

func newPlanMetrics(t *maker) planMetrics {
	return planMetrics{
		SchedulingDuration: t.histogram("karpenter_scheduler_scheduling_duration_seconds", Stable, durations,
			"Time to work out one plan.", "controller"),
		SchedulingQueueDepth: t.gauge("karpenter_scheduler_queue_depth", Beta,
			"Pods in the plan that is being worked out.", "controller", "scheduling_id"),
		SchedulingUnfinishedWork: t.gauge("karpenter_scheduler_unfinished_work_seconds", Alpha,
			"Age of the plan that is being worked out.", "controller", "scheduling_id"),
		SchedulingIgnoredPods: t.gauge("karpenter_scheduler_ignored_pods_count", Alpha,
			"Waiting pods that ask for what Karpenter can never give.").WithLabelValues(),
		SchedulingUnschedulablePods: t.gauge("karpenter_scheduler_unschedulable_pods_count", Alpha,
			"Waiting pods that the last plan has no place for.", "controller"),
		SchedulingPendingPodsByZone: t.gauge("karpenter_scheduler_pending_pods_by_effective_zone_count", Alpha,
			"Pending pods by the one zone they can go to, \"flexible\" or \"none\".", "controller", "zone"),
		PlanPrice: t.gauge("karpenter_scheduler_plan_price_dollars", Alpha,
			"Hourly price of what the last plan opened.", "controller"),
		PlanBound: t.gauge("karpenter_scheduler_plan_bound_dollars", Alpha,
			"Proven lower bound of that price, by the relaxation that proves it: volume or configuration.", "controller", "relaxation"),
		PlanPartial: t.counter("karpenter_scheduler_plans_partial_total", Alpha,
			"Plans that the clock cut short: on a machine with more processor to spare they might have been cheaper.", "controller"),
		CommitmentUtilization: t.gauge("karpenter_commitments_utilization_ratio", Alpha,
			"Part of a commitment that on-demand machines of the cluster use now, of the share of this cluster.", "commitment"),
		CommitmentUnused: t.gauge("karpenter_commitments_unused_dollars", Alpha,
			"Dollars an hour that are paid for the part of a commitment that no machine of the cluster uses now.", "commitment"),
		CommitmentCoverage: t.gauge("karpenter_commitments_coverage_ratio", Alpha,
			"Part of the on-demand machines of the cluster, by their price at list, that commitments cover now."),
		CommitmentImportFailures: t.counter("karpenter_commitments_import_failures_total", Alpha,
			"Imports of Reserved Instances and Savings Plans of which a part failed.").WithLabelValues(),
		BatchDuration: t.histogram("karpenter_provisioner_batch_duration_seconds", Alpha, durations,
			"From the first pod of a batch to its end.").WithLabelValues().(prometheus.Histogram),
		UnschedulableToClaim: t.histogram("karpenter_provisioner_pod_to_nodeclaim_duration_seconds", Alpha, durations,
			"From the sight of the last pod of a batch to the creation of its NodeClaims.").WithLabelValues().(prometheus.Histogram),
		HintsWritten: t.counter("karpenter_hints_total", Alpha,
			"Attempts to tell kube-scheduler where a pod is meant to go, by outcome: written, cleared, dropped, failed.", "outcome"),
		PodsBound: t.counter("karpenter_pods_planned_bound_total", Alpha,
			"Pods that bound after they were planned for, by place: as_planned or elsewhere.", "place"),
		MachinesForStrays: t.counter("karpenter_nodeclaims_created_for_displaced_pods_total", Alpha,
			"NodeClaims created for pods whose planned place was taken by other pods.", "nodepool"),
		MachinesForStraysCost: t.counter("karpenter_nodeclaims_created_for_displaced_pods_dollars_total", Alpha,
			"Hourly price of those NodeClaims.", "nodepool"),
	}
}
