package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// mostConflicts is how many pairwise conflicts package pack is given; pods with more keep their incumbent's place.
const mostConflicts = 20_000

// An item is pods that the packer sees as equal: of one class and variant, pinned to the domains that the incumbent chose.
type item struct {
	class   ClassID
	variant int
	tier    int
	pins    []int32 // by topology key; noDomain where the pods touch nothing
	count   int
}

// A packing is the question to the packer and how to read its answer.
type packing struct {
	s       *state
	items   []item
	kinds   []int // one item of each kind; see findKinds
	kindOf  []int // by item
	index   map[string]int
	cells   []packCell
	frozen  []BinID // new bins that stay as they are
	problem pack.Problem
	pinned  bool
	// loose asks for a bound on every plan: pods may use what any reading of equal preference allows, any kind of machine, and
	// reservations.
	loose bool
	// proves asks for a bound; exact is set where every node that pods can be on is one of the cells, and costs as much.
	proves, exact bool
}

// A packCell is a template with what a launch sends, the cheapest shape first.
type packCell struct {
	tmpl  TemplateID
	shape int
	kinds bits.Set // of items that may be on it
}

// repack takes apart the new nodes that are tied by nothing but per-node caps and pairwise conflicts, and makes the question of
// how to fill nodes with their pods. It returns nil if there is nothing to ask.
func (s *state) repack() *packing {
	k := &packing{s: s, index: map[string]int{}}
	simple := k.simpleTemplates()
	bad := map[ClassID]bool{} // classes whose ties the packer cannot express
	for {
		k.collect(simple, bad)
		if len(k.items) == 0 {
			return nil
		}
		if !k.tie(bad) {
			break
		}
	}
	k.proves = len(k.frozen) == 0 && !k.pinned
	k.makeCells()
	k.makeLimits()
	return k
}

// simpleTemplates says which templates' nodes may be taken apart.
func (k *packing) simpleTemplates() []bool {
	out := make([]bool, len(k.s.p.Templates))
	for t := range out {
		out[t] = len(k.s.p.Templates[t].Min) == 0
	}
	return out
}

// collect sorts the pods of new bins into items, and lists the bins that stay.
func (k *packing) collect(simple []bool, bad map[ClassID]bool) {
	s := k.s
	k.items, k.frozen, k.pinned = nil, nil, false
	clear(k.index)
	for bin, n := range s.newBins() {
		if len(n.puts) == 0 {
			continue
		}
		if !simple[n.tmpl] || n.held != noReservation || slices.ContainsFunc(n.puts, func(p Put) bool { return bad[p.Class] || !s.simple(&p, n.tmpl) }) {
			k.frozen = append(k.frozen, bin)
			continue
		}
		for _, p := range n.puts {
			k.add(p, s.template(n).Tier)
		}
	}
}

// simple reports whether the packer can express what a class asks for.
func (s *state) simple(p *Put, tmpl TemplateID) bool {
	c := &s.p.Classes[p.Class]
	t := s.touchesOf(p.Class, p.Variant)
	if t.glued || len(c.Ports) > 0 || slices.ContainsFunc(c.Volumes, s.sharedVolume) {
		return false
	}
	return len(s.p.Templates[tmpl].Segments) == 1 || s.match(&c.Variants[p.Variant], tmpl).Mask == nil && len(t.keys) == 0
}

func (k *packing) add(p Put, tier int) {
	s := k.s
	var pins []int32
	if t := s.touchesOf(p.Class, p.Variant); len(t.keys) > 0 {
		pins = make([]int32, len(s.p.Keys))
		for j := range pins {
			pins[j] = noDomain
		}
		for j := range t.keys {
			pins[t.keys[j].key] = s.domainOf(t.keys[j].key, p.Bin)
			k.pinned = true
		}
	}
	key := make([]byte, 0, 16+4*len(pins))
	for _, n := range append([]int32{int32(p.Class), int32(p.Variant), int32(tier)}, pins...) {
		key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	at, ok := k.index[string(key)]
	if !ok {
		at = len(k.items)
		k.index[string(key)] = at
		k.items = append(k.items, item{class: p.Class, variant: p.Variant, tier: tier, pins: pins})
	}
	k.items[at].count += p.Count
}

// tie writes per-node caps and pairwise conflicts of host-level groups. Classes for which that does not work are added to bad,
// and true is returned: the collection has to start over.
func (k *packing) tie(bad map[ClassID]bool) bool {
	s := k.s
	k.problem = pack.Problem{Classes: make([]pack.Class, len(k.items))}
	before := len(bad)
	counted := map[int][]int{} // by host-level group: items that it counts
	owners := map[int][]int{}
	for i := range k.items {
		it := &k.items[i]
		t := s.touchesOf(it.class, it.variant)
		for _, g := range t.host.counted {
			counted[g] = append(counted[g], i)
		}
		for _, g := range t.host.owned {
			owners[g] = append(owners[g], i)
		}
	}
	pairs := 0
	for g := range s.groups {
		pairs += len(owners[g]) * len(counted[g])
	}
	for g := range s.groups {
		crowded := pairs > mostConflicts && len(counted[g]) > 1
		for _, o := range owners[g] {
			if crowded || !k.tieOwner(g, o, counted[g], owners[g]) {
				bad[k.items[o].class] = true
			}
		}
	}
	return len(bad) > before
}

// tieOwner expresses what one item owes to a host-level group, or returns false. A conflict has to hold in whatever order
// the two come to a node, or the bound would be wrong: both own the group, or the owner repels the other.
func (k *packing) tieOwner(g, o int, counted, owners []int) bool {
	group := &k.s.groups[g]
	limit := 1
	if group.Kind == spread.Spread {
		limit = int(group.MaxSkew)
	}
	for _, c := range counted {
		if c == o {
			if n := &k.problem.Classes[o].PerNode; *n == 0 || *n > limit {
				*n = limit
			}
			continue
		}
		mutual := group.Kind == spread.Anti && group.Required || slices.Contains(owners, c) && slices.Contains(counted, o)
		if limit > 1 || !mutual {
			return false
		}
		k.problem.Conflicts = append(k.problem.Conflicts, [2]int{min(o, c), max(o, c)})
	}
	return true
}

// needOf returns the vector of a class, with its volumes as further dimensions.
func (s *state) needOf(ci ClassID) []int64 {
	c := &s.p.Classes[ci]
	out := append([]int64(nil), c.Need...)
	for range s.p.Drivers {
		out = append(out, 0)
	}
	for _, v := range c.Volumes {
		if !s.sharedVolume(v) { // a shared one may be attached already: counting it would make bounds wrong
			out[s.p.Resources+v.Driver]++
		}
	}
	return out
}

// makeLimits writes what limited pools have left, without the nodes that are taken apart.
func (k *packing) makeLimits() {
	s := k.s
	for pool := range s.limits {
		left := s.limits[pool].Clone()
		if !left.Limited {
			continue
		}
		for bin, n := range s.newBins() {
			if s.template(n).Pool == pool && len(n.puts) > 0 && !k.stays(bin) {
				left.Give(s.takenBy(n))
			}
		}
		k.limit(pool, left.Nodes, func(quantity.Vec) int64 { return 1 })
		for r, most := range left.Left {
			k.limit(pool, most, func(v quantity.Vec) int64 { return v[r] })
		}
	}
}

// stays reports whether a bin is one of the frozen, which are in order.
func (k *packing) stays(bin BinID) bool {
	_, found := slices.BinarySearch(k.frozen, bin)
	return found
}

func (k *packing) limit(pool int, most int64, use func(quantity.Vec) int64) {
	if most == quantity.Max {
		return
	}
	l := pack.Limit{Use: make([]int64, len(k.cells)), Max: max(most, 0)}
	for c := range k.cells {
		if tmpl := &k.s.p.Templates[k.cells[c].tmpl]; tmpl.Pool == pool {
			l.Use[c] = use(tmpl.Catalog.Capacity[k.cells[c].shape])
		}
	}
	k.problem.Limits = append(k.problem.Limits, l)
}
