package observe

import (
	"maps"
	"slices"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

var quotaLimit, quotaUsed = telemetry.Gauge("karpenter_capacityquotas_limit"), telemetry.Gauge("karpenter_capacityquotas_used")

// mostQuotas is how many quotas have gauges.
const mostQuotas = 200

// writeQuotas writes the limits and the use of CapacityQuotas, of mostQuotas at most.
func writeQuotas(out *telemetry.Text, snap *cluster.Snapshot) {
	var quotas []*autoscalingv1beta1.CapacityQuota
	for q := range cluster.Quotas.All(snap) {
		if quotas = append(quotas, q); len(quotas) == mostQuotas {
			break
		}
	}
	if len(quotas) == 0 {
		return
	}
	write := func(f telemetry.Family, of func(*autoscalingv1beta1.CapacityQuota) autoscalingv1beta1.QuotaAmounts) {
		out.Begin(f)
		for _, q := range quotas {
			amounts := of(q)
			for _, name := range slices.Sorted(maps.Keys(amounts)) {
				amount := amounts[name]
				out.Gauge(amount.AsApproximateFloat64(), nil, q.Name, string(name))
			}
		}
	}
	write(quotaLimit, func(q *autoscalingv1beta1.CapacityQuota) autoscalingv1beta1.QuotaAmounts {
		return q.Spec.Limits.Resources
	})
	write(quotaUsed, func(q *autoscalingv1beta1.CapacityQuota) autoscalingv1beta1.QuotaAmounts {
		if q.Status.Used == nil {
			return nil
		}
		return q.Status.Used.Resources
	})
}
