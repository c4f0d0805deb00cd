package overlay

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// Applied is the result of Apply for one pool. The next Apply reuses the parts that stayed the same, so that pointers to equal types stay
// equal and caches keep working.
type Applied struct {
	from, to *cloud.Catalog
	labels   map[string]string // that all nodes of the pool get: all of the pool that matters to overlays
	book     *Book
	types    map[*cloud.InstanceType]*cloud.InstanceType // corrected copies, by the type of the provider
}

// Catalog returns the corrected catalogue.
func (a *Applied) Catalog() *cloud.Catalog { return a.to }

// Options are what a claim may become.
type Options struct{ Types, Zones, CapacityTypes []string }

// Marks returns the annotations that mark a claim if an overlay changed a price or a capacity among its options; nil if none did. They show
// users why it differs from the cloud's.
func Marks(c *cloud.Catalog, o Options) map[string]string {
	var out map[string]string
	mark := func(key string) {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = "true"
	}
	priced := func(of cloud.Offering) bool {
		return of.Overlaid && slices.Contains(o.Zones, of.Zone()) && slices.Contains(o.CapacityTypes, of.CapacityType())
	}
	for _, it := range c.Types {
		if !it.Overlaid && !slices.ContainsFunc(it.Offerings, priced) {
			continue // no overlay changed it
		}
		if !slices.Contains(o.Types, it.Name) {
			continue
		}
		if it.Overlaid {
			mark(v1.CapacityOverlayAppliedAnnotationKey)
		}
		if slices.ContainsFunc(it.Offerings, priced) {
			mark(v1.PriceOverlayAppliedAnnotationKey)
		}
	}
	return out
}

// Apply corrects a catalogue for a pool. Types that no overlay selects are shared with the provider's catalogue, which is never changed.
// last is the previous result for the pool, nil if there is none: if book and labels are the same, corrected types keep their pointers, and
// if the catalogue is the same, too, last is returned.
func (b *Book) Apply(pool *v1.NodePool, c *cloud.Catalog, last *Applied) *Applied {
	if b == nil {
		return &Applied{from: c, to: c}
	}
	labels := labelsOf(pool, b.known)
	reuse := last != nil && last.book == b && maps.Equal(last.labels, labels)
	if reuse && last.from == c {
		return last
	}
	next := &Applied{from: c, to: c, labels: labels, book: b, types: map[*cloud.InstanceType]*cloud.InstanceType{}}
	types := make([]*cloud.InstanceType, len(c.Types))
	for i, it := range c.Types {
		types[i] = it
		if reuse && last.types[it] != nil {
			types[i] = last.types[it]
		} else if corrected := b.correct(it, labels); corrected != nil {
			types[i] = corrected
		}
		if types[i] != it {
			next.types[it] = types[i]
		}
	}
	if len(next.types) > 0 {
		next.to = &cloud.Catalog{Types: types}
	}
	return next
}

// correct returns a corrected copy of a type, nil if no overlay selects it. For each price and each resource, the heaviest overlay that
// sets it decides. Offerings that still have no price are removed.
func (b *Book) correct(it *cloud.InstanceType, labels map[string]string) *cloud.InstanceType {
	var out *cloud.InstanceType
	priced := make([]bool, len(it.Offerings))
	var sized corev1.ResourceList
	for _, r := range b.rules {
		offers := r.selects(it, labels)
		if offers == nil || r.change == nil && len(r.capacity) == 0 {
			continue
		}
		if out == nil {
			out = copyOf(it)
		}
		for i, mine := range offers {
			if mine && r.change != nil && !priced[i] {
				priced[i] = r.setPrice(&out.Offerings[i])
			}
		}
		for resource, amount := range r.capacity {
			if _, ok := sized[resource]; !ok {
				if sized == nil {
					sized = corev1.ResourceList{}
				}
				sized[resource] = amount
			}
		}
	}
	if slices.ContainsFunc(it.Offerings, needsPrice) {
		if out == nil {
			out = copyOf(it)
		}
		out.Offerings = slices.DeleteFunc(out.Offerings, needsPrice)
	}
	if len(sized) > 0 {
		out.Capacity = maps.Clone(it.Capacity)
		maps.Copy(out.Capacity, sized)
		out.Overlaid = true
	}
	return out
}

// copyOf returns a copy of a type with its own offerings; other parts are shared.
func copyOf(it *cloud.InstanceType) *cloud.InstanceType {
	c := *it
	c.Offerings = slices.Clone(it.Offerings)
	return &c
}

func needsPrice(o cloud.Offering) bool { return o.NeedsPrice }

// setPrice changes an offering's price and reports whether it did. An offering without a price gets one only from a rule that names its
// type (preview), and becomes available with it.
func (r *rule) setPrice(o *cloud.Offering) bool {
	if o.NeedsPrice {
		if !r.preview {
			return false
		}
		o.NeedsPrice, o.Available = false, true
	}
	o.Price, o.Overlaid = r.change.apply(o.Price), true
	return true
}
