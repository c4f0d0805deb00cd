package solve

import (
	"cmp"
	"encoding/binary"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// bound writes a bound on every plan for the pods of new nodes, whatever domains it chooses and whatever limits and minValues allow.
func (s *state) bound(r *Result) {
	k := &packing{s: s, index: map[string]int{}, loose: true, proves: true}
	for _, n := range s.newBins() {
		for _, p := range n.puts {
			k.addLoose(p, s.template(n).Tier)
		}
	}
	if len(k.items) == 0 {
		return
	}
	k.pinLeast()
	k.problem.Classes = make([]pack.Class, len(k.items))
	k.makeCells()
	k.capHosts()
	o := s.packOptions()
	o.Exact = true
	o.Memory, o.Known, o.Price = s.p.Settings.Memory.Bound, r.Memory.Known, r.Cost
	answer := pack.Bound(&k.problem, o)
	r.Volume, r.Config = answer.VolumeBound, answer.ConfigBound
	r.Memory.Bound, r.Memory.Known = answer.Memory, answer.Known
	r.Proof = Proof{Problem: &k.problem, Certificate: answer.Certificate}
}

// addLoose adds pods without pins.
func (k *packing) addLoose(p Put, tier int) {
	key := binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(nil, int64(p.Class)), int64(p.Variant)), int64(tier))
	at, ok := k.index[string(key)]
	if !ok {
		at = len(k.items)
		k.index[string(key)] = at
		k.items = append(k.items, item{class: p.Class, variant: p.Variant, tier: tier})
	}
	k.items[at].count += p.Count
}

// pinLeast splits pods that are spread over domains: whatever a plan does, so many of them are in each domain.
func (k *packing) pinLeast() {
	for i := range k.items {
		it := &k.items[i]
		key, least := k.leastByDomain(it)
		for d, n := range least {
			if n == 0 {
				continue
			}
			pins := slices.Repeat([]int32{noDomain}, len(k.s.p.Keys))
			pins[key] = int32(d)
			k.items = append(k.items, item{class: it.class, variant: it.variant, tier: it.tier, pins: pins, count: n})
			it = &k.items[i] // the list may have moved
			it.count -= n
		}
	}
	k.items = slices.DeleteFunc(k.items, func(it item) bool { return it.count == 0 })
}

// leastByDomain returns how many pods of an item every plan puts into each domain of a key over which they are spread. It knows only
// the plain case, in which a spread is about this class alone and all of its pods come to new nodes.
func (k *packing) leastByDomain(it *item) (key int, least []int) {
	s := k.s
	c := &s.p.Classes[it.class]
	if it.count != c.Count {
		return 0, nil
	}
	t := s.touchesOf(it.class, it.variant)
	for i := range t.keys {
		for j, g := range t.keys[i].owned {
			if t.keys[i].self[j] && k.alone(g, it) {
				return t.keys[i].key, s.leastOf(g, &t.keys[i], it.count)
			}
		}
	}
	return 0, nil
}

// alone reports whether a group is a spread that counts every pod of the item on any new node, and no other pod that is to be placed.
func (k *packing) alone(g int, it *item) bool {
	s := k.s
	group := &s.groups[g]
	if group.Kind != spread.Spread || group.MinDomains > 0 {
		return false
	}
	for i := range s.p.Classes {
		if ClassID(i) != it.class && slices.Contains(s.p.Classes[i].Groups, g) {
			return false
		}
	}
	return k.bindsAlways(g, it)
}

// bindsAlways reports whether a pod of the item, whichever way it is read, owns a group that counts it on every new node that can take it.
func (k *packing) bindsAlways(g int, it *item) bool {
	s := k.s
	group := &s.groups[g]
	if !slices.Contains(s.p.Classes[it.class].Groups, g) {
		return false
	}
	for _, v := range k.readings(it) {
		if !slices.Contains(v.Owns, g) || len(group.Filter) > 0 && !slices.Contains(group.Filter, v.Reqs) ||
			group.Templates != nil && !s.p.Labels.TolTmpl[v.Tol].Within(group.Templates) {
			return false
		}
	}
	return true
}

const (
	// mostCaps is how many host-level groups a bound knows of: most force fewer machines than are needed anyway.
	mostCaps = 8
	// mostCapped is up to how many items it knows of any. Beyond, the LP takes longer than the bound gains.
	mostCapped = 400
)

// A hostCap is a host-level group with the items that every node holds only so many of.
type hostCap struct {
	items  []int
	most   int
	forced int // machines that its pods need at least
}

// capHosts tells the packer what host-level groups allow. It does so by one more dimension for a group, of which each of its pods needs
// one and each machine has as much as the group allows. That holds for every plan: a new node starts empty, all of these pods own the group
// and are counted by it wherever they go, so the last of them to come to a node was admitted beside all others there, and they are no more
// than the skew of a spread, or one where they keep apart. Pods that the group counts but that do not own it are left out.
func (k *packing) capHosts() {
	if len(k.items) > mostCapped {
		return
	}
	var caps []hostCap
	for g := range k.s.groups {
		if c := k.capOf(g); c.forced*2 > len(k.s.news) {
			caps = append(caps, c)
		}
	}
	slices.SortStableFunc(caps, func(a, b hostCap) int { return cmp.Compare(b.forced, a.forced) })
	for _, c := range caps[:min(len(caps), mostCaps)] {
		for i := range k.problem.Classes {
			need := int64(0)
			if slices.Contains(c.items, i) {
				need = 1
			}
			k.problem.Classes[i].Need = append(k.problem.Classes[i].Need, need)
		}
		for i := range k.problem.Cells {
			k.problem.Cells[i].Room = append(k.problem.Cells[i].Room, int64(c.most))
		}
	}
}

func (k *packing) capOf(g int) (out hostCap) {
	group := &k.s.groups[g]
	switch {
	case group.Key != spread.Host || group.Kind == spread.Affinity || group.Kind == spread.Anti && !group.Required:
		return out
	case group.Kind == spread.Anti:
		out.most = 1
	default:
		out.most = int(group.MaxSkew)
	}
	pods := 0
	for i := range k.items {
		if k.bindsAlways(g, &k.items[i]) {
			out.items = append(out.items, i)
			pods += k.items[i].count
		}
	}
	out.forced = (pods + out.most - 1) / max(out.most, 1)
	return out
}

// leastOf works out how many of n new pods come to each domain at least. The last pod that comes to a domain finds it no more than the
// skew above the emptiest one, so if the emptiest ends with m pods, no other gets beyond m and the skew: m has to be large enough for n
// new ones, and every domain reaches m.
func (s *state) leastOf(g int, to *touch, n int) []int {
	group := &s.p.Groups[g]
	domains := bits.Make(len(s.p.Keys[to.key].Values))
	domains.Or(group.Universe)
	domains.Or(to.reach)
	takes := func(m int32) int {
		sum := -int(group.MaxSkew) // the emptiest takes no more than m
		for d := range domains.All() {
			sum += int(max(0, m+group.MaxSkew-group.At(d)))
		}
		return sum
	}
	if !domains.Any() {
		return nil
	}
	m := group.At(domains.Next(0))
	for d := range domains.All() {
		m = min(m, group.At(d))
	}
	for takes(m) < n {
		m++
	}
	least := make([]int, len(s.p.Keys[to.key].Values))
	for d := range domains.All() {
		least[d] = int(max(0, m-group.At(d)))
	}
	return least
}
