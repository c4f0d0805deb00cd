package pack

import "slices"

func (p *part) anyNeedy() bool { return slices.Contains(p.needy, true) }

// wantsLarge says whether opening large cells to every class could change anything.
func (p *part) wantsLarge() bool {
	return slices.ContainsFunc(p.cells, func(c cell) bool { return c.large })
}

// widen looks for a fleet with large cells open to every class. It returns nil unless that fleet holds more, or is cheaper by more
// than the policy asks for. It looks only where that is plausible: bounds tell what large cells are worth better than two fleets of
// which neither is the best.
func (s *solution) widen(parts []*part, o Options, b *budget) *solution {
	price, lost := s.sum()
	keep := 1 - float64(o.Size.GainPermille)/1000
	target := float64(price) * keep
	limit := min(target, s.bound()*keep)
	if s.optimal() {
		limit = target
	}
	wide := newSolution(parts, b, true)
	b.watch(wide)
	for i := -1; i < len(wide.runs); i++ {
		if i >= 0 {
			wide.runs[i].refine()
		}
		if lost == 0 && (wide.bound() >= limit || b.over) {
			return nil
		}
	}
	wide.improve(o)
	newPrice, newLost := wide.sum()
	if newLost < lost || newLost == lost && float64(newPrice) < target {
		return wide
	}
	return nil
}

// refine prices all runs by the fluid LP and returns the bound.
func (s *solution) refine() float64 {
	for _, r := range s.runs {
		r.refine()
	}
	return s.bound()
}

// optimal says whether no fleet is cheaper.
func (s *solution) optimal() bool {
	return !slices.ContainsFunc(s.runs, func(r *run) bool { return !r.optimal })
}

// needy is how many classes fit large cells only.
func (s *solution) needy() int {
	n := 0
	for _, r := range s.runs {
		for _, is := range r.p.needy {
			if is {
				n++
			}
		}
	}
	return n
}

// narrow looks for a fleet of smaller machines whose price is within the policy's tie of the proven bound, and with it of every
// other fleet. It halves the largest size in use until there is none, or an item would need a large cell that did not need one
// before. nil means that there is no such fleet.
func (s *solution) narrow(o Options, b *budget) *solution {
	price, lost := s.sum()
	bound := s.bound()
	limit := bound + float64(bound/1000*float64(o.Size.TiePermille))
	if o.Size.Large <= 0 || o.Size.TiePermille <= 0 || lost > 0 || s.large || float64(price) > limit {
		return nil
	}
	var best *solution
	for size := min(o.Size.Large, s.largest()) / 2; size > 0 && !b.over; {
		next := newSolution(s.smaller(size), b, false)
		if next.needy() > s.needy() || next.bound() > limit || next.refine() > limit {
			break
		}
		b.watch(next)
		next.improve(o)
		if price, lost := next.sum(); lost > 0 || float64(price) > limit {
			break
		}
		best = next
		size = min(size, best.largest()) / 2
	}
	return best
}

// largest is the size of the largest machine in use.
func (s *solution) largest() int64 {
	var most int64
	for _, r := range s.runs {
		for _, n := range r.best.nodes {
			most = max(most, r.p.cells[n.cell].size)
		}
	}
	return most
}

// smaller returns the parts with cells above a size counted as large.
func (s *solution) smaller(size int64) []*part {
	var out []*part
	for _, r := range s.runs {
		for _, p := range append([]*part{r.p}, r.twins...) {
			q := *p
			q.every = slices.Clone(p.every)
			for i := range q.every {
				q.every[i].large = q.every[i].size > size
			}
			q.findNeedy()
			q.prune()
			out = append(out, &q)
		}
	}
	return out
}
