package pack

import "slices"

// upTo returns parts in which cells up to so many steps too large are open to all.
func upTo(parts []*part, over int) []*part {
	out := make([]*part, len(parts))
	for i, p := range parts {
		q := *p
		q.every = slices.Clone(p.every)
		for c := range q.every {
			q.every[c].large = q.every[c].over > over
		}
		q.prune()
		out[i] = &q
	}
	return out
}

// stepsOf are the sizes of cells that are too large for all.
func stepsOf(parts []*part) (steps []int) {
	for _, p := range parts {
		for i := range p.cells {
			if p.cells[i].large {
				steps = append(steps, p.cells[i].over)
			}
		}
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// widest is the solution in which all cells are open to all; s where they are anyway.
func (s *solution) widest(parts []*part, b *budget) *solution {
	steps := stepsOf(parts)
	if len(steps) == 0 {
		return s
	}
	most := steps[len(steps)-1]
	return newSolution(upTo(parts, most), b, most)
}

// widen opens cells that are too large to all, step by step, and returns the fleet of the last step that was worth it: it holds more, or
// it costs less and lowers the bill by more than was asked for. What opening all of them would not bring is not looked for.
//
// Why not open them at once: an enormous machine is often the cheapest per core by a hair, and a fleet of few enormous machines loses more
// when one of them goes, waits longer for an empty one, and leaves more behind when pods leave. So a larger one has to pay for itself by
// more than was asked, and the question is put step by step, since the first step often brings most of it.
func (s *solution) widen(parts []*part, all *solution, o Options, b *budget) *solution {
	best := s
	if all == s || !best.mayGain(all, o.Gain) {
		return best
	}
	for _, over := range stepsOf(parts) {
		next := all
		if over < all.over {
			next = newSolution(upTo(parts, over), b, over)
		}
		if !best.mayGain(next, o.Gain) {
			continue
		}
		b.watch(next)
		next.improve(o)
		if best.loses(next, o.Gain) {
			best = next
		}
	}
	return best
}

// loses reports whether another fleet is worth opening cells that are too large.
func (s *solution) loses(to *solution, gain int64) bool {
	price, lost := s.sum()
	newPrice, newLost := to.sum()
	return newLost < lost || newLost == lost && newPrice < price && float64(newPrice-to.own()) < float64(float64(price-s.own())*keep(gain))
}

// mayGain reports whether bounds allow a wider choice to bring what is asked of it.
//
// Bounds answer before fleets are looked for. First the volume bound of the wider choice, which costs next to nothing, then the fluid one
// part by part, until it is clear that even the best wider fleet would not be cheap enough.
func (s *solution) mayGain(wide *solution, gain int64) bool {
	if _, lost := s.sum(); lost > 0 {
		return true
	}
	limit := s.plausible(gain)
	for _, r := range wide.runs {
		if wide.bound() >= limit || r.b.over {
			return false
		}
		r.refine()
	}
	return wide.bound() < limit
}

// widenFew is how many items are few: a wider choice is looked at in no time.
const widenFew = 200

func keep(gain int64) float64 { return 1 - float64(gain)/1000 }

// plausible returns what the bound of a wider choice must be below to be looked at. Two bounds tell what large cells are worth better
// than two fleets of which neither is the best, unless few items, which a bound may cut, leave so much unused that the fleet is farther
// from its bound than what is to be gained. Of costs without a bill a fleet of larger machines has no more.
func (s *solution) plausible(gain int64) float64 {
	price, _ := s.sum()
	items := 0
	for _, r := range s.runs {
		items += r.p.total * (1 + len(r.twins))
	}
	own, from := float64(s.own()), float64(price)
	if !s.optimal() && (items > widenFew || float64(from*keep(gain)) < s.bound()) {
		from = s.bound()
	}
	return min(float64(price), float64((from-own)*keep(gain))+own)
}

// optimal reports whether no fleet is cheaper.
func (s *solution) optimal() bool {
	return !slices.ContainsFunc(s.runs, func(r *run) bool { return !r.optimal })
}

// own is the part of the price that is on no bill.
func (s *solution) own() (sum int64) {
	for _, r := range s.runs {
		for _, n := range r.best.nodes {
			sum += r.p.cells[n.cell].own * int64(n.n*(1+len(r.twins)))
		}
	}
	return sum
}
