package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// ofOthers are metrics of kubelets and of kube-state-metrics that rules and dashboards use, with their labels.
var ofOthers = map[string][]string{
	"container_memory_working_set_bytes":        {"container"},
	"container_cpu_usage_seconds_total":         {"container"},
	"kube_pod_container_resource_limits":        {"container", "resource"},
	"kube_pod_container_resource_requests":      {"container", "resource"},
	"process_cpu_seconds_total":                 nil,
	"process_resident_memory_bytes":             nil,
	"process_open_fds":                          nil,
	"process_start_time_seconds":                nil,
	"container_cpu_cfs_throttled_seconds_total": {"container"},
}

// target are the labels that a scrape adds.
var target = []string{"job", "namespace", "pod", "instance", "service", "cluster"}

// wellKnown are the labels of series about nodes that come from labels of nodes, and of whom a provider has more.
var wellKnown = []string{"zone", "region", "instance_type", "arch", "os", "capacity_type", "instance_family", "instance_size", "instance_category"}

// exist is every metric that Karpenter has, with its labels.
func exist(t *testing.T) map[string][]string {
	t.Helper()
	kinds := telemetry.ConditionKinds(awsv1.LabelNodeClass)
	all := maps.Clone(ofOthers)
	for _, r := range slices.Concat(telemetry.NewMetrics(prometheus.NewRegistry(), kinds).Rows(), telemetry.GaugeRows(), telemetry.ConditionGaugeRows(kinds)) {
		own := slices.Clone(r.Labels)
		if slices.Contains(own, "<well-known labels>") {
			own = append(own, wellKnown...)
		}
		all[r.Name] = own
		switch r.Kind {
		case "histogram":
			all[r.Name+"_bucket"] = append(slices.Clone(own), "le")
			all[r.Name+"_sum"], all[r.Name+"_count"] = own, own
		case "summary":
			all[r.Name] = append(slices.Clone(own), "quantile")
			all[r.Name+"_sum"], all[r.Name+"_count"] = own, own
		}
	}
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector())
	families, err := process.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		all[f.GetName()] = []string{"quantile"}
	}
	for _, g := range readRules(t) {
		for _, r := range g.Rules {
			if r.Record != "" {
				all[r.Record] = []string{"resource_type", "controller"}
			}
		}
	}
	return all
}

// wrong says what is wrong about a query: it does not parse, or names a metric or a label that does not exist.
func wrong(known map[string][]string, query string) []string {
	expr, err := language().ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			own, ok := known[n.Name]
			if !ok {
				found = append(found, "there is no metric "+n.Name)
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && ok && !slices.Contains(own, m.Name) && !slices.Contains(target, m.Name) {
					found = append(found, n.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			found = append(found, missing(known, n.Expr, n.Grouping, n.Without)...)
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && m.On {
				found = append(found, missing(known, n.LHS, m.MatchingLabels, false)...)
				found = append(found, missing(known, n.RHS, m.MatchingLabels, false)...)
			}
		}
		return nil
	})
	return found
}

// missing are the labels that no metric of an expression has.
func missing(known map[string][]string, expr parser.Expr, names []string, without bool) []string {
	if without {
		return nil
	}
	var found []string
	for _, name := range names {
		has := slices.Contains(target, name)
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if v, ok := node.(*parser.VectorSelector); ok {
				has = has || slices.Contains(known[v.Name], name)
			}
			return nil
		})
		if !has {
			found = append(found, "nothing in "+expr.String()+" has the label "+name)
		}
	}
	return found
}

// Rules that name what does not exist never fire, and nobody notices.
func TestRulesNameWhatExists(t *testing.T) {
	known := exist(t)
	for _, g := range readRules(t) {
		for _, r := range g.Rules {
			for _, w := range wrong(known, r.Expr) {
				t.Errorf("%s%s: %s", r.Alert, r.Record, w)
			}
		}
	}
}

// A dashboard is what is read of one here.
type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

type panel struct {
	ID                       int
	Title, Type, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, LegendFormat string }
}

// inVariable is the query of a variable, with its metric and label; used finds variables in a query.
var (
	inVariable = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	used       = regexp.MustCompile(`\$(\w+)`)
)

// inLegend is a label that a legend shows.
var inLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestDashboardsNameWhatExists(t *testing.T) {
	known := exist(t)
	files, err := filepath.Glob("../../charts/karpenter/monitoring/dashboards/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, want 5: %v", len(files), err)
	}
	uids := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := filepath.Base(file)
		if d.Title == "" || d.UID == "" || uids[d.UID] || len(d.Panels) < 5 {
			t.Errorf("%s: title %q, uid %q, %d panels", name, d.Title, d.UID, len(d.Panels))
		}
		uids[d.UID] = true
		variables := map[string]bool{"__rate_interval": true, "__range": true} // Grafana's own
		for _, v := range d.Templating.List {
			variables[v.Name] = true
			if v.Type != "query" {
				continue
			}
			m := inVariable.FindStringSubmatch(fmt.Sprint(v.Query))
			if m == nil {
				t.Errorf("%s, variable %s: what is %v?", name, v.Name, v.Query)
				continue
			}
			for _, w := range wrong(known, "sum by ("+m[2]+") ("+m[1]+")") {
				t.Errorf("%s, variable %s: %s", name, v.Name, w)
			}
		}
		var taken [200][24]bool
		for _, p := range d.Panels {
			if len(p.Targets) == 0 || p.Title == "" {
				t.Errorf("%s: panel %q shows nothing", name, p.Title)
			}
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
					if taken[y][x] {
						t.Fatalf("%s: panel %q lies on another", name, p.Title)
					}
					taken[y][x] = true
				}
			}
			for _, q := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$nodepool", ".*").Replace(q.Expr)
				problems := wrong(known, expr)
				for _, m := range used.FindAllStringSubmatch(q.Expr, -1) {
					if !variables[m[1]] {
						problems = append(problems, "there is no variable "+m[1])
					}
				}
				if parsed, err := language().ParseExpr(expr); err == nil {
					for _, m := range inLegend.FindAllStringSubmatch(q.LegendFormat, -1) {
						problems = append(problems, missing(known, parsed, m[1:], false)...)
					}
				}
				for _, w := range problems {
					t.Errorf("%s, %s: %s", name, p.Title, w)
				}
			}
		}
	}
}

// What people ask about Karpenter v1, in dashboards, alerts and level objectives of their own, has an answer here.
func TestQueriesThatPeopleHave(t *testing.T) {
	known := exist(t)
	for _, query := range []string{
		`sum by (nodepool) (karpenter_nodes_allocatable{resource_type="cpu", nodepool!=""})`,
		`count by (nodepool, zone, capacity_type, instance_type, arch) (karpenter_nodes_allocatable{resource_type="cpu"})`,
		`sum(karpenter_nodes_total_pod_requests{resource_type="memory"}) / sum(karpenter_nodes_allocatable{resource_type="memory"})`,
		`sum by (node_name) (karpenter_nodes_total_daemon_requests{resource_type="cpu"})`,
		`karpenter_nodes_total_pod_limits`, `karpenter_nodes_total_daemon_limits`, `karpenter_nodes_system_overhead`,
		`max by (node_name, phase, managed) (karpenter_nodes_current_lifetime_seconds)`,
		`karpenter_cluster_utilization_percent{resource_type="cpu"}`,
		`sum by (nodepool) (karpenter_nodepools_usage{resource_type="cpu"}) / sum by (nodepool) (karpenter_nodepools_limit{resource_type="cpu"})`,
		`karpenter_nodepools_allowed_disruptions{reason="Underutilized"} - karpenter_nodepools_nodes_consuming_budgets`,
		`sum(karpenter_nodepools_cost_total)`,
		`sum by (phase, scheduled, nodepool, zone, arch, capacity_type, instance_type, owner, ready, managed, node, name, namespace) (karpenter_pods_state)`,
		`karpenter_pods_startup_duration_seconds{quantile="0.99"}`,
		`histogram_quantile(0.9, sum by (le) (rate(karpenter_pods_bound_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.9, rate(karpenter_pods_provisioning_bound_duration_seconds_bucket[5m]))`,
		`histogram_quantile(0.9, rate(karpenter_pods_provisioning_startup_duration_seconds_bucket[5m]))`,
		`histogram_quantile(0.9, rate(karpenter_pods_scheduling_decision_duration_seconds_bucket[5m]))`,
		`max by (namespace, name) (karpenter_pods_unstarted_time_seconds)`, `karpenter_pods_unbound_time_seconds`,
		`karpenter_pods_provisioning_unbound_time_seconds`, `karpenter_pods_provisioning_unstarted_time_seconds`,
		`karpenter_pods_provisioning_scheduling_undecided_time_seconds`,
		`sum by (code) (rate(karpenter_pods_eviction_requests_total[5m]))`, `sum by (reason) (rate(karpenter_pods_drained_total[5m]))`,
		`sum by (reason, nodepool, capacity_type, consolidation_policy, termination_mode) (karpenter_pods_disruption_initiated_total)`,
		`sum by (reason, nodepool, min_values_relaxed) (increase(karpenter_nodeclaims_created_total[1h]))`,
		`sum by (nodepool, capacity_type, zone) (increase(karpenter_nodeclaims_terminated_total[1h]))`,
		`sum by (reason, nodepool, capacity_type) (increase(karpenter_nodeclaims_disrupted_total{reason="spot_interrupted"}[1h]))`,
		`sum by (condition, image_id) (karpenter_nodeclaims_unhealthy_disrupted_total)`,
		`histogram_quantile(0.9, sum by (le, nodepool) (rate(karpenter_nodeclaims_termination_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.9, rate(karpenter_nodeclaims_instance_termination_duration_seconds_bucket[5m]))`,
		`sum by (nodepool, zone) (increase(karpenter_nodes_created_total[1h]))`, `sum by (nodepool, zone) (increase(karpenter_nodes_terminated_total[1h]))`,
		`karpenter_nodes_drained_total{nodepool="default"}`, `karpenter_nodes_termination_duration_seconds{quantile="0.9"}`,
		`histogram_quantile(0.5, rate(karpenter_nodes_lifetime_duration_seconds_bucket[1d]))`,
		`histogram_quantile(0.99, sum by (le) (rate(karpenter_scheduler_scheduling_duration_seconds_bucket{controller="provisioner"}[5m])))`,
		`karpenter_scheduler_queue_depth`, `max by (scheduling_id) (karpenter_scheduler_unfinished_work_seconds)`, `karpenter_scheduler_ignored_pods_count`,
		`karpenter_scheduler_unschedulable_pods_count{controller="provisioner"}`, `sum by (zone) (karpenter_scheduler_pending_pods_by_effective_zone_count)`,
		`histogram_quantile(0.9, sum by (le, reason) (rate(karpenter_voluntary_disruption_decision_evaluation_duration_seconds_bucket[5m])))`,
		`sum by (decision, reason, consolidation_type) (rate(karpenter_voluntary_disruption_decisions_total[5m]))`,
		`karpenter_voluntary_disruption_decisions_by_nodepool_total{nodepool="default"}`, `karpenter_voluntary_disruption_eligible_nodes{reason="underutilized"}`,
		`karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type="multi"}`,
		`karpenter_voluntary_disruption_failed_validations_total{consolidation_type="single"}`, `karpenter_voluntary_disruption_queue_failures_total{decision="replace"}`,
		`histogram_quantile(0.5, rate(karpenter_consolidation_score_bucket{policy="Balanced"}[1h]))`, `karpenter_consolidation_moves_total{decision="rejected"}`,
		`karpenter_cluster_state_node_count`, `karpenter_cluster_state_synced == 0`, `karpenter_cluster_state_unsynced_time_seconds > 60`,
		`karpenter_build_info{version!=""}`,
		`histogram_quantile(0.9, sum by (le, method, provider, controller) (rate(karpenter_cloudprovider_duration_seconds_bucket[5m])))`,
		`sum by (error, method) (rate(karpenter_cloudprovider_errors_total[5m]))`,
		`karpenter_cloudprovider_instance_type_offering_available{capacity_type="spot"}`, `karpenter_cloudprovider_instance_type_cpu_cores`,
		`min by (instance_type, capacity_type, zone) (karpenter_cloudprovider_instance_type_offering_price_estimate)`, `karpenter_cloudprovider_instance_type_memory_bytes`,
		`sum by (zone, zone_id, capacity_type, reason) (karpenter_cloudprovider_instance_launch_failures_total)`, `karpenter_cloudprovider_instance_termination_failures_total{zone_id="a"}`,
		`rate(karpenter_cloudprovider_batcher_batch_time_seconds_sum{batcher="create_fleet"}[5m])`, `karpenter_cloudprovider_batcher_batch_size_count`,
		`karpenter_ec2nodeclasses_userdata_bytes{nodeclass="default"}`,
		`sum by (message_type) (rate(karpenter_interruption_received_messages_total[5m]))`, `rate(karpenter_interruption_deleted_messages_total[5m])`,
		`histogram_quantile(0.9, rate(karpenter_interruption_message_queue_duration_seconds_bucket[5m]))`, `karpenter_interruption_instance_status_unhealthy_total{category="x"}`,
		`sum by (service, action, code) (rate(aws_sdk_go_request_total[5m]))`, `histogram_quantile(0.9, rate(aws_sdk_go_request_duration_seconds_bucket[5m]))`,
		`rate(aws_sdk_go_request_retry_count_sum[5m])`, `sum by (code) (rate(aws_sdk_go_request_attempt_total[5m]))`, `aws_sdk_go_request_attempt_duration_seconds_count`,
		`sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))`, `rate(controller_runtime_reconcile_errors_total{controller="interruption"}[5m])`,
		`controller_runtime_terminal_reconcile_errors_total`, `controller_runtime_reconcile_panics_total`, `controller_runtime_reconcile_timeouts_total`,
		`histogram_quantile(0.99, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))`,
		`controller_runtime_active_workers / on (controller) controller_runtime_max_concurrent_reconciles`,
		`sum by (name, priority) (workqueue_depth)`, `rate(workqueue_adds_total[5m])`, `rate(workqueue_retries_total[5m])`, `workqueue_unfinished_work_seconds`,
		`histogram_quantile(0.99, rate(workqueue_queue_duration_seconds_bucket[5m]))`, `histogram_quantile(0.99, rate(workqueue_work_duration_seconds_bucket[5m]))`,
		`workqueue_longest_running_processor_seconds`, `sum by (code, method) (rate(client_go_request_total[5m]))`,
		`histogram_quantile(0.99, sum by (le, verb, group, version, kind, subresource) (rate(client_go_request_duration_seconds_bucket[5m])))`,
		`leader_election_master_status{name="karpenter-leader-election"}`, `leader_election_slowpath_total`,
		`operator_nodeclaim_status_condition_count{type="Launched", status="False", reason="x"}`, `operator_nodeclaim_status_condition_current_status_seconds`,
		`histogram_quantile(0.9, sum by (le, karpenter_sh_nodepool) (rate(operator_nodeclaim_status_condition_transition_seconds_bucket{type="Initialized", status="Unknown"}[1h])))`,
		`operator_nodeclaim_status_condition_transitions_total{karpenter_k8s_aws_ec2nodeclass="default"}`, `operator_nodeclaim_termination_current_time_seconds{name="x"}`,
		`rate(operator_nodeclaim_termination_duration_seconds_sum[5m])`, `operator_node_status_condition_count{type="Ready", karpenter_sh_initialized="true"}`,
		`operator_node_termination_current_time_seconds`, `operator_nodepool_status_condition_count{type="NodeRegistrationHealthy"}`,
		`operator_ec2nodeclass_status_condition_count{type="Ready", name="default"}`, `operator_ec2nodeclass_status_condition_transitions_total`,
		`operator_status_condition_count{kind="NodePool", group="karpenter.sh"}`, `operator_status_condition_transition_seconds_count`, `operator_termination_duration_seconds_count`,
		`go_goroutines`, `go_memstats_heap_inuse_bytes`, `rate(process_cpu_seconds_total[5m])`,
	} {
		for _, w := range wrong(known, query) {
			t.Errorf("%s: %s", query, w)
		}
	}
}

// What is wrong is found, else the tests above find nothing.
func TestWrongNamesAreFound(t *testing.T) {
	known := exist(t)
	for query, want := range map[string]string{
		`karpenter_nodes_created`:                                        "there is no metric karpenter_nodes_created",
		`karpenter_nodes_created_total{pool="x"}`:                        "karpenter_nodes_created_total has no label pool",
		`sum by (pool) (karpenter_nodes_created_total)`:                  "nothing in karpenter_nodes_created_total has the label pool",
		`karpenter_nodes_created_total / on (pool) karpenter_build_info`: "nothing in karpenter_nodes_created_total has the label pool",
		`sum(karpenter_nodes_created_total`:                              "unclosed left parenthesis",
	} {
		if got := strings.Join(wrong(known, query), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
