package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// known is what dashboards and alerts that were written for Karpenter before rely on: names, kinds and labels. A line may only be
// added. What has no line here is ours alone.
const known = `
counter   karpenter_nodeclaims_created_total reason nodepool min_values_relaxed
counter   karpenter_nodeclaims_terminated_total nodepool capacity_type zone
counter   karpenter_nodeclaims_disrupted_total reason nodepool capacity_type consolidation_policy termination_mode
histogram karpenter_nodeclaims_termination_duration_seconds nodepool
histogram karpenter_nodeclaims_instance_termination_duration_seconds nodepool
counter   karpenter_nodes_created_total nodepool zone
counter   karpenter_nodes_terminated_total nodepool zone
counter   karpenter_nodes_drained_total nodepool
summary   karpenter_nodes_termination_duration_seconds nodepool
histogram karpenter_nodes_lifetime_duration_seconds nodepool
gauge     karpenter_nodes_current_lifetime_seconds node_name nodepool phase managed <well-known labels>
gauge     karpenter_nodes_allocatable node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_nodes_total_pod_requests node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_nodes_total_pod_limits node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_nodes_total_daemon_requests node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_nodes_total_daemon_limits node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_nodes_system_overhead node_name nodepool phase managed <well-known labels> resource_type
gauge     karpenter_cluster_utilization_percent resource_type
gauge     karpenter_nodepools_limit resource_type nodepool
gauge     karpenter_nodepools_usage resource_type nodepool
gauge     karpenter_nodepools_cost_total nodepool
gauge     karpenter_nodepools_disruption_paused nodepool
gauge     karpenter_nodepools_disruption_plans_waiting nodepool
counter   karpenter_nodepools_cost_tracker_errors_total nodepool
gauge     karpenter_nodepools_allowed_disruptions nodepool reason
gauge     karpenter_nodepools_nodes_consuming_budgets nodepool reason
gauge     karpenter_pods_state name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed
summary   karpenter_pods_startup_duration_seconds
gauge     karpenter_pods_unstarted_time_seconds name namespace
histogram karpenter_pods_bound_duration_seconds dynamic_resources
gauge     karpenter_pods_unbound_time_seconds name namespace dynamic_resources
histogram karpenter_pods_provisioning_bound_duration_seconds dynamic_resources
gauge     karpenter_pods_provisioning_unbound_time_seconds name namespace dynamic_resources
histogram karpenter_pods_provisioning_startup_duration_seconds
gauge     karpenter_pods_provisioning_unstarted_time_seconds name namespace
gauge     karpenter_pods_provisioning_scheduling_undecided_time_seconds name namespace
histogram karpenter_pods_scheduling_decision_duration_seconds
counter   karpenter_pods_disruption_initiated_total reason nodepool capacity_type consolidation_policy termination_mode
counter   karpenter_pods_eviction_requests_total code
counter   karpenter_pods_drained_total reason
histogram karpenter_scheduler_scheduling_duration_seconds controller
gauge     karpenter_scheduler_queue_depth controller scheduling_id
gauge     karpenter_scheduler_unfinished_work_seconds controller scheduling_id
gauge     karpenter_scheduler_ignored_pods_count
gauge     karpenter_scheduler_unschedulable_pods_count controller
gauge     karpenter_scheduler_pending_pods_by_effective_zone_count controller zone
histogram karpenter_voluntary_disruption_decision_evaluation_duration_seconds reason consolidation_type
counter   karpenter_voluntary_disruption_decisions_total decision reason consolidation_type
counter   karpenter_voluntary_disruption_terminate_first_decisions_total nodepool reason terminate_first_reason
counter   karpenter_voluntary_disruption_decisions_by_nodepool_total nodepool decision reason consolidation_type
gauge     karpenter_voluntary_disruption_eligible_nodes reason
counter   karpenter_voluntary_disruption_consolidation_timeouts_total consolidation_type
counter   karpenter_voluntary_disruption_failed_validations_total consolidation_type
counter   karpenter_voluntary_disruption_queue_failures_total decision reason consolidation_type
counter   karpenter_nodes_reboots_total result
histogram karpenter_nodes_reboot_duration_seconds result
histogram karpenter_nodes_reboot_recovery_duration_seconds
histogram karpenter_consolidation_score decision nodepool policy
counter   karpenter_consolidation_moves_total decision nodepool policy
gauge     karpenter_cluster_state_node_count
gauge     karpenter_cluster_state_synced
gauge     karpenter_cluster_state_unsynced_time_seconds
gauge     karpenter_build_info version goversion goarch commit
histogram karpenter_cloudprovider_duration_seconds controller method provider
counter   karpenter_cloudprovider_errors_total controller method provider error nodepool
counter   karpenter_interruption_received_messages_total message_type
counter   karpenter_interruption_deleted_messages_total
histogram karpenter_interruption_message_queue_duration_seconds
counter   karpenter_interruption_instance_status_unhealthy_total category
gauge     karpenter_cloudprovider_instance_type_offering_available instance_type capacity_type zone
gauge     karpenter_cloudprovider_instance_type_offering_price_estimate instance_type capacity_type zone
gauge     karpenter_cloudprovider_instance_type_cpu_cores instance_type
gauge     karpenter_cloudprovider_instance_type_memory_bytes instance_type
counter   karpenter_cloudprovider_instance_launch_failures_total zone zone_id capacity_type reason
counter   karpenter_cloudprovider_instance_termination_failures_total zone zone_id
histogram karpenter_cloudprovider_batcher_batch_time_seconds batcher
histogram karpenter_cloudprovider_batcher_batch_size batcher
gauge     karpenter_ec2nodeclasses_userdata_bytes nodeclass
counter   aws_sdk_go_request_total service action code
histogram aws_sdk_go_request_retry_count service action code
histogram aws_sdk_go_request_duration_seconds service action code
counter   aws_sdk_go_request_attempt_total service action code
histogram aws_sdk_go_request_attempt_duration_seconds service action code
counter   controller_runtime_reconcile_total controller result
counter   controller_runtime_reconcile_errors_total controller
counter   controller_runtime_reconcile_panics_total controller
counter   controller_runtime_conversion_webhook_panics_total
counter   controller_runtime_terminal_reconcile_errors_total controller
counter   controller_runtime_reconcile_timeouts_total controller
histogram controller_runtime_reconcile_time_seconds controller
gauge     controller_runtime_max_concurrent_reconciles controller
gauge     controller_runtime_active_workers controller
gauge     workqueue_depth name controller priority
counter   workqueue_adds_total name controller
histogram workqueue_queue_duration_seconds name controller
histogram workqueue_work_duration_seconds name controller
gauge     workqueue_unfinished_work_seconds name controller
gauge     workqueue_longest_running_processor_seconds name controller
counter   workqueue_retries_total name controller
counter   client_go_request_total code method
histogram client_go_request_duration_seconds verb group version kind subresource
gauge     leader_election_master_status name
counter   leader_election_slowpath_total name
gauge     operator_nodepool_status_condition_count namespace name type status reason
gauge     operator_nodepool_status_condition_current_status_seconds namespace name type status reason
histogram operator_nodepool_status_condition_transition_seconds type status to_status
counter   operator_nodepool_status_condition_transitions_total type status reason
gauge     operator_nodepool_termination_current_time_seconds namespace name
histogram operator_nodepool_termination_duration_seconds
gauge     operator_ec2nodeclass_status_condition_count namespace name type status reason
gauge     operator_ec2nodeclass_status_condition_current_status_seconds namespace name type status reason
histogram operator_ec2nodeclass_status_condition_transition_seconds type status to_status
counter   operator_ec2nodeclass_status_condition_transitions_total type status reason
gauge     operator_ec2nodeclass_termination_current_time_seconds namespace name
histogram operator_ec2nodeclass_termination_duration_seconds
gauge     operator_nodeclaim_status_condition_count namespace name type status reason karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
gauge     operator_nodeclaim_status_condition_current_status_seconds namespace name type status reason karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
histogram operator_nodeclaim_status_condition_transition_seconds type status to_status karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
counter   operator_nodeclaim_status_condition_transitions_total type status reason karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
gauge     operator_nodeclaim_termination_current_time_seconds namespace name karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
histogram operator_nodeclaim_termination_duration_seconds karpenter_sh_nodepool karpenter_k8s_aws_ec2nodeclass
gauge     operator_node_status_condition_count namespace name type status reason karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
gauge     operator_node_status_condition_current_status_seconds namespace name type status reason karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
histogram operator_node_status_condition_transition_seconds type status to_status karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
counter   operator_node_status_condition_transitions_total type status reason karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
gauge     operator_node_termination_current_time_seconds namespace name karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
histogram operator_node_termination_duration_seconds karpenter_sh_nodepool karpenter_sh_initialized karpenter_k8s_aws_ec2nodeclass
gauge     operator_status_condition_count namespace name group kind type status reason
gauge     operator_status_condition_current_status_seconds namespace name group kind type status reason
histogram operator_status_condition_transition_seconds type status to_status group kind
counter   operator_status_condition_transitions_total type status reason group kind
gauge     operator_termination_current_time_seconds namespace name group kind
histogram operator_termination_duration_seconds group kind
`

func TestMetricsAreWhatDashboardsKnow(t *testing.T) {
	kinds := ConditionKinds("karpenter.k8s.aws/ec2nodeclass")
	rows := map[string]Row{}
	for _, r := range slices.Concat(NewMetrics(prometheus.NewRegistry(), kinds).Rows(), GaugeRows(), ConditionGaugeRows(kinds)) {
		if _, twice := rows[r.Name]; twice || r.Help == "" {
			t.Errorf("row of %s: %+v", r.Name, r)
		}
		rows[r.Name] = r
	}
	for line := range strings.Lines(strings.TrimSpace(known)) {
		words := strings.Fields(strings.ReplaceAll(line, "<well-known labels>", "<well-known_labels>"))
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_labels>", " labels>")
		}
		r := rows[words[1]]
		if diff := cmp.Diff(words, append([]string{r.Kind, r.Name}, r.Labels...)); diff != "" {
			t.Errorf("%s (-known +ours):\n%s", words[1], diff)
		}
	}
}

// Averages and quantiles over old and new data need the same buckets.
func TestBucketsAreWhatDashboardsKnow(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, ConditionKinds("karpenter.k8s.aws/ec2nodeclass"))
	m.NodeClaimTermination.WithLabelValues("p").Observe(1)
	m.NodeLifetime.WithLabelValues("p").Observe(1)
	m.NodeTermination.WithLabelValues("p").Observe(1)
	m.ConsolidationScore.WithLabelValues("approved", "p", "Balanced").Observe(1)
	m.SchedulingDuration.WithLabelValues("provisioner").Observe(1)
	m.ConditionTransition["nodepool"].WithLabelValues("Ready", "Unknown", "True").Observe(1)
	m.ClientRequestDuration.WithLabelValues("GET", "", "v1", "Pod", "").Observe(1)
	m.AWSRequestDuration.WithLabelValues("EC2", "CreateFleet", "200").Observe(1)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	type edges struct {
		count       int
		first, last float64
	}
	got := map[string]edges{}
	for _, f := range families {
		for _, metric := range f.Metric {
			if b := metric.GetHistogram().GetBucket(); len(b) > 0 {
				got[f.GetName()] = edges{len(b), b[0].GetUpperBound(), b[len(b)-1].GetUpperBound()}
			}
			if q := metric.GetSummary().GetQuantile(); len(q) > 0 {
				got[f.GetName()] = edges{len(q), q[0].GetQuantile(), q[len(q)-1].GetQuantile()}
			}
		}
	}
	want := map[string]edges{
		"karpenter_nodeclaims_termination_duration_seconds":     {12, 1, 2048},
		"karpenter_nodes_lifetime_duration_seconds":             {21, 900, 30 * 86400},
		"karpenter_nodes_termination_duration_seconds":          {5, 0, 1},
		"karpenter_consolidation_score":                         {8, .1, 10},
		"karpenter_scheduler_scheduling_duration_seconds":       {45, .005, 600},
		"operator_nodepool_status_condition_transition_seconds": {15, .5, 8192},
		"client_go_request_duration_seconds":                    {7, .001, 0.001 * 1477.8918800354004},
		"aws_sdk_go_request_duration_seconds":                   {7, .01, 0.01 * 1477.8918800354004},
	}
	for name, w := range want {
		g := got[name]
		if g.count != w.count || !near(g.first, w.first) || !near(g.last, w.last) {
			t.Errorf("%s has %+v, want %+v", name, g, w)
		}
	}
}

// What there is for each loop, kind of object or action of AWS has few buckets, each with a bound that dashboards know.
func TestBucketsOfManySeriesAreFewAndKnown(t *testing.T) {
	known := map[string]struct {
		ours, known []float64
	}{
		"loops":   {turns, durations},
		"queues":  {queues, exponential(1e-8, 10, 12)},
		"calls":   {calls, exponential(.001, 1.5, 20)},
		"actions": {actions, exponential(.01, 1.5, 20)},
		"retries": {retries, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
	}
	for name, tc := range known {
		for _, bound := range tc.ours {
			if !slices.Contains(tc.known, bound) {
				t.Errorf("%s: bound %v is not one of %v", name, bound, tc.known)
			}
		}
		if len(tc.ours) > 10 || !slices.IsSorted(tc.ours) {
			t.Errorf("%s: %v", name, tc.ours)
		}
	}
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, nil)
	loop := m.Loop("one", 1)
	if got := histograms(t, reg); len(got) != 0 {
		t.Errorf("a loop that took no turn yet has %v", got)
	}
	loop.Waited(time.Second)
	_ = loop.Turn(t.Context(), "turning", func(context.Context) error { return nil })
	m.ClientRequestDuration.WithLabelValues("GET", "", "v1", "Pod", "").Observe(1)
	m.AWSRequestDuration.WithLabelValues("EC2", "CreateFleet", "200").Observe(1)
	m.AWSAttemptDuration.WithLabelValues("EC2", "CreateFleet", "200").Observe(1)
	m.AWSRetries.WithLabelValues("EC2", "CreateFleet", "200").Observe(1)
	m.DisruptionEvaluation.WithLabelValues("drifted", "").Observe(1)
	want := map[string]int{"controller_runtime_reconcile_time_seconds": len(turns), "workqueue_queue_duration_seconds": len(queues),
		"workqueue_work_duration_seconds": len(queues), "client_go_request_duration_seconds": len(calls), "aws_sdk_go_request_duration_seconds": len(actions),
		"aws_sdk_go_request_attempt_duration_seconds": len(actions), "aws_sdk_go_request_retry_count": len(retries),
		"karpenter_voluntary_disruption_decision_evaluation_duration_seconds": len(turns)}
	if diff := cmp.Diff(want, histograms(t, reg)); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

// histograms counts the buckets of each family that has series and labels.
func histograms(t *testing.T, reg *prometheus.Registry) map[string]int {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range families {
		for _, metric := range f.Metric {
			if b := metric.GetHistogram().GetBucket(); len(b) > 0 && len(metric.Label) > 0 {
				out[f.GetName()] = len(b)
			}
		}
	}
	return out
}

func near(a, b float64) bool { return a-b < 1e-6*b+1e-12 && b-a < 1e-6*b+1e-12 }

func TestBugsAreCounted(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	reg := prometheus.NewRegistry()
	NewMetrics(reg, ConditionKinds())
	read := func() float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "karpenter_bugs_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
	before := read()
	bug.Reportf("two and two are %d", 5)
	if got := read(); got != before+1 {
		t.Errorf("after a bug the metric went from %v to %v", before, got)
	}
}
