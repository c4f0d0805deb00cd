package telemetry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// A HistoricName is the name of a metric in earlier releases. Its values are made from those of its successor.
type HistoricName struct {
	Name     string // without the prefix that all have
	Releases string // that had it
	Of       string // its successor; none if empty
	Labels   string // its labels, with spaces between them; old=new if the successor's label has another name
	Only     string // label=value pairs: only series of the successor with these values count
	Instead  string // what users can use if there is no successor
	Least    bool   // series that become one give their least value and not their sum
}

// historicPrefix begins every name of the table.
const historicPrefix = "karpenter_"

// historicNames has all names of metrics of earlier releases that are not used any more, with or without a successor.
var historicNames = []HistoricName{
	{Name: "allocation_controller_scheduling_duration_seconds", Releases: "to 0.26",
		Of: "karpenter_scheduler_scheduling_duration_seconds", Only: "controller=provisioner"},
	{Name: "provisioner_scheduling_duration_seconds", Releases: "0.27 to 0.37",
		Of: "karpenter_scheduler_scheduling_duration_seconds", Only: "controller=provisioner"},
	{Name: "provisioner_scheduling_simulation_duration_seconds", Releases: "0.30 to 0.37",
		Of: "karpenter_scheduler_scheduling_duration_seconds"},
	{Name: "provisioner_scheduling_queue_depth", Releases: "0.36 to 0.37", Of: "karpenter_scheduler_queue_depth"},
	{Name: "pods_startup_time_seconds", Releases: "to 0.37", Of: "karpenter_pods_startup_duration_seconds"},
	{Name: "pods_scheduling_undecided_time_seconds", Releases: "1.1 to 1.2",
		Of: "karpenter_pods_provisioning_scheduling_undecided_time_seconds", Labels: "name namespace"},
	{Name: "ignored_pod_count", Releases: "1.1 to 1.2", Of: "karpenter_scheduler_ignored_pods_count"},
	{Name: "pods_pods_drained_total", Releases: "1.5 to 1.6", Of: "karpenter_pods_drained_total", Labels: "reason"},

	{Name: "provisioner_limit", Releases: "0.26 to 0.32", Of: "karpenter_nodepools_limit", Labels: "resource_type provisioner=nodepool"},
	{Name: "provisioner_usage", Releases: "0.26 to 0.32", Of: "karpenter_nodepools_usage", Labels: "resource_type provisioner=nodepool"},
	{Name: "provisioner_usage_pct", Releases: "0.26 to 0.32", Instead: "karpenter_nodepools_usage divided by karpenter_nodepools_limit"},
	{Name: "nodepool_limit", Releases: "0.30 to 0.37", Of: "karpenter_nodepools_limit", Labels: "resource_type nodepool"},
	{Name: "nodepool_usage", Releases: "0.30 to 0.37", Of: "karpenter_nodepools_usage", Labels: "resource_type nodepool"},
	{Name: "nodepool_usage_pct", Releases: "0.30 to 0.31", Instead: "karpenter_nodepools_usage divided by karpenter_nodepools_limit"},

	{Name: "nodes_created", Releases: "0.26 to 0.37", Of: "karpenter_nodes_created_total", Labels: "nodepool provisioner=nodepool"},
	{Name: "nodes_terminated", Releases: "0.26 to 0.37", Of: "karpenter_nodes_terminated_total", Labels: "nodepool provisioner=nodepool"},
	{Name: "machines_created", Releases: "0.26 to 0.32", Of: "karpenter_nodeclaims_created_total", Labels: "reason provisioner=nodepool"},
	{Name: "machines_terminated", Releases: "0.26 to 0.32", Of: "karpenter_nodeclaims_terminated_total", Labels: "provisioner=nodepool"},
	{Name: "machines_launched", Releases: "0.28 to 0.32", Of: claimsChanged, Labels: "provisioner=" +
		NodePoolSeriesLabel, Only: "type=Launched status=True"},
	{Name: "machines_registered", Releases: "0.28 to 0.32", Of: claimsChanged, Labels: "provisioner=" +
		NodePoolSeriesLabel, Only: "type=Registered status=True"},
	{Name: "machines_initialized", Releases: "0.28 to 0.32", Of: claimsChanged, Labels: "provisioner=" +
		NodePoolSeriesLabel, Only: "type=Initialized status=True"},
	{Name: "machines_disrupted", Releases: "0.30 to 0.32", Of: "karpenter_nodeclaims_disrupted_total",
		Labels: "type=reason provisioner=nodepool"},
	{Name: "machines_drifted", Releases: "0.30 to 0.32", Of: "karpenter_nodeclaims_disrupted_total",
		Labels: "type=reason provisioner=nodepool", Only: "reason=drifted"},
	{Name: "nodeclaims_created", Releases: "0.30 to 0.37", Of: "karpenter_nodeclaims_created_total", Labels: "reason nodepool"},
	{Name: "nodeclaims_terminated", Releases: "0.30 to 0.37", Of: "karpenter_nodeclaims_terminated_total",
		Labels: "nodepool capacity_type"},
	{Name: "nodeclaims_launched", Releases: "0.30 to 0.37", Of: claimsChanged, Labels: "nodepool=" +
		NodePoolSeriesLabel, Only: "type=Launched status=True"},
	{Name: "nodeclaims_registered", Releases: "0.30 to 0.37", Of: claimsChanged, Labels: "nodepool=" +
		NodePoolSeriesLabel, Only: "type=Registered status=True"},
	{Name: "nodeclaims_initialized", Releases: "0.30 to 0.37", Of: claimsChanged, Labels: "nodepool=" +
		NodePoolSeriesLabel, Only: "type=Initialized status=True"},
	{Name: "nodeclaims_disrupted", Releases: "0.30 to 0.37", Of: "karpenter_nodeclaims_disrupted_total", Labels: "type=reason nodepool"},
	{Name: "nodeclaims_drifted", Releases: "0.30 to 0.37", Of: "karpenter_nodeclaims_disrupted_total",
		Labels: "type=reason nodepool", Only: "reason=drifted"},
	{Name: "nodes_termination_time_seconds", Releases: "to 0.37", Of: "karpenter_nodes_termination_duration_seconds",
		Labels: "nodepool provisioner=nodepool"},
	{Name: "nodes_leases_deleted", Releases: "0.30 to 0.37", Instead: "nothing: leases without a Node are Kubernetes' affair"},
	{Name: "nodes_leases_deleted_total", Releases: "1.0", Instead: "nothing: leases without a Node are Kubernetes' affair"},
	{Name: "nodes_eviction_queue_depth", Releases: "0.36 to 0.37", Of: "workqueue_depth", Only: "name=node.termination"},
	{Name: "nodes_eviction_requests_total", Releases: "1.1 to 1.7", Of: "karpenter_pods_eviction_requests_total", Labels: "code"},
	{Name: "consistency_errors", Releases: "0.28 to 0.37", Of: claimsChanged, Labels: "check=reason",
		Only: "type=ConsistentStateFound status=False"},

	{Name: "deprovisioning_actions_performed", Releases: "0.26 to 0.32",
		Of: "karpenter_voluntary_disruption_decisions_total", Labels: "action=decision deprovisioner=reason"},
	{Name: "deprovisioning_evaluation_duration_seconds", Releases: "0.26 to 0.32",
		Of: "karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Labels: "method=reason"},
	{Name: "deprovisioning_replacement_node_initialized_seconds", Releases: "0.26 to 0.27",
		Instead: "operator_nodeclaim_status_condition_transition_seconds of Initialized"},
	{Name: "deprovisioning_replacement_machine_initialized_seconds", Releases: "0.28 to 0.32",
		Instead: "operator_nodeclaim_status_condition_transition_seconds of Initialized"},
	{Name: "deprovisioning_eligible_machines", Releases: "0.28 to 0.32",
		Of: "karpenter_voluntary_disruption_eligible_nodes", Labels: "deprovisioner=reason"},
	{Name: "deprovisioning_consolidation_timeouts", Releases: "0.30 to 0.32",
		Of: "karpenter_voluntary_disruption_consolidation_timeouts_total", Labels: "consolidation_type"},
	{Name: "deprovisioning_replacement_machine_launch_failure_counter", Releases: "0.30 to 0.32",
		Of: "karpenter_voluntary_disruption_queue_failures_total", Labels: "deprovisioner=reason"},
	{Name: "disruption_actions_performed_total", Releases: "0.32 to 0.37",
		Of: "karpenter_voluntary_disruption_decisions_total", Labels: "action=decision method=reason consolidation_type"},
	{Name: "disruption_evaluation_duration_seconds", Releases: "0.32 to 0.37",
		Of: "karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Labels: "method=reason consolidation_type"},
	{Name: "disruption_eligible_nodes", Releases: "0.32 to 0.37", Of: "karpenter_voluntary_disruption_eligible_nodes",
		Labels: "method=reason"},
	{Name: "disruption_consolidation_timeouts_total", Releases: "0.32 to 0.37",
		Of: "karpenter_voluntary_disruption_consolidation_timeouts_total", Labels: "consolidation_type"},
	{Name: "disruption_replacement_nodeclaim_initialized_seconds", Releases: "0.32 to 0.37",
		Instead: "operator_nodeclaim_status_condition_transition_seconds of Initialized"},
	{Name: "disruption_replacement_nodeclaim_failures_total", Releases: "0.32 to 0.37",
		Of: "karpenter_voluntary_disruption_queue_failures_total", Labels: "method=reason consolidation_type"},
	{Name: "disruption_queue_depth", Releases: "0.33 to 0.37", Of: "workqueue_depth", Only: "name=disruption.queue"},
	{Name: "disruption_budgets_allowed_disruptions", Releases: "0.34 to 0.37",
		Of: "karpenter_nodepools_allowed_disruptions", Labels: "nodepool", Least: true},
	{Name: "disruption_nodes_disrupted_total", Releases: "0.35 to 0.37", Of: "karpenter_nodeclaims_disrupted_total",
		Labels: "nodepool method=reason"},
	{Name: "disruption_pods_disrupted_total", Releases: "0.35 to 0.37",
		Of: "karpenter_pods_disruption_initiated_total", Labels: "nodepool method=reason"},
}

// claimsChanged counts changes of conditions of claims.
const claimsChanged = "operator_nodeclaim_status_condition_transitions_total"

// HistoricNames returns the table, with full names.
func HistoricNames() []HistoricName {
	out := slices.Clone(historicNames)
	for i := range out {
		out[i].Name = historicPrefix + out[i].Name
	}
	return out
}

// LabelNames returns the labels of a historic name.
func (h HistoricName) LabelNames() []string {
	var out []string
	for _, l := range renamed(h.Labels) {
		out = append(out, l.label)
	}
	return out
}

// A pairing is a label, and the successor's label for it (in Labels) or the value that it must have (in Only).
type pairing struct{ label, of string }

// renamed parses pairings with spaces between them. A word without "=" is paired with itself.
func renamed(text string) []pairing {
	var out []pairing
	for _, word := range strings.Fields(text) {
		label, of, other := strings.Cut(word, "=")
		if !other {
			of = label
		}
		out = append(out, pairing{label, of})
	}
	return out
}

// HistoricFamilies returns f under the names of earlier releases. Each has a series for each series of f.
func HistoricFamilies(f Family) []Family {
	var out []Family
	for _, h := range HistoricNames() {
		if h.Of == f.Name {
			out = append(out, Family{Name: h.Name, Help: h.help(), Labels: h.LabelNames()})
		}
	}
	return out
}

func (h HistoricName) help() string { return "What releases " + h.Releases + " called " + h.Of + "." }

// WithHistoric is a registry whose Gather also returns the metrics under their historic names.
type WithHistoric struct{ *prometheus.Registry }

// Gather implements prometheus.Gatherer.
func (r WithHistoric) Gather() ([]*dto.MetricFamily, error) {
	families, err := r.Registry.Gather()
	successors := map[string]*dto.MetricFamily{}
	for _, f := range families {
		successors[f.GetName()] = f
	}
	for _, h := range HistoricNames() {
		if f := successors[h.Of]; f != nil {
			families = append(families, h.of(f))
		}
	}
	return families, err
}

// of converts the family of the successor to the historic name: series that Only excludes are left out, labels are renamed or left out,
// and series that are equal then are added up.
func (h HistoricName) of(f *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: new(h.Name), Help: new(h.help()), Type: f.Type}
	series := map[string]*dto.Metric{}
	only, labels := renamed(h.Only), renamed(h.Labels)
	for _, m := range f.Metric {
		if slices.ContainsFunc(only, func(p pairing) bool { return value(m, p.label) != p.of }) {
			continue
		}
		older := &dto.Metric{}
		var key []byte
		for _, l := range labels {
			v := value(m, l.of)
			older.Label = append(older.Label, &dto.LabelPair{Name: new(l.label), Value: new(v)})
			key = identity.Text(key, v)
		}
		have := series[string(key)]
		if have == nil {
			older.Counter, older.Gauge, older.Histogram, older.Summary = m.Counter, m.Gauge, m.Histogram, m.Summary
			series[string(key)] = older
			out.Metric = append(out.Metric, older)
			continue
		}
		h.add(have, m)
	}
	slices.SortFunc(out.Metric, func(a, b *dto.Metric) int {
		return slices.CompareFunc(a.Label, b.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetValue(), b.GetValue()) })
	})
	return out
}

// value returns the value of a label.
func value(m *dto.Metric, label string) string {
	for _, l := range m.Label {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

// add adds a series to another one. Values are shared with the successor, so they are replaced and not changed. Summaries are never
// added, because their historic names have all labels of their successors.
func (h HistoricName) add(to, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		to.Counter = &dto.Counter{Value: new(to.Counter.GetValue() + m.Counter.GetValue())}
	case m.Gauge != nil && h.Least:
		to.Gauge = &dto.Gauge{Value: new(min(to.Gauge.GetValue(), m.Gauge.GetValue()))}
	case m.Gauge != nil:
		to.Gauge = &dto.Gauge{Value: new(to.Gauge.GetValue() + m.Gauge.GetValue())}
	case m.Histogram != nil:
		to.Histogram = sum(to.Histogram, m.Histogram)
	}
}

// sum returns the sum of two histograms with equal buckets.
func sum(a, b *dto.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(a.GetSampleCount() + b.GetSampleCount()),
		SampleSum:   new(a.GetSampleSum() + b.GetSampleSum()),
	}
	for i, bucket := range a.Bucket {
		out.Bucket = append(out.Bucket, &dto.Bucket{
			UpperBound:      bucket.UpperBound,
			CumulativeCount: new(bucket.GetCumulativeCount() + b.Bucket[i].GetCumulativeCount()),
		})
	}
	return out
}
