package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/bounded"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// readTypes reads instance types in full, as JSON values one after the other. all is the catalogue of pools without
// one of their own; own has the catalogues of the pools that types name.
func readTypes(text string) (all *cloud.Catalog, own map[string]*cloud.Catalog, err error) {
	shared := map[string]*cloud.Catalog{"": {}} // by the pools that have it
	own = map[string]*cloud.Catalog{}
	r := json.NewDecoder(strings.NewReader(text))
	for {
		it := &sold{}
		if err := r.Decode(it); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("types: %w", err)
		}
		key := string(identity.Texts(nil, it.Pools))
		if shared[key] == nil {
			shared[key] = &cloud.Catalog{}
		}
		for _, pool := range it.Pools {
			own[pool] = shared[key]
		}
		shared[key].Types = append(shared[key].Types, &it.InstanceType)
	}
	for _, c := range shared {
		slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	}
	return shared[string(identity.Texts(nil, nil))], own, nil
}

// catalogOf returns what a pool can launch.
func (w *World) catalogOf(pool string) *cloud.Catalog {
	if own := w.own[pool]; own != nil {
		return own
	}
	return w.Catalog
}

// typeOf returns the instance type of a name, nil if there is none.
func (w *World) typeOf(name string) *cloud.InstanceType {
	for _, t := range w.Catalog.Types {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// readShapes reads the table of instance types: a name with cpu, mem, pods, disk, zones, spot and od (prices in dollars an hour), dry
// (zones that are sold out), every (hours until a spot machine is taken back), rests (zones in which that was a short while ago),
// reserved=id:zone:count, gpu, exotic, label=k:v|w, volumes=driver:limit, device=driver:count:attribute:value|attribute|… (an
// attribute without a value has a value that is known only later).
func readShapes(text string) (*cloud.Catalog, error) {
	if strings.TrimSpace(text) == "" {
		text = "default cpu=4 mem=4Gi pods=5 zones=a,b,c od=0.4 spot=0.2"
	}
	c := &cloud.Catalog{}
	err := eachLine(text, func(l *line) error {
		it := &cloud.InstanceType{Name: l.name, Labels: map[string][]string{}, Exotic: l.has("exotic"), Capacity: corev1.ResourceList{}}
		for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "cpu", corev1.ResourceMemory: "mem",
			corev1.ResourcePods: "pods", "gpu.example/gpu": "gpu", corev1.ResourceEphemeralStorage: "disk"} {
			q, err := bounded.ParseQuantity(l.get(key, map[string]string{"cpu": "4", "mem": "4Gi", "pods": "110"}[key]))
			if err != nil {
				if l.has(key) {
					return fmt.Errorf("%s: %w", key, err)
				}
				continue
			}
			it.Capacity[name] = q
		}
		for _, x := range l.all("label") {
			k, v, _ := strings.Cut(x, ":")
			it.Labels[longKey(k)] = split(v, "|")
		}
		for _, x := range l.all("volumes") {
			driver, n, _ := strings.Cut(x, ":")
			limit, err := strconv.Atoi(n)
			if err != nil {
				return err
			}
			if it.VolumeLimits == nil {
				it.VolumeLimits = map[string]int{}
			}
			it.VolumeLimits[driver] = limit
		}
		for _, x := range l.all("device") {
			slice, err := devicesOf(x)
			if err != nil {
				return fmt.Errorf("device: %w", err)
			}
			it.Devices = append(it.Devices, slice)
		}
		if err := addOfferings(it, l); err != nil {
			return err
		}
		finishLabels(it)
		c.Types = append(c.Types, it)
		return nil
	})
	slices.SortFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	return c, err
}

// devicesOf reads driver:count:attributes, as readShapes describes them.
func devicesOf(text string) (cloud.DeviceSlice, error) {
	parts := strings.SplitN(text, ":", 3)
	out := cloud.DeviceSlice{Driver: parts[0]}
	if len(parts) < 2 {
		return out, fmt.Errorf("%q has no count", text)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return out, err
	}
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	if len(parts) > 2 {
		for _, x := range split(parts[2], "|") {
			if name, value, has := strings.Cut(x, ":"); has {
				attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
			} else {
				out.Later = append(out.Later, name)
			}
		}
	}
	for i := range n {
		out.Devices = append(out.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i), Attributes: attributes})
	}
	return out, nil
}

// reservedPrice is the price of a reservation in dollars an hour: it is paid for, and all but free.
const reservedPrice = 0.000001

// addOfferings adds an offering for each zone and each way to buy (od, spot, reserved) that a line names.
func addOfferings(it *cloud.InstanceType, l *line) error {
	add := func(zone, ct string, price float64, more map[string]string, reserved int) {
		labels := map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: ct}
		maps.Copy(labels, more)
		it.Offerings = append(it.Offerings, cloud.Offering{Labels: labels, Price: cloud.FromDollars(price),
			Available: !slices.Contains(split(l.get("dry", ""), ","), zone), Reserved: reserved})
	}
	for _, zone := range split(l.get("zones", "a,b,c"), ",") {
		for key, ct := range map[string]string{"od": v1.CapacityTypeOnDemand, "spot": v1.CapacityTypeSpot} {
			if !l.has(key) {
				continue
			}
			price, err := strconv.ParseFloat(l.get(key, ""), 64)
			if err != nil {
				return err
			}
			add(zone, ct, price, nil, 0)
			if err := addRisk(&it.Offerings[len(it.Offerings)-1], l); err != nil {
				return err
			}
		}
	}
	for _, x := range l.all("reserved") { // id:zone:count
		f := strings.Split(x, ":")
		if len(f) != 3 {
			return fmt.Errorf("reserved=%s is not id:zone:count", x)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			return err
		}
		add(f[1], v1.CapacityTypeReserved, reservedPrice, map[string]string{"example.com/reservation": f[0]}, n)
	}
	slices.SortFunc(it.Offerings, func(a, b cloud.Offering) int {
		return strings.Compare(a.CapacityType()+a.Zone(), b.CapacityType()+b.Zone())
	})
	return nil
}

// addRisk reads for spot offerings after how many hours they are interrupted (every), and in which zones that
// happened recently (rests).
func addRisk(o *cloud.Offering, l *line) error {
	if o.CapacityType() != v1.CapacityTypeSpot || !l.has("every") {
		return nil
	}
	hours, err := strconv.ParseInt(l.get("every", ""), 10, 64)
	if err != nil || hours < 1 {
		return fmt.Errorf("every: %q is no number of hours", l.get("every", ""))
	}
	o.Hazard, o.Rests = 1e9/hours, slices.Contains(split(l.get("rests", ""), ","), o.Zone())
	return nil
}

// finishLabels adds the labels that every type has, and those of its offerings.
func finishLabels(it *cloud.InstanceType) {
	it.Labels[corev1.LabelInstanceTypeStable] = []string{it.Name}
	for key, value := range map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"} {
		if _, ok := it.Labels[key]; !ok {
			it.Labels[key] = []string{value}
		}
	}
	for _, o := range it.Offerings {
		for k, v := range o.Labels {
			if !slices.Contains(it.Labels[k], v) {
				it.Labels[k] = append(it.Labels[k], v)
			}
		}
	}
}

// types writes the instance types of each catalogue, the cheapest first, in at most most bytes. A story that is cut
// (width 0) has only the catalogue of the first pool.
func (w *writer) types(most int) string {
	var b strings.Builder
	if w.width == 0 && len(w.in.Pools) > 0 { // there is hardly room for one catalogue
		w.catalog(&b, w.in.Pools[0].Catalog, nil, most)
		return b.String()
	}
	var told []*cloud.Catalog
	for _, p := range w.in.Pools {
		if slices.Contains(told, p.Catalog) {
			continue
		}
		told = append(told, p.Catalog)
		var pools []string
		for _, q := range w.in.Pools {
			if q.Catalog == p.Catalog {
				pools = append(pools, w.name("pool", q.Pool.Name))
			}
		}
		if len(pools) == len(w.in.Pools) {
			pools = nil // all of them
		}
		w.catalog(&b, p.Catalog, pools, most)
	}
	return b.String()
}

// A sold is an instance type with the pools that can launch it; all pools if none is named.
type sold struct {
	Pools []string `json:"pools,omitempty"`
	cloud.InstanceType
}

// catalog writes the types of one catalogue, redacted, until most bytes are reached.
func (w *writer) catalog(b *strings.Builder, c *cloud.Catalog, pools []string, most int) {
	all := slices.Clone(c.Types)
	slices.SortStableFunc(all, func(a, b *cloud.InstanceType) int { return cmp.Compare(cheapest(a), cheapest(b)) })
	for _, it := range all {
		redacted := sold{pools, *it}
		redacted.Labels = map[string][]string{}
		for k, values := range it.Labels {
			for _, v := range values {
				redacted.Labels[w.key(k)] = append(redacted.Labels[w.key(k)], w.value(k, v))
			}
			if len(values) == 0 {
				redacted.Labels[w.key(k)] = nil
			}
		}
		redacted.Capacity = w.amounts(it.Capacity)
		redacted.Overhead = cloud.Overhead{
			KubeReserved: w.amounts(it.Overhead.KubeReserved), SystemReserved: w.amounts(it.Overhead.SystemReserved),
			EvictionThreshold: w.amounts(it.Overhead.EvictionThreshold),
		}
		redacted.Offerings = nil
		for _, o := range it.Offerings {
			labels := map[string]string{}
			for k, v := range o.Labels {
				labels[w.key(k)] = w.value(k, v)
			}
			o.Labels, o.Capacity = labels, w.amounts(o.Capacity)
			redacted.Offerings = append(redacted.Offerings, o)
		}
		text, err := json.Marshal(redacted)
		if err != nil || b.Len()+len(text) > most {
			break
		}
		b.Write(append(text, '\n'))
	}
}

// amounts returns resources with redacted names.
func (w *writer) amounts(in corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range in {
		out[corev1.ResourceName(w.key(string(name)))] = q
	}
	return out
}

// cheapest returns the lowest price of a type's offerings.
func cheapest(it *cloud.InstanceType) cloud.NanoUSD {
	out := cloud.NanoUSD(1 << 62)
	for i := range it.Offerings {
		out = min(out, it.Offerings[i].Price)
	}
	return out
}
