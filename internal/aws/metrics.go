package aws

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A way is one way to buy a type, as metrics show it.
type way struct{ instanceType, capacityType, zone string }

// showCatalog publishes what can be bought, for any of the pools, and what it costs. A pool whose class cannot be
// resolved takes nothing away from the others.
func (p *Provider) showCatalog(ctx context.Context) error {
	if !p.pools.WaitForSync(ctx) || !p.classes.WaitForSync(ctx) {
		return nil
	}
	available, prices := map[way]bool{}, map[way]float64{}
	seen := map[*cloud.Catalog]bool{}
	for _, pool := range p.pools.All() {
		ref := pool.Spec.Template.Spec.NodeClassRef
		if ref == nil || ref.Group != awsv1.Group {
			continue
		}
		c, err := p.Catalog(ctx, pool)
		if err != nil || seen[c] {
			continue
		}
		seen[c] = true
		for _, it := range c.Types {
			p.in.Metrics.InstanceTypeCPU.WithLabelValues(it.Name).Set(it.Capacity.Cpu().AsApproximateFloat64())
			p.in.Metrics.InstanceTypeMemory.WithLabelValues(it.Name).Set(it.Capacity.Memory().AsApproximateFloat64())
			collect(it, p.settings.ReservedCapacity, available, prices)
		}
	}
	m := p.in.Metrics
	m.OfferingAvailable.Reset()
	m.OfferingPrice.Reset()
	for w, ok := range available {
		value := 0.0
		if ok {
			value = 1
		}
		m.OfferingAvailable.WithLabelValues(w.instanceType, w.capacityType, w.zone).Set(value)
		m.OfferingPrice.WithLabelValues(w.instanceType, w.capacityType, w.zone).Set(prices[w])
	}
	return nil
}

// collect adds a type's offerings. While reservations are managed every type and zone has a series for them.
func collect(it *cloud.InstanceType, reservations bool, available map[way]bool, prices map[way]float64) {
	if reservations {
		for _, zone := range it.Labels[corev1.LabelTopologyZone] {
			w := way{it.Name, v1.CapacityTypeReserved, zone}
			if _, known := available[w]; !known {
				available[w] = false
			}
		}
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		w := way{it.Name, o.CapacityType(), o.Zone()}
		available[w] = available[w] || o.Available
		prices[w] = o.Price.Dollars()
	}
}
