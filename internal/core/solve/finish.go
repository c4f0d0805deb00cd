package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// finish turns the state's new nodes into bins of a result: every machine that could hold the pods is listed, and the
// launch is priced. A pool that may afford too few kinds of machine in the end to meet its minValues gives the pods back:
// they are added to left.
func (s *state) finish(left []int) []Bin {
	free := make([]limits.Pool, len(s.limits))
	for i := range free {
		free[i] = s.limits[i].Clone()
	}
	out := make([]Bin, 0, s.bins-len(s.p.Nodes))
	known := map[string]int{}
	strange := s.findStrange()
	var key []byte
	for bin := len(s.p.Nodes); bin < s.bins; bin++ {
		i := bin - len(s.p.Nodes)
		if len(s.puts[i]) == 0 {
			continue
		}
		key = s.question(key[:0], bin)
		if at, ok := known[string(key)]; ok && len(key) > 0 {
			out = append(out, s.like(&out[at], at, bin))
			continue
		}
		b := s.finishBin(bin, strange, &free[s.p.Templates[s.tmpl[i]].Pool])
		if !s.meets(&b) {
			s.dropped = true
			for _, p := range b.Puts {
				left[p.Class] += p.Count
			}
			continue
		}
		known[string(key)] = len(out)
		out = append(out, b)
	}
	return out
}

// meets reports whether a finished bin keeps minValues, which are lowered where the settings allow.
func (s *state) meets(b *Bin) bool {
	tmpl := &s.p.Templates[b.Template]
	for k, m := range tmpl.Min {
		want := m.N
		if b.Relaxed != nil {
			want = b.Relaxed[k]
		}
		got := tmpl.Catalog.Distinct(m.Key, b.Shapes, want)
		if got >= want {
			continue
		}
		if !s.p.Settings.MinBestEffort || got == 0 {
			return false
		}
		if b.Relaxed == nil {
			for _, o := range tmpl.Min {
				b.Relaxed = append(b.Relaxed, o.N)
			}
		}
		b.Relaxed = slices.Clone(b.Relaxed)
		b.Relaxed[k] = got
	}
	return b.Shapes.Any()
}

// question identifies what finishBin looks at, so that equal nodes are finished once. It is empty where that is not
// worth the trouble.
func (s *state) question(key []byte, bin int) []byte {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	if s.limits[tmpl.Pool].Limited || s.held[i] >= 0 || s.low[i] != nil {
		return key
	}
	word := func(n int64) {
		for range 8 {
			key = append(key, byte(n))
			n >>= 8
		}
	}
	word(int64(s.tmpl[i]))
	for _, w := range s.maskOf(bin) {
		word(int64(w))
	}
	for r, x := range s.roomOf(bin) {
		word(tmpl.Room[s.target[i]][r] - x)
	}
	last := -1
	for _, p := range s.puts[i] {
		c := &s.p.Classes[p.Class]
		if len(c.Ports) > 0 || len(c.Volumes) > 0 {
			return key[:0]
		}
		if reqs := c.Variants[p.Variant].Reqs; reqs != last {
			word(int64(reqs))
			last = reqs
		}
	}
	for k := range s.domain {
		if s.p.Keys[k].Tmpl[s.tmpl[i]].Shape != nil && s.counted(k, bin) {
			word(int64(k))
			word(int64(s.domain[k][i]))
		}
	}
	return key
}

// like is the bin of a result that is finished as another one was.
func (s *state) like(b *Bin, at, bin int) Bin {
	out := *b
	out.Like = at
	out.Puts, out.Narrowed = s.puts[bin-len(s.p.Nodes)], s.narrow[bin-len(s.p.Nodes)]
	out.Domain = s.domainsOf(bin)
	return out
}

func (s *state) domainsOf(bin int) []int32 {
	out := make([]int32, len(s.domain))
	for k := range s.domain {
		out[k] = s.domain[k][bin-len(s.p.Nodes)]
	}
	return out
}

func (s *state) finishBin(bin int, strange []bits.Set, free *limits.Pool) Bin {
	i := bin - len(s.p.Nodes)
	t := int(s.tmpl[i])
	tmpl := &s.p.Templates[t]
	b := Bin{Template: t, Target: int(s.target[i]), Mask: s.maskOf(bin)[:len(tmpl.Mask)].Clone(), Puts: s.puts[i],
		Used: s.used(bin), Held: int(s.held[i]), Relaxed: s.low[i], Narrowed: s.narrow[i], Domain: s.domainsOf(bin), Like: -1}
	s.holding(bin, s.maskOf(bin), b.Used, nil)
	s.cutByDomain(bin)
	s.cutByFilter(bin)
	s.cutByArrivals(t, b.Target)
	s.avoidShapes(strange, bin)
	s.cutByHardware(bin)
	s.cutByLimit(tmpl, s.takenBy(i), free)
	b.Shapes = s.shapes[:bits.Words(tmpl.Catalog.Len())].Clone()
	b.Overhead = s.leastOverhead(tmpl, b.Shapes)
	launch, ok := tmpl.Catalog.Launch(b.Shapes, b.Mask, len(tmpl.Min) > 0, s.p.Settings.Terms.Band)
	if ok {
		b.Launch = launch
		b.Target = launch.First.Shape
	}
	return b
}

// cutByDomain takes shapes out of s.shapes that would put the bin into another domain than its pods were counted in.
func (s *state) cutByDomain(bin int) {
	t := int(s.tmpl[bin-len(s.p.Nodes)])
	for k := range s.p.Keys {
		of := &s.p.Keys[k].Tmpl[t]
		if of.Shape == nil {
			continue
		}
		want := s.domainOf(k, bin)
		if !s.counted(k, bin) {
			continue
		}
		for sh := range s.shapes.All() {
			if of.Shape[sh] != want {
				s.shapes.Remove(sh)
			}
		}
	}
}

// cutByFilter takes shapes out of s.shapes on which spreads would count the bin's pods, or not count them, otherwise than they did.
func (s *state) cutByFilter(bin int) {
	i := bin - len(s.p.Nodes)
	for _, p := range s.puts[i] {
		for _, g := range s.p.Classes[p.Class].Groups {
			if len(s.groups[g].Filter) == 0 || !s.insists(g) {
				continue
			}
			want := s.countsAs(&s.groups[g], bin, int(s.target[i]))
			for sh := range s.shapes.All() {
				if s.countsAs(&s.groups[g], bin, sh) != want {
					s.shapes.Remove(sh)
				}
			}
		}
	}
}

// cutByChoice takes shapes out of s.shapes that are not in the domains just chosen.
func (s *state) cutByChoice(tmpl int, t *touches) {
	for k := range t.keys {
		of := &s.p.Keys[t.keys[k].key].Tmpl[tmpl]
		if of.Shape == nil {
			continue
		}
		for sh := range s.shapes.All() {
			if of.Shape[sh] != s.choice[t.keys[k].key] {
				s.shapes.Remove(sh)
			}
		}
	}
}

// counted reports whether some pod of a new bin has to do with groups of the key.
func (s *state) counted(key, bin int) bool {
	return slices.ContainsFunc(s.puts[bin-len(s.p.Nodes)], func(p Put) bool {
		return slices.ContainsFunc(s.touchesOf(p.Class, p.Variant).keys, func(t touch) bool { return t.key == key })
	})
}

// cutByHardware takes out shapes whose daemons use a port of the pods, or to which too few volumes can be attached.
func (s *state) cutByHardware(bin int) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	for _, p := range s.puts[i] {
		c := &s.p.Classes[p.Class]
		if len(c.Ports) == 0 || len(tmpl.Daemons) == 0 {
			continue
		}
		for sh := range s.shapes.All() {
			if slices.ContainsFunc(tmpl.Daemons[tmpl.DaemonOf[sh]].Ports, c.Conflict.Has) {
				s.shapes.Remove(sh)
			}
		}
	}
	for d := range s.p.Drivers {
		n := s.volumes.Count(bin, d)
		if n == 0 || d >= len(tmpl.Drivers) || tmpl.Drivers[d] == nil {
			continue
		}
		for sh := range s.shapes.All() {
			if limit := tmpl.Drivers[d][sh]; limit >= 0 && n > int(limit) {
				s.shapes.Remove(sh)
			}
		}
	}
}

// cutByLimit takes out shapes that are larger than what the pool has left: a claim reserves the largest machine it lists,
// so that limits hold whatever is launched.
func (s *state) cutByLimit(tmpl *Template, taken quantity.Vec, free *limits.Pool) {
	if !free.Limited {
		return
	}
	free.Give(taken)
	largest := make(quantity.Vec, s.p.Resources)
	for sh := range s.shapes.All() {
		if free.Exceeded(tmpl.Catalog.Capacity[sh]) != -2 {
			s.shapes.Remove(sh)
			continue
		}
		largest.Max(tmpl.Catalog.Capacity[sh])
	}
	free.Take(largest)
}

// leastOverhead returns the least that daemons take of each resource on any of the shapes.
func (s *state) leastOverhead(tmpl *Template, shapes bits.Set) quantity.Vec {
	if len(tmpl.Daemons) == 0 {
		return nil
	}
	var least quantity.Vec
	for sh := range shapes.All() {
		o := tmpl.Daemons[tmpl.DaemonOf[sh]].Overhead
		if least == nil {
			least = slices.Clone(o)
			continue
		}
		for r := range least {
			least[r] = min(least[r], o[r])
		}
	}
	return least
}

// A bill is what bins cost together.
type bill struct{ price, floor, cost int64 }

func billOf(bins []Bin, terms *Terms) bill {
	var b bill
	for i := range bins {
		l := &bins[i].Launch
		b.price += l.Price
		b.floor += l.Floor
		b.cost += terms.with(l.Cost, l.Floor)
	}
	return b
}
