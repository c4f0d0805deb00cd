package observe

import (
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

var bufferPods = telemetry.Gauge("karpenter_capacitybuffers_pods")

// writeBuffers writes, for each buffer and each object that announces pods, how many of the pods have room on a node that is
// initialized, on a node that is coming, and nowhere.
func (o *Observer) writeBuffers(out *telemetry.Text, snap *cluster.Snapshot) {
	out.Begin(bufferPods)
	for s := range snap.Spares() {
		ready, coming, none := 0, 0, 0
		for _, p := range s.Pods {
			switch n := snap.PlaceOf(p); {
			case n == nil:
				none++
			case n.Initialized():
				ready++
			default:
				coming++
			}
		}
		out.Gauge(float64(ready), nil, s.Namespace, s.Buffer, "ready")
		out.Gauge(float64(coming), nil, s.Namespace, s.Buffer, "coming")
		out.Gauge(float64(none), nil, s.Namespace, s.Buffer, "none")
	}
}
