package telemetry

import "github.com/prometheus/client_golang/prometheus"

// podMetrics are about pods: how long they wait, and why they move.
type podMetrics struct {
	PodStartup              prometheus.Summary
	PodBound                *prometheus.HistogramVec
	PodProvisioningBound    *prometheus.HistogramVec
	PodProvisioningStartup  prometheus.Histogram
	PodSchedulingDecision   prometheus.Histogram
	PodsDisruptionInitiated *prometheus.CounterVec
	PodEvictionRequests     *prometheus.CounterVec
	PodsDrained             *prometheus.CounterVec
	PlacesLost              *prometheus.CounterVec
}

func newPodMetrics(t *maker) podMetrics {
	return podMetrics{
		PodStartup: t.summary("karpenter_pods_startup_duration_seconds", Stable,
			"From the creation of a pod to Ready.").WithLabelValues().(prometheus.Summary),
		PodBound: t.histogram("karpenter_pods_bound_duration_seconds", Alpha, durations,
			"From the creation of a pod to its binding.", "dynamic_resources"),
		PodProvisioningBound: t.histogram("karpenter_pods_provisioning_bound_duration_seconds", Alpha, durations,
			"From the first plan that has a place for a pod to its binding.", "dynamic_resources"),
		PodProvisioningStartup: t.histogram("karpenter_pods_provisioning_startup_duration_seconds", Alpha, durations,
			"From the first plan that has a place for a pod to Ready.").WithLabelValues().(prometheus.Histogram),
		PodSchedulingDecision: t.histogram("karpenter_pods_scheduling_decision_duration_seconds", Alpha, durations,
			"From first sight of a waiting pod to the first decision about it.").WithLabelValues().(prometheus.Histogram),
		PodsDisruptionInitiated: t.counter("karpenter_pods_disruption_initiated_total", Alpha,
			"Pods that had to move because Karpenter deleted their NodeClaim.", disrupted...),
		PodEvictionRequests: t.counter("karpenter_pods_eviction_requests_total", Alpha,
			"Answers of the eviction API.", "code"),
		PlacesLost: t.counter("karpenter_pods_places_lost_total", Alpha,
			"Pods that lost the place they were planned for, because their scheduler did not bind them to a ready node "+
				"that has room for them.", "nodepool"),
		PodsDrained: t.counter("karpenter_pods_drained_total", Alpha,
			"Pods that were evicted or deleted to drain a node.", "reason"),
	}
}
