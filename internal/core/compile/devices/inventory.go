package devices

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A kind is what can be said about a device without its name. It is known for as long as the engine remembers.
type kind struct {
	driver string
	device *resourcev1.Device
	coming bool     // a machine will bring it
	later  []string // attributes whose values are known only once the device is there
	id     int
}

// A Memory is which kinds of devices were seen, and what selectors said of them. Drivers often give each
// device a number of its own, so that there may be as many kinds as devices in the cluster, and anybody may write
// selectors.
type Memory struct {
	kinds   map[[sha256.Size]byte]*kind
	inSlice map[*resourcev1.ResourceSlice][]*kind
	tainting
	verdicts map[string]*verdicts // by selector
	bytes    int                  // of verdicts
}

// verdicts are what one selector said of kinds of devices, by their ids.
type verdicts struct {
	said  []verdict
	errs  map[int]error
	alike map[string]error // the errors, each once
}

type verdict byte

const (
	notAsked verdict = iota
	takesIt
	leavesIt
	fails
)

// mostVerdicts is how many bytes of verdicts are remembered.
const mostVerdicts = 64 << 20

// NewMemory returns a Memory that has seen nothing.
func NewMemory() *Memory {
	return &Memory{kinds: map[[sha256.Size]byte]*kind{},
		inSlice: map[*resourcev1.ResourceSlice][]*kind{}, verdicts: map[string]*verdicts{}}
}

// of returns what was said by a selector, with room for every kind that there is.
func (m *Memory) of(expression string) *verdicts {
	v := m.verdicts[expression]
	if v == nil {
		v = &verdicts{errs: map[int]error{}, alike: map[string]error{}}
		m.verdicts[expression] = v
	}
	if more := len(m.kinds) - len(v.said); more > 0 {
		v.said = append(v.said, make([]verdict, more)...)
		m.bytes += more
	}
	return v
}

// Full reports whether a Memory has grown so large that it should be replaced.
func (m *Memory) Full() bool { return m.bytes > mostVerdicts }

// fails notes that a selector could not be evaluated for a kind.
func (m *Memory) fails(v *verdicts, kind int, err error) {
	text := err.Error()
	if same, known := v.alike[text]; known {
		err = same
	} else {
		v.alike[text] = err
		m.bytes += len(text)
	}
	v.said[kind], v.errs[kind] = fails, err
	m.bytes += errorBytes
}

// errorBytes is about what it takes to remember that a kind has an error.
const errorBytes = 50

// kindOf returns the kind of a device; for a device that a machine will bring, from is its description.
func (m *Memory) kindOf(driver string, d *resourcev1.Device, from *cloud.DeviceSlice) *kind {
	text, err := json.Marshal(resourcev1.Device{Attributes: d.Attributes, Capacity: d.Capacity,
		AllowMultipleAllocations: d.AllowMultipleAllocations, Taints: d.Taints})
	if err != nil {
		text = []byte(d.Name)
	}
	var key []byte
	key = identity.Text(key, driver)
	key = identity.Text(key, string(text))
	if from != nil {
		key = identity.Texts(key, from.Later)
	}
	sum := sha256.Sum256(key)
	k := m.kinds[sum]
	if k == nil {
		k = &kind{driver: driver, device: d, id: len(m.kinds)}
		if from != nil {
			k.coming, k.later = true, from.Later
		}
		m.kinds[sum] = k
	}
	return k
}

// kindsIn returns the kinds of the devices of a slice, which are worked out once.
func (m *Memory) kindsIn(s *resourcev1.ResourceSlice) []*kind {
	kinds, ok := m.inSlice[s]
	if !ok {
		for i := range s.Spec.Devices {
			kinds = append(kinds, m.kindOf(s.Spec.Driver, &s.Spec.Devices[i], nil))
		}
		m.inSlice[s] = kinds
	}
	return kinds
}

// An inventory is the devices of a node with their names, as far as they are published.
type inventory struct {
	devices.Inventory
	ids []deviceID
}

type deviceID struct{ driver, pool, device string }

// published are the devices that drivers have published.
type published struct {
	nodes map[string][]*resourcePool // by node name: in the order in which devices are tried
	far   []farDevice
	taken map[deviceID][]resourcev1.DeviceRequestAllocationResult
}

// A farDevice is a device that belongs to several nodes.
type farDevice struct {
	name string
	kind *kind
}

// A resourcePool is the slices of the newest generation of a pool.
type resourcePool struct {
	driver, name string
	slices       []*resourcev1.ResourceSlice // by name
	unsure       bool                        // some are missing, or they contradict themselves
	last         bool                        // it has devices that are bound to a node in steps
}

func (d *Model) readSlices() *published {
	out := &published{nodes: map[string][]*resourcePool{}, taken: map[deviceID][]resourcev1.DeviceRequestAllocationResult{}}
	for _, p := range poolsOf(d.in.Memory.published(d.in.Snap)) {
		nodes := p.nodes()
		for _, name := range nodes {
			out.nodes[name] = append(out.nodes[name], p)
		}
		d.addFar(out, p, nodes)
	}
	for c := range cluster.ResourceClaims.All(d.in.Snap) {
		if a := c.Status.Allocation; a != nil {
			for _, r := range a.Devices.Results {
				if r.AdminAccess == nil || !*r.AdminAccess {
					id := deviceID{r.Driver, r.Pool, r.Device}
					out.taken[id] = append(out.taken[id], r)
				}
			}
		}
	}
	return out
}

// poolsOf sorts slices into pools, in the order in which devices are tried.
func poolsOf(all []*resourcev1.ResourceSlice) []*resourcePool {
	index := map[[2]string]*resourcePool{}
	var out []*resourcePool
	for _, s := range all {
		key := [2]string{s.Spec.Driver, s.Spec.Pool.Name}
		p := index[key]
		if p == nil {
			p = &resourcePool{driver: s.Spec.Driver, name: s.Spec.Pool.Name}
			index[key] = p
			out = append(out, p)
		}
		if len(p.slices) > 0 && p.slices[0].Spec.Pool.Generation < s.Spec.Pool.Generation {
			p.slices = nil
		}
		if len(p.slices) == 0 || p.slices[0].Spec.Pool.Generation == s.Spec.Pool.Generation {
			p.slices = append(p.slices, s)
		}
	}
	for _, p := range out {
		slices.SortFunc(p.slices, func(a, b *resourcev1.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
		p.unsure = int64(len(p.slices)) != p.slices[0].Spec.Pool.ResourceSliceCount || !p.sound()
		for _, s := range p.slices {
			p.last = p.last || slices.ContainsFunc(s.Spec.Devices, func(x resourcev1.Device) bool { return x.BindingConditions != nil })
		}
	}
	slices.SortFunc(out, func(a, b *resourcePool) int {
		if a.last != b.last {
			if a.last {
				return 1
			}
			return -1
		}
		return cmp.Or(strings.Compare(a.driver, b.driver), strings.Compare(a.name, b.name))
	})
	return out
}

// sound reports whether names of devices and counters are said once, and counters that devices draw on are there and not below zero.
func (p *resourcePool) sound() bool {
	names, sets := map[string]bool{}, map[string]*resourcev1.CounterSet{}
	for _, s := range p.slices {
		for i := range s.Spec.SharedCounters {
			set := &s.Spec.SharedCounters[i]
			if sets[set.Name] != nil {
				return false
			}
			sets[set.Name] = set
		}
	}
	for _, s := range p.slices {
		for _, x := range s.Spec.Devices {
			if names[x.Name] {
				return false
			}
			names[x.Name] = true
			for _, draw := range x.ConsumesCounters {
				set := sets[draw.CounterSet]
				if set == nil {
					return false
				}
				for name, amount := range draw.Counters {
					if of, has := set.Counters[name]; !has || of.Value.Sign() < 0 || amount.Value.Sign() < 0 {
						return false
					}
				}
			}
		}
	}
	return true
}

// nodeOf names the node of a device of a slice; "" if it is not of one node.
func (p *resourcePool) nodeOf(s *resourcev1.ResourceSlice, x *resourcev1.Device) string {
	name := s.Spec.NodeName
	if s.Spec.PerDeviceNodeSelection != nil && *s.Spec.PerDeviceNodeSelection {
		name = x.NodeName
	}
	if name == nil {
		return ""
	}
	return *name
}

// nodes names the nodes that have devices of a pool, and those that will have once all of it is published.
func (p *resourcePool) nodes() []string {
	var out []string
	for _, s := range p.slices {
		if s.Spec.NodeName != nil && *s.Spec.NodeName != "" {
			out = append(out, *s.Spec.NodeName)
		}
		for i := range s.Spec.Devices {
			if name := p.nodeOf(s, &s.Spec.Devices[i]); name != "" {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tied reports whether devices on several nodes draw on the same counters.
func (p *resourcePool) tied(nodes []string) bool {
	return len(nodes) != 1 && slices.ContainsFunc(p.slices,
		func(s *resourcev1.ResourceSlice) bool { return len(s.Spec.SharedCounters) > 0 })
}

func (d *Model) addFar(out *published, p *resourcePool, nodes []string) {
	tied := p.tied(nodes)
	for _, s := range p.slices {
		for i, kind := range d.in.Memory.kindsIn(s) {
			if x := &s.Spec.Devices[i]; tied || p.nodeOf(s, x) == "" {
				d.number(kind)
				out.far = append(out.far, farDevice{p.driver + "/" + p.name + "/" + x.Name, kind})
			}
		}
	}
}

// number returns the number of a kind in the problem.
func (d *Model) number(k *kind) int {
	n, ok := d.numbers[k]
	if !ok {
		n = len(d.kinds)
		d.numbers[k] = n
		d.kinds = append(d.kinds, k)
	}
	return n
}

func (d *Model) driverNumber(name string) int {
	at := slices.Index(d.Drivers, name)
	if at < 0 {
		at = len(d.Drivers)
		d.Drivers = append(d.Drivers, name)
	}
	return at
}

// inventoriesOf returns what a node has. Until it is initialised that is what its type brings, of drivers that have
// not published it yet; one whose type is not known may be any of several.
func (d *Model) inventoriesOf(n *Node) []*inventory {
	var own []*resourcePool
	there := map[string]bool{}
	for _, p := range d.published.nodes[n.Name] {
		own = append(own, p)
		there[p.driver] = there[p.driver] || !p.unsure
	}
	base := &inventory{}
	if d.crowded(own, n.Name) {
		base.Unsure = true
		return []*inventory{base}
	}
	for _, p := range own {
		d.addPool(base, p, n.Name)
	}
	if n.Initialized || len(n.Types) == 0 {
		return []*inventory{base.mark()}
	}
	var out []*inventory
	for _, it := range n.Types {
		inv := &inventory{ids: slices.Clone(base.ids)}
		inv.Devices, inv.Counters = slices.Clone(base.Devices), slices.Clone(base.Counters)
		for i := range it.Devices {
			if s := &it.Devices[i]; !there[s.Driver] {
				d.addSlice(inv, s)
			}
		}
		out = append(out, inv.mark())
	}
	return out
}

// mostOnNode is how many devices a node has at most: what is left of them is written down anew for every pod that
// gets some. Of a device that says it has more nothing is given away.
const mostOnNode = 10_000

// crowded reports whether pools have more devices on a node than any node has.
func (d *Model) crowded(own []*resourcePool, node string) bool {
	n := 0
	for _, p := range own {
		for _, s := range p.slices {
			for i := range s.Spec.Devices {
				if p.nodeOf(s, &s.Spec.Devices[i]) == node {
					n++
				}
			}
		}
	}
	return n > mostOnNode
}

// addPool adds the devices of a pool that are on a node.
func (d *Model) addPool(inv *inventory, p *resourcePool, node string) {
	if p.unsure {
		inv.Unsure = true
		return
	}
	if p.tied(p.nodes()) {
		return
	}
	var sets []resourcev1.CounterSet
	for _, s := range p.slices {
		sets = append(sets, s.Spec.SharedCounters...)
	}
	at := inv.addCounters(sets)
	for _, s := range p.slices {
		for i, kind := range d.in.Memory.kindsIn(s) {
			if x := &s.Spec.Devices[i]; p.nodeOf(s, x) == node {
				d.addDevice(inv, kind, x, at, deviceID{p.driver, p.name, x.Name})
			}
		}
	}
}

// addSlice adds the devices that a driver will publish.
func (d *Model) addSlice(inv *inventory, s *cloud.DeviceSlice) {
	at := inv.addCounters(s.Counters)
	for i := range s.Devices {
		x := d.in.Memory.tainted(s.Driver, "", &s.Devices[i])
		d.addDevice(inv, d.in.Memory.kindOf(s.Driver, x, s), x, at, deviceID{})
	}
}

// addCounters adds counters and returns their numbers.
func (inv *inventory) addCounters(sets []resourcev1.CounterSet) map[[2]string]int {
	at := map[[2]string]int{}
	for i := range sets {
		for _, name := range sorted(sets[i].Counters) {
			c := sets[i].Counters[name]
			at[[2]string{sets[i].Name, name}] = len(inv.Counters)
			inv.Counters = append(inv.Counters, milli(&c.Value))
		}
	}
	return at
}

func (d *Model) addDevice(inv *inventory, kind *kind, x *resourcev1.Device, counters map[[2]string]int, id deviceID) {
	out := devices.Device{Kind: d.number(kind), Driver: d.driverNumber(kind.driver), Multiple: kind.multiple()}
	if out.Multiple {
		for _, name := range sorted(x.Capacity) {
			c := x.Capacity[name]
			out.Capacity = append(out.Capacity, milli(&c.Value))
		}
	}
	for _, draw := range x.ConsumesCounters {
		for _, name := range sorted(draw.Counters) {
			c := draw.Counters[name]
			if at, ok := counters[[2]string{draw.CounterSet, name}]; ok {
				out.Draws = append(out.Draws, devices.Draw{Counter: at, Amount: milli(&c.Value)})
			}
		}
	}
	inv.Devices, inv.ids = append(inv.Devices, out), append(inv.ids, id)
}

func (k *kind) multiple() bool {
	return k.device.AllowMultipleAllocations != nil && *k.device.AllowMultipleAllocations
}

// stateOf is an inventory without what is allocated of it.
func (d *Model) stateOf(inv *inventory) *devices.State {
	s := devices.New(&inv.Inventory, d.Effort)
	for i, id := range inv.ids {
		for _, r := range d.published.taken[id] {
			var share []int64
			for _, name := range sorted(d.kinds[inv.Devices[i].Kind].device.Capacity) {
				q := r.ConsumedCapacity[name]
				share = append(share, milli(&q))
			}
			s.Use(i, share)
		}
	}
	return s
}

// readShapes lists what every machine brings that a pool may open.
func (d *Model) readShapes() {
	for _, machines := range d.in.Templates {
		shapes := make([]*inventory, len(machines))
		for i, m := range machines {
			if m.Type == nil {
				continue
			}
			shapes[i] = &inventory{}
			for k := range m.Type.Devices {
				d.addSlice(shapes[i], &m.Type.Devices[k])
			}
			shapes[i].mark()
		}
		d.onShapes = append(d.onShapes, shapes)
	}
}

// mark marks devices that draw on counters where several drivers have some: pools of several drivers often have one name, the node's, and
// kube-scheduler (1.36) takes their counters for each other's then.
func (inv *inventory) mark() *inventory {
	var drivers []int
	for i := range inv.Devices {
		if x := &inv.Devices[i]; len(x.Draws) > 0 && !slices.Contains(drivers, x.Driver) {
			drivers = append(drivers, x.Driver)
		}
	}
	for i := range inv.Devices {
		inv.Devices[i].Mixed = len(drivers) > 1 && len(inv.Devices[i].Draws) > 0
	}
	return inv
}

// shapeStates returns the devices of machines by template and shape, less what daemons take.
func (d *Model) shapeStates() [][]*devices.State {
	out := make([][]*devices.State, len(d.onShapes))
	for i, shapes := range d.onShapes {
		out[i] = make([]*devices.State, len(shapes))
		for sh, inv := range shapes {
			if inv == nil {
				continue
			}
			out[i][sh] = d.stateOf(inv)
			for _, at := range d.in.Templates[i][sh].Daemons {
				d.giveDaemon(out[i][sh:sh+1], &d.in.Daemons[at])
			}
		}
	}
	return out
}

// sorted returns the keys of a map in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
