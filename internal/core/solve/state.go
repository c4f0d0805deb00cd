package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/work"
)

// Domains that are no domain.
const (
	noDomain   = -1 // the bin never has the label
	openDomain = -2 // the new node could still get several
)

// A state is a placement in the making.
type state struct {
	p    *Problem
	bins int // existing nodes first
	room []int64
	// For new bins, indexed by bin − len(p.Nodes).
	tmpl   []int32
	target []int32
	held   []int32 // reservation, −1 for none
	mask   []uint64
	width  int // words of a mask
	puts   [][]Put
	low    [][]int // lowered minValues, nil for nearly all
	narrow map[int]Narrowed
	// reserve is what a bin takes from its pool's limit where that is more than its target, nil for nearly all.
	reserve []quantity.Vec
	dropped bool // finish gave pods back

	domain  [][]int32 // [key][new bin]
	groups  []spread.Group
	ports   ports.Book
	volumes *volumes.Book
	limits  []limits.Pool
	left    []int // reservations
	placed  []Put // on existing nodes

	mounts  map[int]int      // pods that mount each volume, made when first needed
	touch   [][]touches      // [class][variant], made when first needed
	reaches map[string]reach // see reachOf
	alive   bits.Set         // bins with room for the smallest need of anybody
	least   quantity.Vec
	commits int
	meter   *work.Meter
	demand  quantity.Vec // of pods that are not placed yet
	worth   quantity.Vec // nano-dollars for each unit, scaled; see price.go
	pinned  bool         // replay: domains were decided before, counts are not asked again
	strict  bits.Set     // groups on which some class insists, made when first needed
	arrival *arrival     // what is known of daemons that groups count; nil for nearly all
	turn    []int32      // by class: its first place in the queue, where classes are placed in that order; nil: they are not

	// Scratch of one trial.
	masks   [][]uint64 // by depth of choice
	choice  []int32    // by touched key
	orders  [][]int32  // by depth: domains in the order of preference
	shapes  bits.Set
	both    bits.Set
	prices  priceTable
	rooms   roomTable
	visit   visit
	largest int     // of all catalogues
	twin    []int   // by template; see findTwins
	large   []int64 // by pool; see findLarge
}

// What steps cost, in units of work.
const (
	tryWork    = 50 // of a trial, and more for each group it has to do with
	groupWork  = 12
	commitWork = 80 // of placing pods on a bin
	shapeWork  = 8  // of looking at a shape as the machine for a new bin
)

func newState(p *Problem) *state {
	s := &state{p: p, bins: len(p.Nodes), width: 1, meter: p.Settings.Meter}
	if s.meter == nil {
		s.meter = &work.Meter{}
	}
	for i := range p.Templates {
		s.width = max(s.width, len(p.Templates[i].Mask))
		s.largest = max(s.largest, p.Templates[i].Catalog.Len())
	}
	s.shapes = bits.Make(s.largest)
	s.masks = make([][]uint64, len(p.Keys)+2)
	for i := range s.masks {
		s.masks[i] = make([]uint64, s.width)
	}
	s.both = bits.Make(64 * s.width)
	s.choice = make([]int32, len(p.Keys))
	s.orders = make([][]int32, len(p.Keys)+1)
	s.touch = make([][]touches, len(p.Classes))
	s.domain = make([][]int32, len(p.Keys))
	s.demand = make(quantity.Vec, p.Resources)
	s.least = leastNeed(p)
	s.twin = findTwins(p)
	s.large = findLarge(p)
	s.arrival = findArrival(p)
	s.reset()
	return s
}

// reset forgets every placement.
func (s *state) reset() {
	p := s.p
	s.bins = len(p.Nodes)
	s.room = slices.Grow(s.room[:0], p.Resources*(s.bins+16))
	s.ports, s.volumes = ports.Book{}, volumes.NewBook(p.Drivers)
	s.ports.Grow(s.bins)
	s.alive = bits.Make(s.bins + 64)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		s.room = append(s.room, n.Room...)
		s.ports.Take(i, n.Ports)
		s.volumes.Open(n.Volumes, n.Mounted)
		if !n.Closed && s.least.Fits(n.Room) {
			s.alive.Add(i)
		}
	}
	s.tmpl, s.target, s.held, s.mask = s.tmpl[:0], s.target[:0], s.held[:0], s.mask[:0]
	s.puts, s.low, s.reserve, s.placed, s.narrow = nil, nil, nil, nil, map[int]Narrowed{}
	for k := range s.domain {
		s.domain[k] = s.domain[k][:0]
	}
	s.groups = make([]spread.Group, len(p.Groups))
	for i := range p.Groups {
		s.groups[i] = p.Groups[i].Clone()
	}
	s.limits = make([]limits.Pool, len(p.Pools))
	for i := range p.Pools {
		s.limits[i] = p.Pools[i].Limit.Clone()
	}
	s.left = append([]int(nil), p.Reservations...)
	clear(s.demand)
	for i := range p.Classes {
		addTimes(s.demand, p.Classes[i].Need, p.Classes[i].Count)
	}
	s.commits = 0
}

func leastNeed(p *Problem) quantity.Vec {
	least := make(quantity.Vec, p.Resources)
	for r := range least {
		if len(p.Classes) > 0 {
			least[r] = p.Classes[0].Need[r]
		}
		for i := range p.Classes {
			least[r] = min(least[r], p.Classes[i].Need[r])
		}
	}
	return least
}

func addTimes(v, need quantity.Vec, n int) {
	for r, x := range need {
		v[r] = quantity.Clamp(v[r] + x*int64(n))
	}
}

// roomOf returns what is free on a bin.
func (s *state) roomOf(bin int) quantity.Vec {
	r := s.p.Resources
	return quantity.Vec(s.room[bin*r : bin*r+r : bin*r+r])
}

// maskOf returns the choices that are left to a new bin.
func (s *state) maskOf(bin int) bits.Set {
	i := (bin - len(s.p.Nodes)) * s.width
	return bits.Set(s.mask[i : i+s.width : i+s.width])
}

// domainOf returns the bin's domain of a topology key.
func (s *state) domainOf(key, bin int) int32 {
	if bin < len(s.p.Nodes) {
		return s.p.Keys[key].Node[bin]
	}
	return s.domain[key][bin-len(s.p.Nodes)]
}

// touches says which groups one variant of a class has to do with.
type touches struct {
	ready bool
	host  touch
	keys  []touch
	// one is set where each pod changes what the next may do, so that they are placed one by one.
	one bool
	// glued is set where the pods have to be on one host with others.
	glued bool
}

// A touch is the groups of one topology key.
type touch struct {
	key     int
	owned   []int // groups whose constraint the pods carry
	self    []bool
	shunned []int    // required anti-affinity of others that selects the pods
	counted []int    // groups that count the pods
	repels  []int    // required anti-affinity that the pods own
	reach   bits.Set // domains in which the pods could get a new node, where they are spread over them
}

// touchesOf returns the groups that a variant has to do with.
func (s *state) touchesOf(class, variant int) *touches {
	if s.touch[class] == nil {
		s.touch[class] = make([]touches, len(s.p.Classes[class].Variants))
	}
	t := &s.touch[class][variant]
	if !t.ready {
		s.fillTouches(t, class, &s.p.Classes[class].Variants[variant])
	}
	return t
}

func (s *state) fillTouches(t *touches, class int, v *Variant) {
	c := &s.p.Classes[class]
	t.ready = true
	if len(c.Groups) == 0 && len(v.Owns) == 0 && s.arrival == nil {
		return
	}
	t.host.key = spread.Host
	at := func(key int) *touch {
		if key == spread.Host {
			return &t.host
		}
		for i := range t.keys {
			if t.keys[i].key == key {
				return &t.keys[i]
			}
		}
		t.keys = append(t.keys, touch{key: key})
		return &t.keys[len(t.keys)-1]
	}
	matches := bits.Make(len(s.groups))
	for _, g := range c.Groups {
		matches.Add(g)
		to := at(s.groups[g].Key)
		to.counted = append(to.counted, g)
		if s.groups[g].Kind == spread.Anti && s.groups[g].Required {
			to.shunned = append(to.shunned, g)
		}
	}
	for _, g := range v.Owns {
		group := &s.groups[g]
		to := at(group.Key)
		to.owned = append(to.owned, g)
		to.self = append(to.self, matches.Has(g))
		if group.Kind == spread.Anti && group.Required {
			to.repels = append(to.repels, g)
		}
		if group.Key != spread.Host && (group.Kind != spread.Affinity) {
			t.one = true
		}
		if group.Key != spread.Host && group.Kind == spread.Spread && to.reach == nil {
			to.reach = s.reachOf(class)[group.Key]
		}
		if group.Key == spread.Host && group.Kind == spread.Affinity {
			t.glued = true
		}
	}
	if s.arrival != nil {
		for _, key := range s.arrival.keys {
			at(key)
		}
	}
	for _, to := range t.keys {
		if len(to.shunned) > 0 {
			t.one = true
		}
	}
}
