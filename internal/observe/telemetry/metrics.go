package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics that loops write, and the descriptions of metrics that providers make when they are scraped. Each subject has
// a file metrics_*.go with its fields, names, labels and buckets.
type Metrics struct {
	fleetMetrics
	podMetrics
	planMetrics
	disruptionMetrics
	processMetrics
	awsMetrics
	conditionMetrics

	rows []Row
}

// disrupted are the labels of the metrics about claims that Karpenter deletes of its own accord.
var disrupted = []string{"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"}

// NewMetrics registers every metric that loops write. kinds is from ConditionKinds.
func NewMetrics(reg prometheus.Registerer, kinds map[string][]string) *Metrics {
	t := &maker{reg: reg}
	m := &Metrics{
		fleetMetrics:      newFleetMetrics(t),
		podMetrics:        newPodMetrics(t),
		planMetrics:       newPlanMetrics(t),
		disruptionMetrics: newDisruptionMetrics(t),
		processMetrics:    newProcessMetrics(t),
		awsMetrics:        newAWSMetrics(t),
		conditionMetrics:  newConditionMetrics(t, kinds),
	}
	m.rows = t.rows
	return m
}

// Rows describes every metric that was registered, in the order of the tables.
func (m *Metrics) Rows() []Row { return m.rows }
