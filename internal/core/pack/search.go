package pack

import "slices"

// A search improves a fleet by taking a few nodes apart and packing their items again. Nodes that hold less than they cost, by the
// worths of the last LP, are taken more often.
//
// The method is ruin and recreate. A greedy fleet is good nearly everywhere; the few bad nodes are those that got the items left at the
// end. A turn empties some of these and some others. The greedy packs their items better than it packed all items, and a result that is not
// cheaper is dropped. The search need not know why a fleet is expensive.
//
// Three things differ from turn to turn, or turns would find the same again: the nodes that are emptied, drawn by waste; the worths, raised
// by up to one percent so that ties fall differently; and the cells that may be opened, two fifths of all and those of the emptied nodes.
type search struct {
	r     *run
	nodes []load    // the fleet of this search, a load for each node
	waste []float64 // per node: price less worth of the contents, never below a small share of the price
	sum   float64   // of waste
	worth []float64 // per class
	noisy []float64 // per class: worth in this turn
	rand  uint64    // state of the random numbers
	idle  int       // turns without success
	spare *supply   // stock and limits that the fleet leaves
	pick  []int     // nodes that this turn empties
	live  []int     // classes of their items
}

const (
	searchIdle = 400 // turns without success that end the search
	searchMost = 4000
	// How far worths are off in a turn, and the share of cells that a turn tries.
	searchNoise = 0.01
	searchCells = 0.4
)

// newSearch begins with the best fleet of a run.
func newSearch(r *run) *search {
	s := &search{r: r, worth: r.winner.worth, noisy: make([]float64, r.p.classes()), rand: 1, spare: r.p.newSupply()}
	for _, ns := range r.best.nodes {
		for range ns.n {
			s.nodes = append(s.nodes, ns.load)
		}
		s.spare.take(ns.cell, ns.n)
	}
	s.weigh()
	return s
}

// nextRandom returns the next number of a fixed pseudorandom sequence (splitmix64), the same on every machine.
func (s *search) nextRandom() uint64 {
	s.rand += 0x9E3779B97F4A7C15
	z := s.rand
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// randomShare returns a pseudorandom number from 0 to below 1.
func (s *search) randomShare() float64 { return float64(s.nextRandom()>>11) / (1 << 53) }

// weigh computes the waste of all nodes and its sum.
func (s *search) weigh() {
	s.waste, s.sum = s.waste[:0], 0
	for i := range s.nodes {
		s.waste = append(s.waste, s.wasteOf(&s.nodes[i]))
		s.sum += s.waste[i]
	}
}

// wasteOf returns the waste of a node. It is never 0, so that every node is drawn sometimes: items that move to or from a full node may be
// what lets three others become two.
func (s *search) wasteOf(l *load) float64 {
	price := float64(s.r.p.cells[l.cell].price)
	return max(price-l.worth(s.worth), float64(price*0.002))
}

// search improves the best fleets of all parts until no part finds anything or the budget ends.
//
// Parts take turns, because otherwise the first part could use up the work that the last one needs. A part that found nothing for
// searchIdle turns is out.
func (s *solution) search() {
	var all []*search
	for _, r := range s.runs {
		if r.best.lost == 0 && len(r.best.nodes) > 0 && !r.good() {
			all = append(all, newSearch(r))
		}
	}
	if len(all) == 0 {
		return
	}
	b := all[0].r.b
	price, bound, _ := s.stakes()
	pace := b.newPace(float64(price) - bound)
	for turn := 0; turn < searchMost && len(all) > 0 && !b.over; turn++ {
		for _, t := range all {
			if !t.turn() {
				break
			}
		}
		all = slices.DeleteFunc(all, func(t *search) bool {
			if t.idle == 0 {
				t.finish()
			}
			return t.idle > searchIdle || t.r.good()
		})
		if price, _, _ = s.stakes(); !pace.onward(float64(price) - bound) {
			break
		}
	}
	for _, t := range all {
		t.finish()
	}
}

// finish makes the fleet of the search the run's best one, if it is better.
func (s *search) finish() {
	f := &fleet{left: make([]int, s.r.p.classes())}
	for _, l := range s.nodes {
		f.nodes = append(f.nodes, nodes{l, 1})
	}
	f.price = s.r.p.priceOf(f.nodes)
	if f.better(s.r.best) {
		s.r.best = f
	}
}

// turn empties some nodes, packs their items again, and keeps the new nodes if they are cheaper. It returns false when the budget is over.
//
// The stock of the emptied nodes is given back before their items are packed again, so the same nodes can be bought once more.
func (s *search) turn() bool {
	s.choose()
	s.r.b.charge(len(s.nodes)*len(s.pick) + len(s.r.p.cells)*4 + s.r.p.classes() + 200)
	g := s.r.greedy
	clear(g.rem)
	s.live = s.live[:0]
	var old int64
	for _, i := range s.pick {
		l := &s.nodes[i]
		old += s.r.p.cells[l.cell].price
		s.spare.take(l.cell, -1)
		for j, k := range l.classes {
			if g.rem[k] == 0 {
				s.live = append(s.live, k)
			}
			g.rem[k] += l.counts[j]
		}
	}
	f := s.repack()
	if f == nil || f.lost > 0 || f.price >= old {
		for _, i := range s.pick {
			s.spare.take(s.nodes[i].cell, 1)
		}
		if f != nil {
			for _, n := range f.nodes {
				s.spare.take(n.cell, -n.n)
			}
		}
		s.idle++
		return f != nil
	}
	s.replace(f)
	s.idle = 0
	return true
}

// choose picks the nodes to empty: mostly few, sometimes up to half of all, because the product of three random shares is mostly small. Few
// nodes are quick to repack, but some improvements need ten nodes at once.
func (s *search) choose() {
	s.pick = s.pick[:0]
	most := float64(len(s.nodes)) / 2
	want := 2 + int(float64(most*s.randomShare())*float64(s.randomShare()*s.randomShare()))
	for tries := 0; len(s.pick) < min(want, len(s.nodes)) && tries < 3*want; tries++ {
		i := s.draw()
		if slices.Contains(s.pick, i) {
			continue
		}
		s.pick = append(s.pick, i)
	}
}

// draw returns a random node. A node's chance is in proportion to its waste.
func (s *search) draw() int {
	at := float64(s.randomShare() * s.sum)
	for i, w := range s.waste {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(s.nodes) - 1
}

// repack packs the items in g.rem with the greedy, with slightly changed worths, random guides, and two fifths of the cells, so that turns
// differ and are quick. It returns nil when the budget is over.
//
// The ceiling of a cell (greedy.last) is the worth per price of its first filling in the last greedy run, because a filling with few items
// is hardly ever worth more than a filling that could choose among all. A ceiling of 0 keeps a cell out.
func (s *search) repack() *fleet {
	g := s.r.greedy
	for _, k := range s.live {
		s.noisy[k] = s.worth[k] * (1 + float64(searchNoise*s.randomShare()))
	}
	for c := range g.last {
		g.last[c] = 0
		if s.randomShare() < searchCells {
			g.last[c] = float64(g.first[c] * (1 + searchNoise/2))
		}
	}
	for _, i := range s.pick {
		c := s.nodes[i].cell
		g.last[c] = float64(g.first[c] * (1 + searchNoise))
	}
	g.fill.worth = s.noisy
	g.fill.guide = guide{[]float64{0, 0.3, 1}[s.nextRandom()%3], []float64{0, 1.05, 1.15, 1.3, 2, 5}[s.nextRandom()%6]}
	return g.pack(s.live, s.spare, s.noisy, s.r.winner.unit, s.r.b)
}

// replace puts the nodes of f in the place of the emptied ones.
func (s *search) replace(f *fleet) {
	s.r.b.charge(len(s.nodes) * 30)
	slices.Sort(s.pick)
	for _, i := range slices.Backward(s.pick) {
		s.nodes = slices.Delete(s.nodes, i, i+1)
	}
	for _, ns := range f.nodes {
		for range ns.n {
			s.nodes = append(s.nodes, ns.load)
		}
	}
	s.weigh()
}
