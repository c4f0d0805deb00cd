package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters and histograms that loops write, and descriptions of what providers tell when they are scraped. Names, labels
// and buckets stand in NewMetrics.
type Metrics struct {
	NodeClaimsCreated            *prometheus.CounterVec
	NodeClaimsTerminated         *prometheus.CounterVec
	NodeClaimsDisrupted          *prometheus.CounterVec
	NodeClaimTermination         *prometheus.HistogramVec
	NodeClaimInstanceTermination *prometheus.HistogramVec
	MachinesOrphaned             *prometheus.CounterVec
	NodesCreated                 *prometheus.CounterVec
	NodesTerminated              *prometheus.CounterVec
	NodesDrained                 *prometheus.CounterVec
	NodeTermination              *prometheus.SummaryVec
	NodeLifetime                 *prometheus.HistogramVec
	PoolCostTrackerErrors        *prometheus.CounterVec
	PoolAllowedDisruptions       *prometheus.GaugeVec
	PoolNodesConsumingBudgets    *prometheus.GaugeVec
	PodStartup                   prometheus.Summary
	PodBound                     prometheus.Histogram
	PodProvisioningBound         prometheus.Histogram
	PodProvisioningStartup       prometheus.Histogram
	PodSchedulingDecision        prometheus.Histogram
	PodsDisruptionInitiated      *prometheus.CounterVec
	PodEvictionRequests          *prometheus.CounterVec
	PodsDrained                  *prometheus.CounterVec
	SchedulingDuration           *prometheus.HistogramVec
	SchedulingQueueDepth         *prometheus.GaugeVec
	SchedulingUnfinishedWork     *prometheus.GaugeVec
	SchedulingIgnoredPods        prometheus.Gauge
	SchedulingUnschedulablePods  *prometheus.GaugeVec
	SchedulingPendingPodsByZone  *prometheus.GaugeVec
	PlanPrice                    *prometheus.GaugeVec
	PlanBound                    *prometheus.GaugeVec
	PlanPartial                  *prometheus.CounterVec
	BatchDuration                prometheus.Histogram
	UnschedulableToClaim         prometheus.Histogram
	HintsWritten                 *prometheus.CounterVec
	PodsBound                    *prometheus.CounterVec
	MachinesForStrays            *prometheus.CounterVec
	MachinesForStraysCost        *prometheus.CounterVec
	DisruptionEvaluation         *prometheus.HistogramVec
	DisruptionDecisions          *prometheus.CounterVec
	DisruptionDecisionsByPool    *prometheus.CounterVec
	DisruptionEligibleNodes      *prometheus.GaugeVec
	DisruptionTimeouts           *prometheus.CounterVec
	DisruptionFailedValidations  *prometheus.CounterVec
	DisruptionQueueFailures      *prometheus.CounterVec
	DisruptionHeldBackSavings    *prometheus.GaugeVec
	ConsolidationScore           *prometheus.HistogramVec
	ConsolidationMoves           *prometheus.CounterVec
	CloudCalls                   *prometheus.HistogramVec
	CloudErrors                  *prometheus.CounterVec
	BuildInfo                    *prometheus.GaugeVec
	EventsDropped                *prometheus.CounterVec
	ReconcileTotal               *prometheus.CounterVec
	ReconcileErrors              *prometheus.CounterVec
	ReconcileTime                *prometheus.HistogramVec
	ReconcileMaxConcurrent       *prometheus.GaugeVec
	ReconcileActiveWorkers       *prometheus.GaugeVec
	WorkqueueDepth               *prometheus.GaugeVec
	WorkqueueAdds                *prometheus.CounterVec
	ReconcilePanics              *prometheus.CounterVec
	WorkqueueRetries             *prometheus.CounterVec
	WorkqueueWait                *prometheus.HistogramVec
	WorkqueueWork                *prometheus.HistogramVec
	WorkqueueUnfinished          *prometheus.GaugeVec
	WorkqueueLongest             *prometheus.GaugeVec
	ClientRequests               *prometheus.CounterVec
	ClientRequestDuration        *prometheus.HistogramVec
	LeaderStatus                 *prometheus.GaugeVec
	LeaderSlowpath               *prometheus.CounterVec
	InterruptionReceived         *prometheus.CounterVec
	InterruptionDeleted          prometheus.Counter
	InterruptionQueueDuration    prometheus.Histogram
	InterruptionStatusUnhealthy  *prometheus.CounterVec
	InstanceLaunchFailures       *prometheus.CounterVec
	InstanceTerminationFailures  *prometheus.CounterVec
	BatcherTime, BatcherSize     *prometheus.HistogramVec
	NodeClassUserData            *prometheus.GaugeVec
	InstanceTypeCPU              *prometheus.Desc
	InstanceTypeMemory           *prometheus.Desc
	OfferingAvailable            *prometheus.Desc
	OfferingPrice                *prometheus.Desc
	AWSRequests                  *prometheus.CounterVec
	AWSRetries                   *prometheus.HistogramVec
	AWSRequestDuration           *prometheus.HistogramVec
	AWSAttempts                  *prometheus.CounterVec
	AWSAttemptDuration           *prometheus.HistogramVec
	ConditionTransition          map[string]*prometheus.HistogramVec // by lower-case kind
	ConditionTransitions         map[string]*prometheus.CounterVec
	ObjectTermination            map[string]*prometheus.HistogramVec
	ConditionTransitionOld       *prometheus.HistogramVec
	ConditionTransitionsOld      *prometheus.CounterVec
	ObjectTerminationOld         *prometheus.HistogramVec

	rows []Row
}

// Label lists that several metrics share.
var (
	disrupted   = []string{"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"}
	decided     = []string{"decision", "reason", "consolidation_type"}
	balanced    = []string{"decision", "nodepool", "policy"}
	cloudCall   = []string{"controller", "method", "provider"}
	offering    = []string{"instance_type", "capacity_type", "zone"}
	workqueued  = []string{"name", "controller"}
	awsCall     = []string{"service", "action", "code"}
	poolAndZone = []string{"nodepool", "zone"}
)

// ConditionKinds returns the kinds whose conditions are measured, by lower-case name, and the labels that their series have
// besides the common ones. nodeClasses are the provider's kinds of node class, by the label that names them on claims.
func ConditionKinds(nodeClasses ...string) map[string][]string {
	claim := []string{NodePoolSeriesLabel}
	node := []string{NodePoolSeriesLabel, initializedSeriesLabel}
	kinds := map[string][]string{"nodepool": nil, "capacitybuffer": nil}
	for _, label := range nodeClasses {
		series := strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(label)
		claim, node = append(claim, series), append(node, series)
		kinds[label[strings.LastIndex(label, "/")+1:]] = nil
	}
	kinds["nodeclaim"], kinds["node"] = claim, node
	return kinds
}

// Labels of condition series that are made from label keys of the object.
const (
	NodePoolSeriesLabel    = "karpenter_sh_nodepool"
	initializedSeriesLabel = "karpenter_sh_initialized"
)

// NewMetrics registers every metric that loops write. kinds are those of ConditionKinds.
func NewMetrics(reg prometheus.Registerer, kinds map[string][]string) *Metrics {
	t := &maker{reg: reg}
	m := &Metrics{
		NodeClaimsCreated: t.counter("karpenter_nodeclaims_created_total", Stable,
			"NodeClaims that Karpenter created, by the reason it had.", "reason", "nodepool", "min_values_relaxed"),
		NodeClaimsTerminated: t.counter("karpenter_nodeclaims_terminated_total", Stable,
			"NodeClaims whose machine is gone and whose finalizer was removed.", "nodepool", "capacity_type", "zone"),
		NodeClaimsDisrupted: t.counter("karpenter_nodeclaims_disrupted_total", Alpha,
			"NodeClaims that Karpenter deleted of its own accord.", disrupted...),
		NodeClaimTermination: t.histogram("karpenter_nodeclaims_termination_duration_seconds", Beta, exponential(1, 2, 12),
			"From the deletion of a NodeClaim to the removal of its finalizer.", "nodepool"),
		NodeClaimInstanceTermination: t.histogram("karpenter_nodeclaims_instance_termination_duration_seconds", Beta, exponential(1, 2, 11),
			"From the order to stop a machine to the cloud's word that it is gone.", "nodepool"),
		MachinesOrphaned: t.counter("karpenter_machines_orphaned_total", Alpha,
			"Machines that were found without NodeClaim, by what was done: adopted or terminated.", "outcome"),

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

		PodStartup: t.summary("karpenter_pods_startup_duration_seconds", Stable,
			"From the creation of a pod to Ready.").WithLabelValues().(prometheus.Summary),
		PodBound: t.histogram("karpenter_pods_bound_duration_seconds", Alpha, durations,
			"From the creation of a pod to its binding.").WithLabelValues().(prometheus.Histogram),
		PodProvisioningBound: t.histogram("karpenter_pods_provisioning_bound_duration_seconds", Alpha, durations,
			"From the first plan that has a place for a pod to its binding.").WithLabelValues().(prometheus.Histogram),
		PodProvisioningStartup: t.histogram("karpenter_pods_provisioning_startup_duration_seconds", Alpha, durations,
			"From the first plan that has a place for a pod to Ready.").WithLabelValues().(prometheus.Histogram),
		PodSchedulingDecision: t.histogram("karpenter_pods_scheduling_decision_duration_seconds", Alpha, durations,
			"From first sight of a waiting pod to the first decision about it.").WithLabelValues().(prometheus.Histogram),
		PodsDisruptionInitiated: t.counter("karpenter_pods_disruption_initiated_total", Alpha,
			"Pods that had to move because Karpenter deleted their NodeClaim.", disrupted...),
		PodEvictionRequests: t.counter("karpenter_pods_eviction_requests_total", Alpha,
			"Answers of the eviction API.", "code"),
		PodsDrained: t.counter("karpenter_pods_drained_total", Alpha,
			"Pods that were evicted or deleted to drain a node.", "reason"),

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
			"Plans that were cut short by the time they may take.", "controller"),
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

		DisruptionEvaluation: t.histogram("karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Beta, durations,
			"Time of one pass of a disruption method, with the wait for validation.", "reason", "consolidation_type"),
		DisruptionDecisions: t.counter("karpenter_voluntary_disruption_decisions_total", Stable,
			"Disruption commands that were started.", decided...),
		DisruptionDecisionsByPool: t.counter("karpenter_voluntary_disruption_decisions_by_nodepool_total", Alpha,
			"Disruption commands that were started, once for each pool concerned.", append([]string{"nodepool"}, decided...)...),
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
		ConsolidationScore: t.histogram("karpenter_consolidation_score", Alpha, scores,
			"Score of moves under policy Balanced.", balanced...),
		ConsolidationMoves: t.counter("karpenter_consolidation_moves_total", Alpha,
			"Moves judged under policy Balanced.", balanced...),

		CloudCalls: t.histogram("karpenter_cloudprovider_duration_seconds", Beta, prometheus.DefBuckets,
			"Time of calls to the cloud provider.", cloudCall...),
		CloudErrors: t.counter("karpenter_cloudprovider_errors_total", Beta,
			"Failed calls to the cloud provider.", append(cloudCall[:3:3], "error")...),
		BuildInfo: t.gauge("karpenter_build_info", Stable,
			"1, with the version of this program.", "version", "goversion", "goarch", "commit"),
		EventsDropped: t.counter("karpenter_events_dropped_total", Alpha,
			"Events that were not sent, because of the rate limit of their reason or because too many wait.", "reason"),

		ReconcileTotal: t.counter("controller_runtime_reconcile_total", Stable,
			"Steps of a loop for one object, by result.", "controller", "result"),
		ReconcileErrors: t.counter("controller_runtime_reconcile_errors_total", Stable,
			"Steps of a loop that failed.", "controller"),
		ReconcileTime: t.histogram("controller_runtime_reconcile_time_seconds", Stable, reconciles,
			"Time of one step of a loop.", "controller"),
		ReconcileMaxConcurrent: t.gauge("controller_runtime_max_concurrent_reconciles", Stable,
			"Workers of a loop.", "controller"),
		ReconcileActiveWorkers: t.gauge("controller_runtime_active_workers", Stable,
			"Workers of a loop that are busy.", "controller"),
		WorkqueueDepth: t.gauge("workqueue_depth", Stable,
			"Objects that wait for a step of a loop.", workqueued...),
		WorkqueueAdds: t.counter("workqueue_adds_total", Stable,
			"Objects handed to a loop.", workqueued...),
		ReconcilePanics: t.counter("controller_runtime_reconcile_panics_total", Stable,
			"Steps of a loop that ran into a bug of ours.", "controller"),
		WorkqueueRetries: t.counter("workqueue_retries_total", Stable,
			"Steps that will be repeated because they failed.", workqueued...),
		WorkqueueWait: t.histogram("workqueue_queue_duration_seconds", Stable, queues,
			"How long objects waited for a step of a loop.", workqueued...),
		WorkqueueWork: t.histogram("workqueue_work_duration_seconds", Stable, queues,
			"How long steps of a loop took.", workqueued...),
		WorkqueueUnfinished: t.gauge("workqueue_unfinished_work_seconds", Stable,
			"How long the steps that are under way have taken, all together.", workqueued...),
		WorkqueueLongest: t.gauge("workqueue_longest_running_processor_seconds", Stable,
			"How long the oldest step that is under way has taken.", workqueued...),
		ClientRequests: t.counter("client_go_request_total", Stable,
			"Requests to the API server.", "code", "method"),
		ClientRequestDuration: t.histogram("client_go_request_duration_seconds", Stable, exponential(.001, 1.5, 20),
			"Time of requests to the API server.", "verb", "group", "version", "kind", "subresource"),
		LeaderStatus: t.gauge("leader_election_master_status", Stable,
			"1 on the replica that acts.", "name"),
		LeaderSlowpath: t.counter("leader_election_slowpath_total", Stable,
			"Renewals of the lease for which the remembered lease was too old and had to be read again.", "name"),

		InterruptionReceived: t.counter("karpenter_interruption_received_messages_total", Stable,
			"Messages from the interruption queue.", "message_type"),
		InterruptionDeleted: t.counter("karpenter_interruption_deleted_messages_total", Stable,
			"Messages that were dealt with and removed from the interruption queue.").WithLabelValues(),
		InterruptionQueueDuration: t.histogram("karpenter_interruption_message_queue_duration_seconds", Stable, durations,
			"Age of messages of the interruption queue when they were dealt with.").WithLabelValues().(prometheus.Histogram),
		InterruptionStatusUnhealthy: t.counter("karpenter_interruption_instance_status_unhealthy_total", Alpha,
			"Machines whose status checks failed.", "category"),
		InstanceLaunchFailures: t.counter("karpenter_cloudprovider_instance_launch_failures_total", Alpha,
			"Launches that failed.", "zone", "zone_id", "capacity_type", "reason"),
		InstanceTerminationFailures: t.counter("karpenter_cloudprovider_instance_termination_failures_total", Alpha,
			"Terminations that failed.", "zone", "zone_id"),
		BatcherTime: t.histogram("karpenter_cloudprovider_batcher_batch_time_seconds", Beta, durations,
			"How long calls were collected before they were sent as one.", "batcher"),
		BatcherSize: t.histogram("karpenter_cloudprovider_batcher_batch_size", Beta, batchSizes,
			"How many calls were sent as one.", "batcher"),
		NodeClassUserData: t.gauge("karpenter_ec2nodeclasses_userdata_bytes", Alpha,
			"Size of the user data of a node class.", "nodeclass"),
		InstanceTypeCPU: t.scraped("karpenter_cloudprovider_instance_type_cpu_cores", Beta,
			"CPUs of an instance type.", "instance_type"),
		InstanceTypeMemory: t.scraped("karpenter_cloudprovider_instance_type_memory_bytes", Beta,
			"Memory of an instance type.", "instance_type"),
		OfferingAvailable: t.scraped("karpenter_cloudprovider_instance_type_offering_available", Beta,
			"1 while an offering can be had.", offering...),
		AWSRequests: t.counter("aws_sdk_go_request_total", Beta,
			"Requests to AWS, by the HTTP status of the answer; 0 when there was none.", awsCall...),
		AWSRetries: t.histogram("aws_sdk_go_request_retry_count", Beta, retries,
			"How often a request to AWS was repeated.", awsCall...),
		AWSRequestDuration: t.histogram("aws_sdk_go_request_duration_seconds", Beta, exponential(.01, 1.5, 20),
			"Time of requests to AWS, with all their attempts.", awsCall...),
		AWSAttempts: t.counter("aws_sdk_go_request_attempt_total", Beta,
			"Attempts of requests to AWS.", awsCall...),
		AWSAttemptDuration: t.histogram("aws_sdk_go_request_attempt_duration_seconds", Beta, exponential(.01, 1.5, 20),
			"Time of single attempts of requests to AWS.", awsCall...),
		OfferingPrice: t.scraped("karpenter_cloudprovider_instance_type_offering_price_estimate", Beta,
			"Hourly price of an offering.", offering...),
	}
	m.addConditions(t, kinds)
	m.rows = t.rows
	for _, kind := range []string{"multi", "single"} {
		m.DisruptionTimeouts.WithLabelValues(kind)
	}
	return m
}

// addConditions makes the metrics about conditions and deletion, one family for each kind and the older ones for all.
func (m *Metrics) addConditions(t *maker, kinds map[string][]string) {
	m.ConditionTransition = map[string]*prometheus.HistogramVec{}
	m.ConditionTransitions = map[string]*prometheus.CounterVec{}
	m.ObjectTermination = map[string]*prometheus.HistogramVec{}
	for _, kind := range sortedKeys(kinds) {
		extra := kinds[kind]
		m.ConditionTransition[kind] = t.histogram("operator_"+kind+"_status_condition_transition_seconds", Beta, exponential(.5, 2, 15),
			"How long a condition stood before it changed.", append([]string{"type", "status"}, extra...)...)
		m.ConditionTransitions[kind] = t.counter("operator_"+kind+"_status_condition_transitions_total", Beta,
			"Changes of a condition, by what it became.", append([]string{"type", "status", "reason"}, extra...)...)
		m.ObjectTermination[kind] = t.histogram("operator_"+kind+"_termination_duration_seconds", Beta, exponential(.5, 2, 15),
			"From the deletion of an object to its end.", extra...)
	}
	m.ConditionTransitionOld = t.histogram("operator_status_condition_transition_seconds", Deprecated, prometheus.DefBuckets,
		"How long a condition stood before it changed.", "type", "status", "group", "kind")
	m.ConditionTransitionsOld = t.counter("operator_status_condition_transitions_total", Deprecated,
		"Changes of a condition, by what it became.", "type", "status", "reason", "group", "kind")
	m.ObjectTerminationOld = t.histogram("operator_termination_duration_seconds", Deprecated, prometheus.DefBuckets,
		"From the deletion of an object to its end.", "group", "kind")
}

// Rows describes every metric that was registered, in the order of the table.
func (m *Metrics) Rows() []Row { return m.rows }
