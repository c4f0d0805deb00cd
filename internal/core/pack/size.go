package pack

import "slices"

// Here a cell is "open" if every item that may use it may justify a node of it. Other large cells are for items that fit nothing smaller;
// see "Large cells" in the package comment.

// openUpTo returns copies of the parts in which cells that are at most over steps too large are open.
func openUpTo(parts []*part, over int) []*part {
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

// stepsOf returns by how many steps the cells that are not open are too large: each number once, ascending.
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

// widest returns a new solution with all cells open; s itself if all of its cells are open already.
func (s *solution) widest(parts []*part, b *budget) *solution {
	steps := stepsOf(parts)
	if len(steps) == 0 {
		return s
	}
	most := steps[len(steps)-1]
	return newSolution(openUpTo(parts, most), b, most)
}

// widen opens large cells step by step, and returns the last solution that was worth it (see losesTo), or s if none was. It searches a step
// only if bounds show that the step may be worth it, and it does nothing if even all, with all cells open, cannot be.
//
// Why not open all cells at once: an enormous machine is often the cheapest per core, but only just. A fleet of few enormous machines loses
// more pods when one machine fails, seldom has an empty machine to remove, and keeps more room unused when pods leave. So larger machines
// must save at least Options.Gain, and they are tried step by step because the first step often saves most.
func (s *solution) widen(parts []*part, all *solution, o Options, b *budget) *solution {
	best := s
	if all == s || !best.mayGain(all, o.Gain) {
		return best
	}
	for _, over := range stepsOf(parts) {
		next := all
		if over < all.over {
			next = newSolution(openUpTo(parts, over), b, over)
		}
		if !best.mayGain(next, o.Gain) {
			continue
		}
		b.watch(next)
		next.improve(o)
		if best.losesTo(next, o.Gain) {
			best = next
		}
	}
	return best
}

// losesTo reports whether the fleet of a wider solution is worth its larger machines: it leaves fewer items without a place; or it leaves
// as many, costs less, and lowers the bill by more than gain thousandths.
func (s *solution) losesTo(to *solution, gain int64) bool {
	price, lost := s.sum()
	newPrice, newLost := to.sum()
	return newLost < lost || newLost == lost && newPrice < price &&
		float64(newPrice-to.own()) < float64(float64(price-s.own())*afterSaving(gain))
}

// mayGain reports whether a wider solution may be worth its larger machines, judged by bounds alone, before any fleet of it is searched.
//
// It starts with the volume bound of the wider solution, which costs next to nothing. Then it refines the bound part by part with the fluid
// LP, and stops as soon as even the best wider fleet would not be cheap enough.
func (s *solution) mayGain(wide *solution, gain int64) bool {
	if _, lost := s.sum(); lost > 0 {
		return true
	}
	limit := s.boundToBeat(gain)
	for _, r := range wide.runs {
		if wide.bound() >= limit || r.b.over {
			return false
		}
		r.refine()
	}
	return wide.bound() < limit
}

// widenFew is the number of items up to which a wider solution is searched so fast that it may be searched without a strict reason.
const widenFew = 200

// afterSaving returns the part of a bill that is left after a saving of gain thousandths.
func afterSaving(gain int64) float64 { return 1 - float64(gain)/1000 }

// boundToBeat returns the number that the bound of a wider solution must be below, or the wider solution is not searched.
//
// It is the price of s less the required gain. If s is not proven optimal, the bound of s stands for its price, because two bounds show
// better than two imperfect fleets what larger machines save. The price is kept if items are few and the fleet is farther from its bound
// than the gain: there the bound, which may cut items, is too low to compare with. Costs that are on no bill (see own) are not reduced
// by the gain.
func (s *solution) boundToBeat(gain int64) float64 {
	price, _ := s.sum()
	items := 0
	for _, r := range s.runs {
		items += r.p.total * (1 + len(r.twins))
	}
	own, from := float64(s.own()), float64(price)
	if !s.optimal() && (items > widenFew || float64(from*afterSaving(gain)) < s.bound()) {
		from = s.bound()
	}
	return min(float64(price), float64((from-own)*afterSaving(gain))+own)
}

// optimal reports whether the fleets of all parts are proven to be the cheapest.
func (s *solution) optimal() bool {
	return !slices.ContainsFunc(s.runs, func(r *run) bool { return !r.optimal })
}

// own returns the part of the price that is on no bill: the fixed cost of each node, such as the agents that run on it.
func (s *solution) own() (sum int64) {
	for _, r := range s.runs {
		for _, n := range r.best.nodes {
			sum += r.p.cells[n.cell].own * int64(n.n*(1+len(r.twins)))
		}
	}
	return sum
}
