package aws

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/need"
)

// A way is one way to buy a type, as metrics name it.
type way struct{ instanceType, capacityType, zone string }

// A ware holds the values of one way.
type ware struct {
	available bool
	price     float64
	hazard    float64 // interruptions an hour
}

// Gauges returns the metrics about prices and stock, which are computed at each scrape: of the types of the fleet and
// of what is sold out, or with AllOfferings of everything that pools may buy. Those are tens of thousands of series,
// so none is kept.
func (p *Provider) Gauges() prometheus.Collector { return catalogGauges{provider: p} }

type catalogGauges struct{ provider *Provider }

// Describe implements prometheus.Collector.
func (g catalogGauges) Describe(ch chan<- *prometheus.Desc) {
	m := g.provider.env.in.Metrics
	for _, d := range []*prometheus.Desc{m.InstanceTypeCPU, m.InstanceTypeMemory, m.OfferingAvailable, m.OfferingPrice,
		m.OfferingInterruptions} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g catalogGauges) Collect(ch chan<- prometheus.Metric) {
	m := g.provider.env.in.Metrics
	types, wares := g.provider.market.assortment()
	risky := len(wares) > 0 && g.provider.market.risky()
	pairs := pairs{}
	for name, it := range types {
		labels := []*dto.LabelPair{pairs.of("instance_type", name)}
		ch <- &gauge{m.InstanceTypeCPU, labels, it.Capacity.Cpu().AsApproximateFloat64()}
		ch <- &gauge{m.InstanceTypeMemory, labels, it.Capacity.Memory().AsApproximateFloat64()}
	}
	for way, ware := range wares {
		labels := []*dto.LabelPair{pairs.of("capacity_type", way.capacityType),
			pairs.of("instance_type", way.instanceType), pairs.of("zone", way.zone)}
		available := 0.0
		if ware.available {
			available = 1
		}
		ch <- &gauge{m.OfferingAvailable, labels, available}
		ch <- &gauge{m.OfferingPrice, labels, ware.price}
		if risky && ware.hazard > 0 {
			ch <- &gauge{m.OfferingInterruptions, labels, ware.hazard}
		}
	}
}

// A gauge is a metric that shares its label pairs, sorted by name, with others.
type gauge struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  float64
}

func (g *gauge) Desc() *prometheus.Desc { return g.desc }

func (g *gauge) Write(out *dto.Metric) error {
	out.Label, out.Gauge = g.labels, &dto.Gauge{Value: &g.value}
	return nil
}

// A pairs remembers the label pairs of one scrape, so that series share them.
type pairs map[[2]string]*dto.LabelPair

// of returns the label pair of a name and a value.
func (p pairs) of(name, value string) *dto.LabelPair {
	pair := p[[2]string{name, value}]
	if pair == nil {
		name, value := name, value // copies, so that the parameters stay on the stack if the pair exists
		pair = &dto.LabelPair{Name: &name, Value: &value}
		p[[2]string{name, value}] = pair
	}
	return pair
}

// assortment returns the types and ways that any of the pools may buy. A pool whose class cannot be used is left out.
func (k *market) assortment() (map[string]*cloud.InstanceType, map[way]ware) {
	types, wares := map[string]*cloud.InstanceType{}, map[way]ware{}
	if !k.classes.pools.Synced() || !k.classes.objects.Synced() {
		return nil, nil // a scrape does not wait
	}
	fleet := k.typesOfFleet()
	for _, pool := range k.classes.pools.All() {
		ref := pool.Spec.Template.Spec.NodeClassRef
		if ref == nil || ref.Group != awsv1.Group {
			continue
		}
		c, err := k.Catalog(context.Background(), pool)
		if err != nil {
			continue
		}
		wanted := need.Of(pool.Spec.Template.Spec.Requirements)
		for _, it := range c.Types {
			switch {
			case !wanted.Allow(it.Labels):
			case k.env.settings.AllOfferings || fleet[it.Name]:
				types[it.Name] = it
				collect(it, wanted, k.env.settings.ReservedCapacity, wares)
			default:
				collectSoldOut(it, wanted, wares)
			}
		}
	}
	return types, wares
}

// typesOfFleet returns the instance types of all claims.
func (k *market) typesOfFleet() map[string]bool {
	out := map[string]bool{}
	for claim := range k.env.in.Claims.Each() {
		out[claim.Labels[corev1.LabelInstanceTypeStable]] = true
	}
	return out
}

// collectSoldOut adds the offerings of a type that are wanted and sold out. Reservations that are used up are not
// sold out.
func collectSoldOut(it *cloud.InstanceType, wanted need.Needs, wares map[way]ware) {
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if !o.Available && !o.NeedsPrice && o.CapacityType() != v1.CapacityTypeReserved && wanted.AllowLabels(o.Labels) {
			wares[way{it.Name, o.CapacityType(), o.Zone()}] = ware{price: o.Price.Dollars()}
		}
	}
}

// collect adds the offerings of a type that are wanted. While reservations are managed, every type and zone has a
// series for them, 0 if there is none.
func collect(it *cloud.InstanceType, wanted need.Needs, reservations bool, wares map[way]ware) {
	if reservations && wanted.AllowValue(v1.CapacityTypeLabelKey, v1.CapacityTypeReserved) {
		for _, zone := range it.Labels[corev1.LabelTopologyZone] {
			if !wanted.AllowValue(corev1.LabelTopologyZone, zone) {
				continue
			}
			w := way{it.Name, v1.CapacityTypeReserved, zone}
			if _, known := wares[w]; !known {
				wares[w] = ware{}
			}
		}
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if o.NeedsPrice || !wanted.AllowLabels(o.Labels) {
			continue
		}
		w := way{it.Name, o.CapacityType(), o.Zone()}
		wares[w] = ware{available: wares[w].available || o.Available, price: o.Price.Dollars(), hazard: float64(o.Hazard) / 1e9}
	}
}
