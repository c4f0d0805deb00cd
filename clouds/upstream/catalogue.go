package upstream

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// maxPrice is the highest price in dollars an hour that is taken for one. Some providers give a huge number where they know no price.
const maxPrice = 1e6

// catalogOf converts what a provider offers. Offerings that are short are marked as not available.
func catalogOf(types []*cloudprovider.InstanceType, short func(launchKey) bool) *cloud.Catalog {
	c := &cloud.Catalog{}
	for _, it := range types {
		if it != nil {
			c.Types = append(c.Types, typeOf(it, short))
		}
	}
	slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	c.Types = slices.CompactFunc(c.Types, func(a, b *cloud.InstanceType) bool { return a.Name == b.Name })
	return c
}

func typeOf(it *cloudprovider.InstanceType, short func(launchKey) bool) *cloud.InstanceType {
	out := &cloud.InstanceType{
		Name: it.Name, Labels: map[string][]string{}, Capacity: it.Capacity.DeepCopy(), VolumeLimits: maps.Clone(it.VolumeAttachmentLimits),
		Devices: devicesOf(&it.DynamicResources), Overlaid: it.IsCapacityOverlayApplied(),
	}
	if it.Overhead != nil {
		out.Overhead = cloud.Overhead{KubeReserved: it.Overhead.KubeReserved, SystemReserved: it.Overhead.SystemReserved,
			EvictionThreshold: it.Overhead.EvictionThreshold}
	}
	for key, r := range it.Requirements {
		switch r.Operator() {
		case corev1.NodeSelectorOpIn:
			out.Labels[key] = slices.Sorted(slices.Values(r.Values()))
		case corev1.NodeSelectorOpDoesNotExist:
			out.Labels[key] = nil
		}
	}
	out.Labels[corev1.LabelInstanceTypeStable] = []string{it.Name}
	seen := map[string]bool{}
	for _, o := range it.Offerings {
		for _, labels := range labelSets(o.Requirements) {
			made := offeringOf(it, o, labels)
			key := keyOf(out.Name, &made)
			if seen[labelKey(labels)] || made.Zone() == "" || made.CapacityType() == "" {
				continue
			}
			seen[labelKey(labels)] = true
			made.Available, made.Full = made.Available && !short(key), made.Full && !short(key)
			out.Offerings = append(out.Offerings, made)
		}
	}
	slices.SortStableFunc(out.Offerings, func(a, b cloud.Offering) int { return strings.Compare(labelKey(a.Labels), labelKey(b.Labels)) })
	for i := range out.Offerings {
		for key, value := range out.Offerings[i].Labels {
			if !slices.Contains(out.Labels[key], value) {
				out.Labels[key] = append(out.Labels[key], value)
			}
		}
	}
	return out
}

// choices returns the labels of each machine that an offering can become: most offerings name one value for each key.
func labelSets(reqs scheduling.Requirements) []map[string]string {
	out := []map[string]string{{}}
	for _, key := range slices.Sorted(maps.Keys(reqs)) {
		r := reqs[key]
		mayHaveSeveral := key == corev1.LabelTopologyZone || key == v1.CapacityTypeLabelKey
		if r.Operator() != corev1.NodeSelectorOpIn || r.Len() != 1 && !mayHaveSeveral {
			continue
		}
		var next []map[string]string
		for _, value := range slices.Sorted(slices.Values(r.Values())) {
			for _, labels := range out {
				labels = maps.Clone(labels)
				labels[key] = value
				next = append(next, labels)
			}
		}
		out = next
	}
	return out
}

func offeringOf(it *cloudprovider.InstanceType, o *cloudprovider.Offering, labels map[string]string) cloud.Offering {
	out := cloud.Offering{Labels: labels, Available: o.Available, Overlaid: o.IsPriceOverlaid(), Capacity: capacityOverride(it, o)}
	switch reserved := out.CapacityType() == v1.CapacityTypeReserved; {
	case math.IsNaN(o.Price) || o.Price < 0 || o.Price > maxPrice:
		out.NeedsPrice, out.Available = out.Available, false
	case o.Price > 0 || reserved:
		out.Price = cloud.FromDollars(o.Price)
	default:
		out.Price = priceBySize(it)
	}
	if out.CapacityType() == v1.CapacityTypeReserved {
		out.Reserved = o.ReservationCapacity
		out.Available = o.Launchable() && !out.NeedsPrice
		out.Full = o.Available && !o.Launchable() && !out.NeedsPrice
		if cloudprovider.ReservationIDLabel != "" {
			out.Reservation = labels[cloudprovider.ReservationIDLabel]
		}
	}
	return out
}

// nominal orders the types of a provider that knows no prices by size. It is a millionth of a dollar for a vCPU, and as much for 4 GiB.
func priceBySize(it *cloudprovider.InstanceType) cloud.NanoUSD {
	cpu, memory := it.Capacity.Cpu(), it.Capacity.Memory()
	return cloud.NanoUSD(1 + cpu.MilliValue() + memory.Value()>>22)
}

// overridden returns the capacity of machines that are bought as the offering says, where it differs from that of the type. Our
// offerings have no overhead of their own: the difference is taken from the capacity, so that what is left for pods is right.
func capacityOverride(it *cloudprovider.InstanceType, o *cloudprovider.Offering) corev1.ResourceList {
	if len(o.CapacityOverride) == 0 && o.OverheadOverride == nil {
		return nil
	}
	out := o.CapacityOverride.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	if o.OverheadOverride == nil {
		return out
	}
	base := corev1.ResourceList{}
	if it.Overhead != nil {
		base = it.Overhead.Total()
	}
	for name, kept := range o.OverheadOverride.Total() {
		q, ok := out[name]
		if !ok {
			q = it.Capacity[name].DeepCopy()
		}
		q.Add(base[name])
		q.Sub(kept)
		out[name] = q
	}
	return out
}

// devicesOf converts what drivers of resource claims will publish. An attribute of which only the
// equality on some devices is known counts as published later.
func devicesOf(d *cloudprovider.DynamicResources) []cloud.DeviceSlice {
	var out []cloud.DeviceSlice
	for _, t := range d.ResourceSliceTemplates {
		if t == nil {
			continue
		}
		slice := cloud.DeviceSlice{Driver: t.Driver.Value(), Counters: t.SharedCounters}
		for _, device := range t.Devices {
			made := resourcev1.Device{Name: device.Name.Value(), Attributes: device.Attributes, Capacity: device.Capacity,
				ConsumesCounters: device.ConsumesCounters}
			if device.AllowMultipleAllocations {
				made.AllowMultipleAllocations = &device.AllowMultipleAllocations
			}
			slice.Devices = append(slice.Devices, made)
		}
		for _, bound := range d.AttributeBindings {
			if bound != nil && slices.ContainsFunc(bound.Devices, func(id cloudprovider.DeviceID) bool { return id.Driver == t.Driver }) &&
				!slices.Contains(slice.Later, string(bound.Attribute)) {
				slice.Later = append(slice.Later, string(bound.Attribute))
			}
		}
		out = append(out, slice)
	}
	return out
}

// A launchKey names what a launch asks the cloud for: a type in a zone, bought in one way.
type launchKey struct{ kind, zone, capacityType, reservation string }

func keyOf(kind string, o *cloud.Offering) launchKey {
	return launchKey{kind, o.Zone(), o.CapacityType(), o.Reservation}
}

func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(key + "=" + labels[key] + ",")
	}
	return b.String()
}

// fingerprint returns a number that differs when two catalogues differ.
func fingerprint(c *cloud.Catalog) uint64 {
	h := fnv.New64a()
	text := func(parts ...string) {
		for _, p := range parts {
			h.Write([]byte(p))
			h.Write([]byte{0})
		}
	}
	number := func(n int64) { _ = binary.Write(h, binary.LittleEndian, n) }
	amounts := func(list corev1.ResourceList) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			q := list[name]
			text(string(name))
			number(q.MilliValue())
		}
		text("")
	}
	flag := func(b bool) { text(strconv.FormatBool(b)) }
	for _, it := range c.Types {
		text(it.Name)
		amounts(it.Capacity)
		amounts(it.Overhead.KubeReserved)
		amounts(it.Overhead.SystemReserved)
		amounts(it.Overhead.EvictionThreshold)
		for _, key := range slices.Sorted(maps.Keys(it.Labels)) {
			text(key)
			text(it.Labels[key]...)
		}
		for _, driver := range slices.Sorted(maps.Keys(it.VolumeLimits)) {
			text(driver)
			number(int64(it.VolumeLimits[driver]))
		}
		for _, d := range it.Devices {
			text(d.Driver)
			number(int64(len(d.Devices)))
			for i := range d.Devices {
				text(d.Devices[i].String())
			}
		}
		for i := range it.Offerings {
			o := &it.Offerings[i]
			text(labelKey(o.Labels), o.Reservation)
			number(int64(o.Price))
			number(int64(o.Reserved))
			flag(o.Available)
			amounts(o.Capacity)
		}
	}
	return h.Sum64()
}

// shortageLife is how long an offering is left out that the provider had none of.
const shortageLife = 3 * time.Minute
