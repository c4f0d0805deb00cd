package provision

import "karpenter.sh/karpenter/internal/core/engine"

// Values of the zone label of the metric about pending pods, besides the zones themselves.
const (
	flexible = "flexible"
	nowhere  = "none"
)

// countZones sets the metric of pending pods by the zone that they are tied to.
func (l *Loop) countZones(zones engine.Zones) {
	l.Metrics.SchedulingPendingPodsByZone.Reset()
	set := func(zone string, pods int) {
		if pods > 0 {
			l.Metrics.SchedulingPendingPodsByZone.WithLabelValues(name, zone).Set(float64(pods))
		}
	}
	for zone, pods := range zones.In {
		set(zone, pods)
	}
	set(flexible, zones.Flexible)
	set(nowhere, zones.None)
}
