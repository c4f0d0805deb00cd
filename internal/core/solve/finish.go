package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// finish turns the state's new nodes into bins of a result: it lists every machine that could hold the pods, and prices the launch. A node
// that cannot meet minValues in the end, because limits leave too few machines, is dropped: its pods are added to left. Equal nodes are
// finished once.
func (s *state) finish(left []int) []problem.Bin {
	free := s.fleet.stock.limits.clone()
	out := make([]problem.Bin, 0, len(s.fleet.bins.news))
	known := map[string]int{}
	unknown := s.schedule.findUnknown()
	var key []byte
	for bin, n := range s.fleet.bins.newBins() {
		if len(n.puts) == 0 {
			continue
		}
		key = s.finishKey(key[:0], bin)
		if at, ok := known[string(key)]; ok && len(key) > 0 {
			out = append(out, s.finishedAs(&out[at], at, bin))
			continue
		}
		b := s.finishBin(bin, &unknown, free)
		if !s.priceLaunch(&b) {
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

// priceLaunch fills in what the launch of a finished bin costs, and the minValues as they were lowered. It reports whether the bin can be
// launched: whether it lists a machine, and meets minValues as far as the settings allow.
func (s *state) priceLaunch(b *problem.Bin) bool {
	tmpl := &s.facts.p.Templates[b.Template]
	low, _, ok := s.fleet.stock.lowerMinValues(tmpl, b.Shapes, b.Mask, b.Relaxed)
	if !ok {
		return false
	}
	b.Relaxed = low
	if b.Launch, ok = tmpl.Catalog.Launch(b.Shapes, b.Mask, tmpl.WantedMinValues(low), s.facts.p.Settings.Terms.Band); ok {
		b.Target = b.Launch.First.Shape
	}
	return b.Shapes.Any()
}

// finishKey appends to key everything on which finishBin and priceLaunch depend, so that equal nodes are finished once. It returns an empty
// key for nodes that have to be finished on their own: those with limits, a reservation, lowered minValues, ports, volumes or devices.
func (s *state) finishKey(key []byte, bin problem.BinID) []byte {
	n := s.fleet.bins.node(bin)
	tmpl := s.fleet.bins.template(n)
	if s.fleet.stock.limits.limited(n.tmpl) || n.held != problem.NoReservation || n.lowered() != nil {
		return key
	}
	key = identity.Number(key, int64(n.tmpl))
	key = identity.Count(key, len(n.only))
	key = identity.Numbers(key, n.only)
	key = identity.Numbers(key, s.fleet.bins.maskOf(bin))
	room := s.fleet.bins.roomOf(bin)
	key = identity.Count(key, len(room))
	for r, x := range room {
		key = identity.Number(key, tmpl.Room[n.target][r]-x)
	}
	last := -1
	for _, p := range n.puts {
		c := &s.facts.p.Classes[p.Class]
		if len(c.Ports) > 0 || len(c.Volumes) > 0 || len(c.Devices) > 0 {
			return key[:0]
		}
		if reqs := c.Variants[p.Variant].Reqs; reqs != last {
			key = identity.Number(identity.Flag(key, true), int64(reqs))
			last = reqs
		}
	}
	key = identity.Flag(key, false) // the list of requirements ends here
	for k, bound := range s.fleet.bins.boundOf(bin) {
		if bound && s.facts.keyOf(k, n.tmpl).Shape != nil {
			key = identity.Number(identity.Number(key, int64(k)), int64(s.fleet.bins.domainOf(k, bin)))
		}
	}
	return key
}

// finishedAs returns the bin of a result for a new node that equals another one, which was finished as b at index at. Only pods, domains
// and Narrowed are its own.
func (s *state) finishedAs(b *problem.Bin, at int, bin problem.BinID) problem.Bin {
	out := *b
	out.SameAs = at
	n := s.fleet.bins.node(bin)
	out.Puts, out.Narrowed, out.Domain = n.puts, n.narrowing(), slices.Clone(s.fleet.bins.domainsOf(bin))
	return out
}

// finishBin returns the bin of a result for a new node, not priced yet. The largest machine that it lists is taken from free.
func (s *state) finishBin(bin problem.BinID, unknown *unknowns, free allowances) problem.Bin {
	n := s.fleet.bins.node(bin)
	tmpl := s.fleet.bins.template(n)
	b := problem.Bin{Template: n.tmpl, Target: n.target, Mask: s.fleet.bins.maskOf(bin)[:len(tmpl.Mask)].Clone(), Puts: n.puts,
		Used: s.fleet.bins.used(bin), Held: n.held, Relaxed: n.lowered(), Narrowed: n.narrowing(),
		Domain: slices.Clone(s.fleet.bins.domainsOf(bin)), Discounted: n.only != nil, SameAs: -1}
	shapes := s.fleet.bins.holding(bin, s.fleet.bins.maskOf(bin), b.Used, nil)
	s.fleet.cut(bin, shapes)
	s.fleet.stock.cutLimits(n, shapes, free.clone()) // first, so that avoidShapes leaves enough of those that limits leave
	s.schedule.avoidShapes(unknown, bin, shapes)
	s.fleet.stock.cutLimits(n, shapes, free)
	b.Shapes = shapes[:bits.Words(tmpl.Catalog.Len())].Clone()
	b.Overhead = tmpl.LeastOverhead(b.Shapes)
	b.Drivers = s.fleet.driversOn(bin, b.Shapes)
	return b
}

// A bill is what bins cost together.
type bill struct{ price, floor, cost int64 }

// billOf adds up what new nodes cost. Commitments change only cost, the sum that decisions compare.
func billOf(p *problem.Problem, bins []problem.Bin) bill {
	var b bill
	terms := &p.Settings.Terms
	for i := range bins {
		l := &bins[i].Launch
		b.price += l.Price
		b.floor += l.Floor
		b.cost += terms.With(l.Cost, l.Base)
	}
	if p.Settings.Commitments != nil {
		b.cost += discount(p, bins)
	}
	return b
}

// discount returns what the commitments change in the cost of new on-demand nodes: what these nodes add to the bill of all machines, less
// what they cost without commitments. It is nearly always negative.
func discount(p *problem.Problem, bins []problem.Bin) (sum int64) {
	var lines []tariff.Line
	for i := range bins {
		if l, ok := p.Hour(&bins[i]); ok {
			lines = append(lines, l)
			sum -= int64(l.PerHour)
		}
	}
	return sum + p.Settings.Commitments.Adds(p.Settings.Fixed, lines)
}
