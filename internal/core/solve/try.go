package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/work"
)

// A verdict is the zero value when the pod may join. A final refusal stays true for the rest of the run, in which pods are
// only ever added.
type verdict struct {
	code  reason.Code
	final bool
}

// try asks whether one pod of class c, read as variant v, may join bin. It changes nothing but scratch: on
// success s.choice holds the domain of each key that the pod touches. It allocates nothing.
func (s *state) try(c *Class, v *Variant, t *touches, bin int) verdict {
	s.meter.Charge(tryWork + work.Units(len(t.host.shunned)+len(t.host.owned)+len(t.keys))*groupWork)
	if !c.Need.Fits(s.roomOf(bin)) {
		return verdict{reason.TooLarge, true}
	}
	if bin >= len(s.p.Nodes) {
		if bad := s.tryTemplate(c, v, bin); bad.code != 0 {
			return bad
		}
	}
	if len(c.Ports) > 0 && !s.ports.Free(bin, c.Conflict) {
		return verdict{reason.HostPort, true}
	}
	if len(c.Volumes) > 0 && s.volumes.Full(bin, c.Volumes) >= 0 {
		return verdict{reason.VolumeLimit, true}
	}
	if bad := s.tryHost(t, bin); bad.code != 0 {
		return bad
	}
	if len(t.keys) > 0 {
		if code := s.chooseFor(t, bin); code != 0 {
			return verdict{code, false}
		}
	}
	if bin >= len(s.p.Nodes) {
		return s.tryMinValues(c, v, t, bin)
	}
	return verdict{}
}

// tryTemplate checks what a new bin's template, target and choices say, and leaves the narrowed choices in masks[0].
func (s *state) tryTemplate(c *Class, v *Variant, bin int) verdict {
	i := bin - len(s.p.Nodes)
	t := int(s.tmpl[i])
	if !s.p.Labels.TolTmpl[v.Tol].Has(t) {
		return verdict{reason.Taint, true}
	}
	m := &s.p.Labels.OnTemplate[v.Reqs][t]
	if !m.OK || m.Shapes != nil && !m.Shapes.Has(int(s.target[i])) {
		return verdict{reason.LabelMismatch, true}
	}
	mask := s.masks[0]
	copy(mask, s.maskOf(bin))
	if m.Mask != nil {
		bits.Set(mask).And(m.Mask)
		if !s.sells(&s.p.Templates[t], int(s.target[i]), mask) {
			return verdict{reason.LabelMismatch, true}
		}
	}
	return verdict{}
}

// open reports whether every segment of mask still has a choice.
func (t *Template) open(mask bits.Set) bool {
	if len(t.Segments) == 1 {
		return mask.Any()
	}
	for _, g := range t.Segments {
		if at := mask.Next(g.From); at < 0 || at >= g.To {
			return false
		}
	}
	return true
}

func (s *state) tryHost(t *touches, bin int) verdict {
	for _, g := range t.host.shunned {
		if s.groups[g].Repels(bin) {
			return verdict{reason.AntiAffinity, true}
		}
	}
	for i, g := range t.host.owned {
		group := &s.groups[g]
		if !group.Admits(bin, t.host.self[i], nil) {
			return verdict{codeOf(group.Kind), group.Kind != spread.Affinity}
		}
	}
	return verdict{}
}

func codeOf(k spread.Kind) reason.Code {
	switch k {
	case spread.Spread:
		return reason.Spread
	case spread.Affinity:
		return reason.Affinity
	default:
		return reason.AntiAffinity
	}
}

// chooseFor settles the domain of every touched key, or says which kind of constraint left none.
func (s *state) chooseFor(t *touches, bin int) reason.Code {
	return s.chooseFrom(t, bin, 0)
}

// chooseFrom settles the keys from the i-th on. masks[i] holds the choices so far.
func (s *state) chooseFrom(t *touches, bin, i int) reason.Code {
	if i == len(t.keys) {
		if bin >= len(s.p.Nodes) && i > 0 {
			copy(s.masks[0], s.masks[i])
		}
		return 0
	}
	to := &t.keys[i]
	d := s.domainOf(to.key, bin)
	if d != openDomain {
		if code := s.admits(to, int(d)); code != 0 {
			return code
		}
		s.choice[to.key] = d
		if bin >= len(s.p.Nodes) {
			copy(s.masks[i+1], s.masks[i])
		}
		return s.chooseFrom(t, bin, i+1)
	}
	return s.chooseOpen(t, bin, i)
}

func (s *state) chooseOpen(t *touches, bin, i int) reason.Code {
	to := &t.keys[i]
	n := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[n]]
	of := &s.p.Keys[to.key].Tmpl[s.tmpl[n]]
	code := reason.Code(reason.NoOffering)
	domains := s.byCount(to, i)
	for at := -1; at < len(domains); at++ {
		d := int32(noDomain) // first: nobody gives a node a label that nobody asks for
		if at >= 0 {
			d = domains[at]
		}
		chosen := of.choice(d)
		if chosen == nil {
			continue
		}
		mask := bits.Set(s.masks[i+1])
		copy(mask, s.masks[i])
		mask.And(chosen)
		if !s.sells(tmpl, int(s.target[n]), mask) {
			continue
		}
		if bad := s.admits(to, int(d)); bad != 0 {
			code = bad
			continue
		}
		s.choice[to.key] = d
		bad := s.chooseFrom(t, bin, i+1)
		if bad == 0 {
			return 0
		}
		code = bad
	}
	return code
}

// admits asks all groups of one key about a domain.
func (s *state) admits(to *touch, d int) reason.Code {
	for _, g := range to.shunned {
		if s.groups[g].Repels(d) {
			return reason.AntiAffinity
		}
	}
	for i, g := range to.owned {
		group := &s.groups[g]
		if s.pinned && group.Kind != spread.Anti {
			continue
		}
		if !group.Admits(d, to.self[i], to.reach) {
			return codeOf(group.Kind)
		}
	}
	return 0
}

// byCount returns the domains of a key, those with the fewest pods first. The order is kept in the scratch of depth i.
func (s *state) byCount(to *touch, i int) []int32 {
	s.meter.Charge(work.Units(len(s.p.Keys[to.key].Values) * groupWork))
	order := s.orders[i][:0]
	for d := range s.p.Keys[to.key].Values {
		order = append(order, int32(d))
	}
	s.orders[i] = order
	from := to.owned
	if len(from) == 0 {
		from = to.counted
	}
	for a := 1; a < len(order); a++ { // insertion keeps equal domains in the order of their names
		for b := a; b > 0 && s.populated(from, order[b]) < s.populated(from, order[b-1]); b-- {
			order[b], order[b-1] = order[b-1], order[b]
		}
	}
	return order
}

// populated ranks a domain: spread wants few pods, affinity wants many.
func (s *state) populated(groups []int, d int32) int32 {
	var sum int32
	for _, g := range groups {
		if s.groups[g].Kind == spread.Affinity {
			sum -= s.groups[g].At(int(d))
		} else {
			sum += s.groups[g].At(int(d))
		}
	}
	return sum
}

// tryMinValues checks that the types that could still hold the bin's pods have enough distinct labels.
func (s *state) tryMinValues(c *Class, v *Variant, t *touches, bin int) verdict {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	if len(tmpl.Min) == 0 {
		return verdict{}
	}
	used := s.used(bin)
	used.Add(c.Need)
	s.holding(bin, s.masks[0], used, &s.p.Labels.OnTemplate[v.Reqs][s.tmpl[i]])
	s.cutByDomain(bin)
	s.cutByArrivals(int(s.tmpl[i]), int(s.target[i]))
	s.cutByChoice(int(s.tmpl[i]), t)
	if most := s.reserve[i]; most != nil {
		for sh := range s.shapes.All() {
			if !tmpl.Catalog.Capacity[sh].Fits(most) {
				s.shapes.Remove(sh)
			}
		}
	}
	for k, m := range tmpl.Min {
		n := m.N
		if s.low[i] != nil {
			n = s.low[i][k]
		}
		if tmpl.Catalog.Distinct(m.Key, s.shapes, n) < n {
			return verdict{reason.MinValues, true}
		}
	}
	return verdict{}
}

// commit places n pods of class ci as variant vi on bin, with the choices of the last try.
func (s *state) commit(ci, vi, bin, n int) {
	c := &s.p.Classes[ci]
	t := s.touchesOf(ci, vi)
	s.meter.Charge(commitWork + work.Units(len(c.Groups))*groupWork)
	room := s.roomOf(bin)
	for r, x := range c.Need {
		room[r] -= x * int64(n)
		s.demand[r] -= x * int64(n)
	}
	if !s.least.Fits(room) {
		s.alive.Remove(bin)
	}
	put := Put{Class: ci, Variant: vi, Bin: bin, Count: n}
	if i := bin - len(s.p.Nodes); i < 0 {
		s.placed = appendPut(s.placed, put)
	} else {
		first := len(s.puts[i]) == 0
		s.puts[i] = appendPut(s.puts[i], put)
		s.settleFilters(c, i)
		copy(s.maskOf(bin), s.masks[0])
		for k := range t.keys {
			s.domain[t.keys[k].key][i] = s.choice[t.keys[k].key]
		}
		if first && s.arrival != nil {
			s.arrive(s.groups, bin)
		}
	}
	if len(c.Ports) > 0 {
		s.ports.Take(bin, c.Ports)
	}
	if len(c.Volumes) > 0 {
		s.volumes.Attach(bin, c.Volumes)
	}
	s.record(&t.host, int32(bin), bin, n)
	for k := range t.keys {
		s.record(&t.keys[k], s.choice[t.keys[k].key], bin, n)
	}
	s.commits++
}

func appendPut(puts []Put, p Put) []Put {
	if n := len(puts); n > 0 && puts[n-1].Class == p.Class && puts[n-1].Variant == p.Variant && puts[n-1].Bin == p.Bin {
		puts[n-1].Count += p.Count
		return puts
	}
	return append(puts, p)
}

// record tells the groups of one key that n pods came to domain d.
func (s *state) record(to *touch, d int32, bin, n int) {
	if d < 0 {
		s.recordElsewhere(to, bin, n)
		return
	}
	for _, g := range to.counted {
		group := &s.groups[g]
		if !s.counts(group, bin) {
			continue
		}
		group.Add(int(d), int32(n))
		group.Know(int(d)) // the node makes it one for everybody
	}
	for _, g := range to.repels {
		s.groups[g].AddOwners(int(d), int32(n))
	}
}

// recordElsewhere tells affinities that pods have no domain here, but one of another term.
func (s *state) recordElsewhere(to *touch, bin, n int) {
	for _, g := range to.counted {
		if group := &s.groups[g]; slices.ContainsFunc(group.Others, func(key int) bool { return key == spread.Host || s.domainOf(key, bin) >= 0 }) {
			group.Elsewhere += n
		}
	}
}

// counts reports whether a group counts the pods of a bin: whether the bin passes the node filter.
func (s *state) counts(g *spread.Group, bin int) bool {
	if bin < len(s.p.Nodes) {
		return g.Nodes == nil || g.Nodes.Has(bin)
	}
	return s.countsAs(g, bin, int(s.target[bin-len(s.p.Nodes)]))
}

// countsAs is counts for a new bin, if it became a machine of some shape.
func (s *state) countsAs(g *spread.Group, bin, sh int) bool {
	i := bin - len(s.p.Nodes)
	for _, key := range g.Beside {
		if s.domain[key][i] == noDomain {
			return false
		}
	}
	return s.countsOn(g, int(s.tmpl[i]), sh, s.maskOf(bin))
}

// countsOn is counts for a new node of a template, if it became a machine of some shape with these choices left.
func (s *state) countsOn(g *spread.Group, t, sh int, mask bits.Set) bool {
	if g.Templates != nil && !g.Templates.Has(t) {
		return false
	}
	for _, key := range g.Beside {
		if s.p.Keys[key].Tmpl[t].domain(sh) == noDomain {
			return false
		}
	}
	if len(g.Filter) == 0 {
		return true
	}
	tmpl := &s.p.Templates[t]
	return slices.ContainsFunc(g.Filter, func(reqs int) bool {
		m := &s.p.Labels.OnTemplate[reqs][t]
		if !m.OK || m.Shapes != nil && !m.Shapes.Has(sh) {
			return false
		}
		both := s.both[:len(tmpl.Mask)]
		copy(both, mask)
		if m.Mask != nil {
			both.And(m.Mask)
		}
		return tmpl.open(both)
	})
}

// insists reports whether a constraint is more than a preference to some pods.
func (s *state) insists(g int) bool {
	if s.strict == nil {
		s.strict = bits.Make(len(s.groups))
		for i := range s.p.Classes {
			if v := s.p.Classes[i].Variants; len(v) > 0 {
				for _, g := range v[len(v)-1].Owns {
					s.strict.Add(g)
				}
			}
		}
	}
	return s.strict.Has(g)
}

// settleFilters narrows the choices in masks[0] so that the spreads that count the class do so, or do not, whatever is bought.
func (s *state) settleFilters(c *Class, i int) {
	mask := bits.Set(s.masks[0])
	for _, g := range c.Groups {
		filter := s.groups[g].Filter
		suits := func(reqs int) *Match {
			if m := &s.p.Labels.OnTemplate[reqs][s.tmpl[i]]; m.OK && (m.Shapes == nil || m.Shapes.Has(int(s.target[i]))) {
				return m
			}
			return nil
		}
		if len(filter) == 0 || !s.insists(g) || slices.ContainsFunc(filter, func(reqs int) bool {
			m := suits(reqs)
			return m != nil && (m.Mask == nil || mask.Within(m.Mask))
		}) {
			continue
		}
		for _, reqs := range filter {
			m := suits(reqs)
			if m == nil {
				continue
			}
			less := bits.Set(s.masks[len(s.masks)-1])
			copy(less, mask)
			less[:len(m.Mask)].And(m.Mask)
			if s.sells(&s.p.Templates[s.tmpl[i]], int(s.target[i]), less) {
				copy(mask, less)
				n := s.narrow[i]
				n.To = append(n.To, reqs)
				s.narrow[i] = n
				break
			}
		}
	}
}

// most returns how many pods, up to want, may join bin at once after a successful try.
func (s *state) most(c *Class, t *touches, bin, want int) int {
	if t.one || len(c.Ports) > 0 || len(c.Volumes) > 0 {
		return 1
	}
	if i := bin - len(s.p.Nodes); i >= 0 && len(s.p.Templates[s.tmpl[i]].Min) > 0 {
		return 1
	}
	n := c.Need.Times(s.roomOf(bin), want)
	for i, g := range t.host.owned {
		n = s.groups[g].HostRoom(bin, t.host.self[i], n)
	}
	return max(n, 1)
}

// volumes returns the attach limits of a new node of shape target.
func (t *Template) volumes(target, drivers int) []volumes.Use {
	if drivers == 0 {
		return nil
	}
	out := make([]volumes.Use, drivers)
	for d := range out {
		out[d].Limit = -1
		if d < len(t.Drivers) && t.Drivers[d] != nil {
			out[d].Limit = t.Drivers[d][target]
		}
	}
	return out
}
