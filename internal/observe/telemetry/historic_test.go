package telemetry

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

//go:embed testdata/historic.txt
var historicFacts string

// The table is complete against what is known of releases before, and its successors are metrics of ours.
func TestHistoricNamesAreThoseOfReleasesBefore(t *testing.T) {
	kinds := ConditionKinds("karpenter.k8s.aws/ec2nodeclass")
	rows := map[string]Row{}
	for _, r := range slices.Concat(NewMetrics(prometheus.NewRegistry(), kinds).Rows(), GaugeRows()) {
		rows[r.Name] = r
	}
	want, got := map[string]string{}, map[string]string{}
	for line := range strings.Lines(historicFacts) {
		if words := strings.Fields(line); words[0] != "#" {
			want[words[0]] = words[1]
		}
	}
	for _, h := range HistoricNames() {
		name := strings.TrimPrefix(h.Name, "karpenter_")
		if _, twice := got[name]; twice {
			t.Errorf("%s stands in the table twice", name)
		}
		if _, taken := rows[h.Name]; taken {
			t.Errorf("%s is what a metric of today is called", h.Name)
		}
		if h.Of == "" {
			got[name] = "none"
			if h.Instead == "" {
				t.Errorf("%s: neither a successor nor a word about it", name)
			}
			continue
		}
		got[name] = strings.TrimPrefix(h.Of, "karpenter_")
		row, known := rows[h.Of]
		if !known {
			t.Errorf("%s: there is no metric %s", name, h.Of)
		}
		for _, l := range slices.Concat(renamed(h.Only), renamed(h.Labels)) {
			if is := l.of; !slices.Contains(row.Labels, is) && !slices.Contains(row.Labels, l.label) {
				t.Errorf("%s: %s has no label %s", name, h.Of, is)
			}
		}
		if row.Kind == "summary" && len(renamed(h.Labels)) < len(row.Labels) {
			t.Errorf("%s: summaries cannot be added, and it has fewer labels than %s", name, h.Of)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names and their successors (-known +ours):\n%s", diff)
	}
}

// move makes one series of a successor that counts, and says so much more of it.
func move(m *Metrics, row Row, only []pairing, by float64) {
	labels := prometheus.Labels{}
	for _, name := range row.Labels {
		labels[name] = "x"
	}
	for _, p := range only {
		labels[p.label] = p.of
	}
	switch row.Name {
	case claimsChanged:
		m.ConditionTransitions["nodeclaim"].With(labels).Add(by)
	case "karpenter_scheduler_scheduling_duration_seconds":
		m.SchedulingDuration.With(labels).Observe(by)
	case "karpenter_scheduler_queue_depth":
		m.SchedulingQueueDepth.With(labels).Add(by)
	case "karpenter_pods_startup_duration_seconds":
		m.PodStartup.Observe(by)
	case "karpenter_scheduler_ignored_pods_count":
		m.SchedulingIgnoredPods.Add(by)
	case "karpenter_pods_drained_total":
		m.PodsDrained.With(labels).Add(by)
	case "karpenter_nodes_created_total":
		m.NodesCreated.With(labels).Add(by)
	case "karpenter_nodes_terminated_total":
		m.NodesTerminated.With(labels).Add(by)
	case "karpenter_nodeclaims_created_total":
		m.NodeClaimsCreated.With(labels).Add(by)
	case "karpenter_nodeclaims_terminated_total":
		m.NodeClaimsTerminated.With(labels).Add(by)
	case "karpenter_nodeclaims_disrupted_total":
		m.NodeClaimsDisrupted.With(labels).Add(by)
	case "karpenter_nodes_termination_duration_seconds":
		m.NodeTermination.With(labels).Observe(by)
	case "workqueue_depth":
		m.Loop(labels["name"], 1).Waiting(int(by))
	case "karpenter_pods_eviction_requests_total":
		m.PodEvictionRequests.With(labels).Add(by)
	case "karpenter_voluntary_disruption_decisions_total":
		m.DisruptionDecisions.With(labels).Add(by)
	case "karpenter_voluntary_disruption_decision_evaluation_duration_seconds":
		m.DisruptionEvaluation.With(labels).Observe(by)
	case "karpenter_voluntary_disruption_eligible_nodes":
		m.DisruptionEligibleNodes.With(labels).Add(by)
	case "karpenter_voluntary_disruption_consolidation_timeouts_total":
		m.DisruptionTimeouts.With(labels).Add(by)
	case "karpenter_voluntary_disruption_queue_failures_total":
		m.DisruptionQueueFailures.With(labels).Add(by)
	case "karpenter_nodepools_allowed_disruptions":
		m.PoolAllowedDisruptions.With(labels).Add(by)
	case "karpenter_pods_disruption_initiated_total":
		m.PodsDisruptionInitiated.With(labels).Add(by)
	default:
		panic("nobody moves " + row.Name)
	}
}

// said is the sum of what the series of a family say.
func said(families []*dto.MetricFamily, name string) (total float64) {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum() + m.GetSummary().GetSampleSum()
		}
	}
	return total
}

// Each historic name says what its successor says: as much more when that says more, and nothing of series that do not count.
func TestAHistoricNameMovesWithItsSuccessor(t *testing.T) {
	for _, h := range HistoricNames() {
		if h.Of == "" || isRead(h.Of) {
			continue // those that are read from snapshots are a test of package observe
		}
		t.Run(h.Name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			m := NewMetrics(reg, ConditionKinds("karpenter.k8s.aws/ec2nodeclass"))
			rows := m.Rows()
			row := rows[slices.IndexFunc(rows, func(r Row) bool { return r.Name == h.Of })]
			move(m, row, renamed(h.Only), 3)
			if h.Only != "" {
				move(m, row, nil, 5) // of another series, which does not count
			}
			families, err := WithHistoric{reg}.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if got := said(families, h.Name); got != 3 {
				t.Errorf("says %v after its successor said 3", got)
			}
			for _, f := range families {
				if f.GetName() != h.Name {
					continue
				}
				var labels []string
				for _, l := range f.Metric[0].Label {
					labels = append(labels, l.GetName())
					if l.GetValue() == "" {
						t.Errorf("label %s is empty", l.GetName())
					}
				}
				if !slices.Equal(labels, h.LabelNames()) {
					t.Errorf("labels are %v, want %v", labels, h.LabelNames())
				}
			}
			if families, err = reg.Gather(); err != nil || said(families, h.Name) != 0 {
				t.Errorf("the registry itself says %v, %v", said(families, h.Name), err)
			}
		})
	}
}

// isRead tells whether a gauge is read from snapshots.
func isRead(name string) bool {
	return slices.ContainsFunc(gauges, func(r Row) bool { return r.Name == name })
}

// inShort says a series in a few words.
func inShort(m *dto.Metric) string {
	if h := m.Histogram; h != nil {
		var counts []uint64
		for _, b := range h.Bucket {
			if !slices.Contains(counts, b.GetCumulativeCount()) {
				counts = append(counts, b.GetCumulativeCount())
			}
		}
		return fmt.Sprintf("%d in all %v, up to a bucket: %v", h.GetSampleCount(), h.GetSampleSum(), counts)
	}
	var words []string
	for _, l := range m.Label {
		words = append(words, l.GetValue())
	}
	return fmt.Sprint(strings.Join(words, " "), " ", m.GetCounter().GetValue()+m.GetGauge().GetValue())
}

// Where a historic name has fewer labels, series of its successor are added up, and the successor stays what it is.
func TestSeriesOfOneHistoricNameAreAddedUp(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, ConditionKinds())
	m.NodesCreated.WithLabelValues("web", "a").Add(2)
	m.NodesCreated.WithLabelValues("web", "b").Add(3)
	m.NodesCreated.WithLabelValues("jobs", "a").Add(7)
	m.PoolAllowedDisruptions.WithLabelValues("web", "Empty").Set(4)
	m.PoolAllowedDisruptions.WithLabelValues("web", "Drifted").Set(1)
	m.PoolAllowedDisruptions.WithLabelValues("web", "Underutilized").Set(2)
	m.SchedulingDuration.WithLabelValues("provisioner").Observe(.2)
	m.SchedulingDuration.WithLabelValues("disruption").Observe(2)
	m.SchedulingDuration.WithLabelValues("disruption").Observe(20)
	var got []string
	for range 2 { // the second would see what the first had done to the successor
		families, err := WithHistoric{reg}.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, f := range families {
			switch f.GetName() {
			case "karpenter_nodes_created", "karpenter_disruption_budgets_allowed_disruptions", "karpenter_provisioner_scheduling_simulation_duration_seconds":
				for _, s := range f.Metric {
					got = append(got, f.GetName()+" "+inShort(s))
				}
			}
		}
	}
	want := []string{
		"karpenter_provisioner_scheduling_simulation_duration_seconds 3 in all 22.2, up to a bucket: [0 1 2 3]",
		"karpenter_nodes_created jobs jobs 7",
		"karpenter_nodes_created web web 5",
		"karpenter_disruption_budgets_allowed_disruptions web 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
