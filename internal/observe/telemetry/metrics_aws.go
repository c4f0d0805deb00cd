package telemetry

import "github.com/prometheus/client_golang/prometheus"

// awsMetrics are the metrics of the AWS provider.
type awsMetrics struct {
	InterruptionReceived        *prometheus.CounterVec
	InterruptionDeleted         prometheus.Counter
	InterruptionQueueDuration   prometheus.Histogram
	InterruptionStatusUnhealthy *prometheus.CounterVec
	InstanceLaunchFailures      *prometheus.CounterVec
	InstanceTerminationFailures *prometheus.CounterVec
	Refreshed                   *prometheus.GaugeVec
	BatcherTime                 *prometheus.HistogramVec
	BatcherSize                 *prometheus.HistogramVec
	NodeClassUserData           *prometheus.GaugeVec
	InstanceTypeCPU             *prometheus.Desc
	InstanceTypeMemory          *prometheus.Desc
	OfferingAvailable           *prometheus.Desc
	AWSRequests                 *prometheus.CounterVec
	AWSRetries                  *prometheus.HistogramVec
	AWSRequestDuration          *prometheus.HistogramVec
	AWSAttempts                 *prometheus.CounterVec
	AWSAttemptDuration          *prometheus.HistogramVec
	OfferingPrice               *prometheus.Desc
	OfferingInterruptions       *prometheus.Desc
}

// Labels that several of them share.
var (
	offering = []string{"instance_type", "capacity_type", "zone"}
	awsCall  = []string{"service", "action", "code"}
)

func newAWSMetrics(t *maker) awsMetrics {
	return awsMetrics{
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
		Refreshed: t.gauge("karpenter_cloudprovider_refreshed_timestamp_seconds", Alpha,
			"When a periodic task of the provider last succeeded, or began where it has not yet, such as reading "+
				"prices (providers.pricing) or instance types (providers.instancetype).", "controller"),
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
		AWSRequestDuration: t.histogram("aws_sdk_go_request_duration_seconds", Beta, actions,
			"Time of requests to AWS, with all their attempts.", awsCall...),
		AWSAttempts: t.counter("aws_sdk_go_request_attempt_total", Beta,
			"Attempts of requests to AWS.", awsCall...),
		AWSAttemptDuration: t.histogram("aws_sdk_go_request_attempt_duration_seconds", Beta, actions,
			"Time of single attempts of requests to AWS.", awsCall...),
		OfferingPrice: t.scraped("karpenter_cloudprovider_instance_type_offering_price_estimate", Beta,
			"Hourly price of an offering.", offering...),
		OfferingInterruptions: t.scraped("karpenter_cloudprovider_instance_type_offering_interruptions_estimate", Alpha,
			"Interruptions an hour that are expected of a spot machine of an offering, while an interruption costs something.",
			offering...),
	}
}
