package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// processMetrics are about this program: its calls, its loops and its lease.
type processMetrics struct {
	CloudCalls              *prometheus.HistogramVec
	CloudErrors             *prometheus.CounterVec
	BuildInfo               *prometheus.GaugeVec
	EventsDropped           *prometheus.CounterVec
	ReconcileTotal          *prometheus.CounterVec
	ReconcileErrors         *prometheus.CounterVec
	ReconcileTerminalErrors *prometheus.CounterVec
	ReconcileTimeouts       *prometheus.CounterVec
	ReconcileTime           *prometheus.HistogramVec
	WorkqueueAdds           *prometheus.CounterVec
	ReconcilePanics         *prometheus.CounterVec
	ConversionPanics        prometheus.Counter
	WorkqueueRetries        *prometheus.CounterVec
	WorkqueueWait           *prometheus.HistogramVec
	WorkqueueWork           *prometheus.HistogramVec
	ClientRequests          *prometheus.CounterVec
	ClientRequestDuration   *prometheus.HistogramVec
	LeaderStatus            *prometheus.GaugeVec
	LeaderSlowpath          *prometheus.CounterVec

	loops *loops
}

// Labels that several of them share.
var (
	cloudCall  = []string{"controller", "method", "provider"}
	workqueued = []string{"name", "controller"}
)

func newProcessMetrics(t *maker) processMetrics {
	t.counted("karpenter_bugs_total", Alpha,
		"Things that cannot happen and did; the log says what.", func() float64 { return float64(bug.Count()) })
	all := newLoops(t)
	return processMetrics{
		loops: all,

		CloudCalls: t.histogram("karpenter_cloudprovider_duration_seconds", Beta, prometheus.DefBuckets,
			"Time of calls to the cloud provider.", cloudCall...),
		CloudErrors: t.counter("karpenter_cloudprovider_errors_total", Beta,
			"Failed calls to the cloud provider.", append(cloudCall[:3:3], "error", "nodepool")...),
		BuildInfo: t.gauge("karpenter_build_info", Stable,
			"1, with the version of this program.", "version", "goversion", "goarch", "commit"),
		EventsDropped: t.counter("karpenter_events_dropped_total", Alpha,
			"Events that were not sent, because of the rate limit of their reason or because too many wait.", "reason"),

		ReconcileTotal: t.counter("controller_runtime_reconcile_total", Stable,
			"Steps of a loop for one object, by result.", "controller", "result"),
		ReconcileErrors: t.counter("controller_runtime_reconcile_errors_total", Stable,
			"Steps of a loop that failed.", "controller"),
		ReconcileTerminalErrors: t.counter("controller_runtime_terminal_reconcile_errors_total", Stable,
			"Steps of a loop that failed and are not tried again: none, because every one is.", "controller"),
		ReconcileTimeouts: t.counter("controller_runtime_reconcile_timeouts_total", Stable,
			"Steps of a loop that failed because they took too long.", "controller"),
		ReconcileTime: t.histogram("controller_runtime_reconcile_time_seconds", Stable, turns,
			"Time of one step of a loop.", "controller"),
		WorkqueueAdds: t.counter("workqueue_adds_total", Stable,
			"Objects handed to a loop.", workqueued...),
		ReconcilePanics: t.counter("controller_runtime_reconcile_panics_total", Stable,
			"Steps of a loop that ran into a bug of ours.", "controller"),
		ConversionPanics: t.counter("controller_runtime_conversion_webhook_panics_total", Stable,
			"Reviews of the conversion webhook that ran into a bug of ours.").WithLabelValues(),
		WorkqueueRetries: t.counter("workqueue_retries_total", Stable,
			"Steps that will be repeated because they failed.", workqueued...),
		WorkqueueWait: t.histogram("workqueue_queue_duration_seconds", Stable, queues,
			"How long objects waited for a step of a loop.", workqueued...),
		WorkqueueWork: t.histogram("workqueue_work_duration_seconds", Stable, queues,
			"How long steps of a loop took.", workqueued...),
		ClientRequests: t.counter("client_go_request_total", Stable,
			"Requests to the API server.", "code", "method"),
		ClientRequestDuration: t.histogram("client_go_request_duration_seconds", Stable, calls,
			"Time of requests to the API server.", "verb", "group", "version", "kind", "subresource"),
		LeaderStatus: t.gauge("leader_election_master_status", Stable,
			"1 on the replica that acts.", "name"),
		LeaderSlowpath: t.counter("leader_election_slowpath_total", Stable,
			"Renewals of the lease for which the remembered lease was too old and had to be read again.", "name"),
	}
}
