package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// finish turns the state's new nodes into bins of a result: every machine that could hold the pods is listed, and the
// launch is priced. A pool that may afford too few kinds of machine in the end to meet its minValues gives the pods back:
// they are added to left.
func (s *state) finish(left []int) []problem.Bin {
	free := make([]limits.Pool, len(s.limits))
	for i := range free {
		free[i] = s.limits[i].Clone()
	}
	out := make([]problem.Bin, 0, len(s.news))
	known := map[string]int{}
	strange := s.findStrange()
	var key []byte
	for bin, n := range s.newBins() {
		if len(n.puts) == 0 {
			continue
		}
		key = s.finishKey(key[:0], bin)
		if at, ok := known[string(key)]; ok && len(key) > 0 {
			out = append(out, s.finishedAs(&out[at], at, bin))
			continue
		}
		b := s.finishBin(bin, &strange, &free[s.template(n).Pool])
		if !s.launch(&b) {
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

// launch prices a finished bin, if it keeps minValues, which are lowered where the settings allow.
func (s *state) launch(b *problem.Bin) bool {
	tmpl := &s.p.Templates[b.Template]
	low, _, ok := s.lowerMinValues(tmpl, b.Shapes, b.Mask, b.Relaxed)
	if !ok {
		return false
	}
	b.Relaxed = low
	if b.Launch, ok = tmpl.Catalog.Launch(b.Shapes, b.Mask, tmpl.WantedMinValues(low), s.p.Settings.Terms.Band); ok {
		b.Target = b.Launch.First.Shape
	}
	return b.Shapes.Any()
}

// finishKey identifies what finishBin looks at, so that equal nodes are finished once. It is empty where that is not
// worth the trouble.
func (s *state) finishKey(key []byte, bin problem.BinID) []byte {
	n := s.node(bin)
	tmpl := s.template(n)
	if s.limits[tmpl.Pool].Limited || n.held != problem.NoReservation || n.lowered() != nil {
		return key
	}
	key = identity.Number(key, int64(n.tmpl))
	key = identity.Numbers(key, s.maskOf(bin))
	room := s.roomOf(bin)
	key = identity.Count(key, len(room))
	for r, x := range room {
		key = identity.Number(key, tmpl.Room[n.target][r]-x)
	}
	last := -1
	for _, p := range n.puts {
		c := &s.p.Classes[p.Class]
		if len(c.Ports) > 0 || len(c.Volumes) > 0 || len(c.Devices) > 0 {
			return key[:0]
		}
		if reqs := c.Variants[p.Variant].Reqs; reqs != last {
			key = identity.Number(identity.Flag(key, true), int64(reqs))
			last = reqs
		}
	}
	key = identity.Flag(key, false) // the list of requirements ends here
	for k, bound := range s.boundOf(bin) {
		if bound && s.keyOf(k, n.tmpl).Shape != nil {
			key = identity.Number(identity.Number(key, int64(k)), int64(s.domainOf(k, bin)))
		}
	}
	return key
}

// finishedAs is the bin of a result that is finished as another one was.
func (s *state) finishedAs(b *problem.Bin, at int, bin problem.BinID) problem.Bin {
	out := *b
	out.SameAs = at
	n := s.node(bin)
	out.Puts, out.Narrowed, out.Domain = n.puts, n.narrowing(), slices.Clone(s.domainsOf(bin))
	return out
}

func (s *state) finishBin(bin problem.BinID, strange *stranger, free *limits.Pool) problem.Bin {
	n := s.node(bin)
	tmpl := s.template(n)
	b := problem.Bin{Template: n.tmpl, Target: n.target, Mask: s.maskOf(bin)[:len(tmpl.Mask)].Clone(), Puts: n.puts,
		Used: s.used(bin), Held: n.held, Relaxed: n.lowered(), Narrowed: n.narrowing(), Domain: slices.Clone(s.domainsOf(bin)), SameAs: -1}
	shapes := s.holding(bin, s.maskOf(bin), b.Used, nil)
	s.cut(bin, shapes)
	within := free.Clone()
	s.cutLimits(n, shapes, &within) // first, so that avoidShapes leaves enough of those that limits leave
	s.avoidShapes(strange, bin, shapes)
	s.cutLimits(n, shapes, free)
	b.Shapes = shapes[:bits.Words(tmpl.Catalog.Len())].Clone()
	b.Overhead = tmpl.LeastOverhead(b.Shapes)
	b.Drivers = s.driversOn(bin, b.Shapes)
	return b
}

// A bill is what bins cost together.
type bill struct{ price, floor, cost int64 }

func billOf(bins []problem.Bin, terms *problem.Terms) bill {
	var b bill
	for i := range bins {
		l := &bins[i].Launch
		b.price += l.Price
		b.floor += l.Floor
		b.cost += terms.With(l.Cost, l.Floor)
	}
	return b
}
