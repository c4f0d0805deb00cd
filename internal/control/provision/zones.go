package provision

import "karpenter.sh/karpenter/internal/core/engine"

// Values of the zone label of the metric about pending pods, besides the zones themselves.
const (
	flexible = "flexible"
	nowhere  = "none"
)

// countZones tells how many pending pods are tied to which zone.
func (l *Loop) countZones(zones engine.Zones) {
	l.Metrics.SchedulingPendingPodsByZone.Reset()
	tell := func(zone string, pods int) {
		if pods > 0 {
			l.Metrics.SchedulingPendingPodsByZone.WithLabelValues(name, zone).Set(float64(pods))
		}
	}
	for zone, pods := range zones.In {
		tell(zone, pods)
	}
	tell(flexible, zones.Flexible)
	tell(nowhere, zones.None)
}
