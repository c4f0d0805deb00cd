package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// conditionMetrics are about conditions and deletion: a family for each kind, and the older families for all kinds together.
type conditionMetrics struct {
	ConditionTransition     map[string]*prometheus.HistogramVec // by lower-case kind
	ConditionTransitions    map[string]*prometheus.CounterVec
	ObjectTermination       map[string]*prometheus.HistogramVec
	ConditionTransitionOld  *prometheus.HistogramVec
	ConditionTransitionsOld *prometheus.CounterVec
	ObjectTerminationOld    *prometheus.HistogramVec
}

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

func newConditionMetrics(t *maker, kinds map[string][]string) conditionMetrics {
	m := conditionMetrics{
		ConditionTransition:  map[string]*prometheus.HistogramVec{},
		ConditionTransitions: map[string]*prometheus.CounterVec{},
		ObjectTermination:    map[string]*prometheus.HistogramVec{},
	}
	for _, kind := range sortedKeys(kinds) {
		extra := kinds[kind]
		m.ConditionTransition[kind] = t.histogram("operator_"+kind+"_status_condition_transition_seconds", Beta, exponential(.5, 2, 15),
			"How long a condition stood before it changed.", append([]string{"type", "status", "to_status"}, extra...)...)
		m.ConditionTransitions[kind] = t.counter("operator_"+kind+"_status_condition_transitions_total", Beta,
			"Changes of a condition, by what it became.", append([]string{"type", "status", "reason"}, extra...)...)
		m.ObjectTermination[kind] = t.histogram("operator_"+kind+"_termination_duration_seconds", Beta, exponential(.5, 2, 15),
			"From the deletion of an object to its end.", extra...)
	}
	m.ConditionTransitionOld = t.histogram("operator_status_condition_transition_seconds", Deprecated, prometheus.DefBuckets,
		"How long a condition stood before it changed.", "type", "status", "to_status", "group", "kind")
	m.ConditionTransitionsOld = t.counter("operator_status_condition_transitions_total", Deprecated,
		"Changes of a condition, by what it became.", "type", "status", "reason", "group", "kind")
	m.ObjectTerminationOld = t.histogram("operator_termination_duration_seconds", Deprecated, prometheus.DefBuckets,
		"From the deletion of an object to its end.", "group", "kind")
	return m
}
