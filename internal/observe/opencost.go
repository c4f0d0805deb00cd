package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// priced is a node with what it costs now, in dollars an hour.
type priced struct {
	labels []string
	total  float64
	rates  ledger.Rates
	spot   bool
}

// openCost are the gauges under OpenCost's names. For every node total = cores × cpu + GiB × ram + GPUs × gpu.
var openCost = []struct {
	family telemetry.Family
	of     func(*priced) float64
}{
	{telemetry.Gauge("node_total_hourly_cost"), func(p *priced) float64 { return p.total }},
	{telemetry.Gauge("node_cpu_hourly_cost"), func(p *priced) float64 { return p.rates.Core }},
	{telemetry.Gauge("node_ram_hourly_cost"), func(p *priced) float64 { return p.rates.GiB }},
	{telemetry.Gauge("node_gpu_hourly_cost"), func(p *priced) float64 { return p.rates.Accelerator }},
	{telemetry.Gauge("node_gpu_count"), func(p *priced) float64 { return p.rates.Accelerators }},
	{telemetry.Gauge("kubecost_node_is_spot"), func(p *priced) float64 {
		if p.spot {
			return 1
		}
		return 0
	}},
}

// writeOpenCost writes what nodes of Karpenter cost. Nodes without a known price have no series.
func (o *Observer) writeOpenCost(out *telemetry.Text, snap *cluster.Snapshot) {
	pools, _ := o.Catalogs.Pools(telemetry.WithController(context.Background(), "metrics.opencost"), snap)
	var nodes []priced
	for n := range snap.Nodes() {
		if n.Node == nil || n.Claim == nil {
			continue
		}
		labels := n.Labels()
		catalog := pools[n.Pool()].Catalog
		price, known := catalog.Price(labels)
		if !known {
			continue
		}
		series := []string{n.Name, n.Name, labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyRegion], n.ProviderID,
			labels[corev1.LabelArchStable]}
		nodes = append(nodes, priced{series, price.Dollars(), ledger.RatesOf(n.Capacity(), price, catalog.OnDemand(labels, price)),
			labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot})
	}
	for i := range openCost {
		out.Begin(openCost[i].family)
		for j := range nodes {
			out.Gauge(openCost[i].of(&nodes[j]), nodes[j].labels)
		}
	}
}
