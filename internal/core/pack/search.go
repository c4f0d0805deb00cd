package pack

import "slices"

// A search improves a fleet by taking a few nodes apart and packing their items again. Nodes that hold less than they cost, by the
// worths of the last LP, are taken more often.
//
// It is ruin and recreate. A greedy fleet is good nearly everywhere; what is wrong with it lies in a few nodes that got what was left.
// Taking some of these and some others apart gives the greedy a small question of its own, which it answers better than the large one, and
// an answer that is not cheaper is forgotten. Nothing has to be known of why a fleet is dear.
//
// Turns must differ, or they would find the same again. Three things differ: which nodes are taken, drawn by waste; worths, which are off
// by up to one percent so that ties fall otherwise; and the cells that may be opened, two fifths of all beside those that were there.
type search struct {
	r     *run
	nodes []load
	waste []float64 // per node: price less worth of the contents, never below a small share of the price
	sum   float64
	worth []float64
	noisy []float64
	rand  uint64
	idle  int // turns without success
	spare *supply
	pick  []int
	live  []int
}

const (
	searchIdle = 400 // turns without success that end the search
	searchMost = 4000
	// How far worths are off in a turn, and the share of cells that a turn tries.
	searchNoise = 0.01
	searchCells = 0.4
)

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

// next is splitmix64: the same numbers everywhere.
func (s *search) next() uint64 {
	s.rand += 0x9E3779B97F4A7C15
	z := s.rand
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (s *search) float() float64 { return float64(s.next()>>11) / (1 << 53) }

func (s *search) weigh() {
	s.waste, s.sum = s.waste[:0], 0
	for i := range s.nodes {
		s.waste = append(s.waste, s.wasteOf(&s.nodes[i]))
		s.sum += s.waste[i]
	}
}

// That it is never nothing lets every node be drawn now and then: a node that is full by itself may be what keeps three others from
// becoming two.
func (s *search) wasteOf(l *load) float64 {
	price := float64(s.r.p.cells[l.cell].price)
	return max(price-l.worth(s.worth), float64(price*0.002))
}

// search lets all parts take turns until none finds anything any more or the budget ends.
//
// Parts take turns with each other. One after the other, the first part would use up what the last one needs, and the order of parts is
// not chosen by any run. A part of which nothing has come for some hundred turns is out.
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

// finish hands the fleet back to the run.
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

// turn takes some nodes apart and keeps what comes of it if that is cheaper. It returns false when the budget is over.
//
// Stock is given back before the items are packed again, so the same nodes can always be bought: the worst that a turn finds is what it
// took apart.
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

// choose picks the nodes to take apart.
//
// Mostly few, now and then up to half of all: the product of three numbers below one is small most of the time. Two or three nodes are
// repacked in no time and often by luck; what takes ten to be bettered is found only where ten are taken.
func (s *search) choose() {
	s.pick = s.pick[:0]
	most := float64(len(s.nodes)) / 2
	want := 2 + int(float64(most*s.float())*float64(s.float()*s.float()))
	for tries := 0; len(s.pick) < min(want, len(s.nodes)) && tries < 3*want; tries++ {
		i := s.draw()
		if slices.Contains(s.pick, i) {
			continue
		}
		s.pick = append(s.pick, i)
	}
}

// draw picks a node with a chance in proportion to its waste.
func (s *search) draw() int {
	at := float64(s.float() * s.sum)
	for i, w := range s.waste {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(s.nodes) - 1
}

// repack packs the items in the greedy's hands anew. Worths are a little off and only some cells are tried, so that turns differ and are
// quick.
//
// Ceilings of the whole run stand in for ones that would have to be worked out for each turn: no filling of a few items is worth more than
// the first filling of that cell, when there was everything to choose from.
func (s *search) repack() *fleet {
	g := s.r.greedy
	for _, k := range s.live {
		s.noisy[k] = s.worth[k] * (1 + float64(searchNoise*s.float()))
	}
	for c := range g.last {
		g.last[c] = 0
		if s.float() < searchCells {
			g.last[c] = float64(g.first[c] * (1 + searchNoise/2))
		}
	}
	for _, i := range s.pick {
		c := s.nodes[i].cell
		g.last[c] = float64(g.first[c] * (1 + searchNoise))
	}
	g.fill.worth = s.noisy
	g.fill.guide = guide{[]float64{0, 0.3, 1}[s.next()%3], []float64{0, 1.05, 1.15, 1.3, 2, 5}[s.next()%6]}
	return g.pack(s.live, s.spare, s.noisy, s.r.winner.unit, s.r.b)
}

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
