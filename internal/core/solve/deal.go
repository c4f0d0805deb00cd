package solve

import (
	"cmp"
	"encoding/binary"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// Where one node may hold few pods of an application whose pods are of many sizes, the packer cannot be told so in pairs of classes.
// It is asked as if there were no such rule: then all pods of one size are equal, so the question is small and its answer good, and it
// says how many pods of each size every node should hold. Which ones those are is decided as they are dealt out, by the rules
// themselves: those that have the fewest places to go come first, and whoever finds no place where the packer meant it is placed at last.

// A pile is the pods that one item of the packer stands for.
type pile struct {
	hands []hand
	first int // hands before it are dealt out
	tied  int // so many hands at the front are tied on a host
}

// A hand is what is left of the pods that the placement has as one item.
type hand struct {
	item
	left   int
	groups []int // host-level groups that hold them apart
}

// A dealing is a fleet in the making whose pods are dealt out.
type dealing struct {
	*state
	k     *packing
	piles []pile
	owed  []int // by group: pods that are not dealt out yet
}

// deal packs pods that are tied on a host by what cannot be told the packer, or returns nil where there are none or they find no place.
func (s *state) deal() *state {
	k := &packing{s: s, index: map[string]int{}}
	k.collect(k.simpleTemplates(), nil)
	bad := map[ClassID]bool{}
	if len(k.items) == 0 || !k.tie(bad) {
		return nil
	}
	d := &dealing{k: k, owed: make([]int, len(s.groups))}
	d.pileUp(bad)
	k.makeCells()
	k.makeLimits()
	// The first fleet will do: what a search would gain is less than dealing out costs.
	answer := pack.Solve(&k.problem, pack.Options{Gain: s.p.Settings.GainPermille, Fast: true, Most: 1, Meter: s.meter})
	d.state = k.afresh()
	if !d.dealOut(answer.Fleet) {
		return nil
	}
	return d.finished()
}

// pileUp makes one item of all that are equal to the packer, once it knows nothing of ties among several of them.
func (d *dealing) pileUp(bad map[ClassID]bool) {
	k := d.k
	known := map[string]int{}
	var key []byte
	var piled []item
	var classes []pack.Class
	for i := range k.items {
		it := &k.items[i]
		most := k.problem.Classes[i].PerNode
		if bad[it.class] || most >= it.count {
			most = 0
		}
		key = k.likeness(key[:0], it)
		if most > 0 {
			key = binary.AppendVarint(key, int64(i)) // a cap of its own
		}
		at, ok := known[string(key)]
		if !ok {
			at = len(piled)
			known[string(key)] = at
			piled = append(piled, *it)
			piled[at].count = 0
			classes = append(classes, pack.Class{PerNode: most})
			d.piles = append(d.piles, pile{})
		}
		piled[at].count += it.count
		groups := k.s.holdApart(it)
		for _, g := range groups {
			d.owed[g] += it.count
		}
		d.piles[at].hands = append(d.piles[at].hands, hand{*it, it.count, groups})
	}
	k.items = piled
	k.problem = pack.Problem{Classes: classes}
	for i := range d.piles {
		p := &d.piles[i]
		slices.SortStableFunc(p.hands, func(a, b hand) int { return cmp.Compare(min(len(b.groups), 1), min(len(a.groups), 1)) })
		for p.tied < len(p.hands) && len(p.hands[p.tied].groups) > 0 {
			p.tied++
		}
	}
}

// likeness identifies items that are equal to the packer: they need as much and may go to the same machines.
func (k *packing) likeness(key []byte, it *item) []byte {
	key = binary.AppendVarint(key, int64(it.tier))
	for _, v := range k.readings(it) {
		key = binary.AppendVarint(binary.AppendVarint(key, int64(v.Reqs)), int64(v.Tol))
	}
	key = binary.AppendVarint(key, int64(len(it.pins)))
	for _, p := range it.pins {
		key = binary.AppendVarint(key, int64(p))
	}
	for _, n := range k.s.needOf(it.class) {
		key = binary.AppendVarint(key, n)
	}
	return key
}

// holdApart returns the host-level groups that an item owns.
func (s *state) holdApart(it *item) []int { return s.touchesOf(it.class, it.variant).host.owned }

// dealOut fills the nodes of a fleet, and places those that found no place there. It reports whether all did.
func (d *dealing) dealOut(fleet []pack.Pattern) bool {
	for i := range fleet {
		for range fleet[i].Nodes {
			d.fill(&fleet[i])
		}
	}
	return d.rest()
}

// fill opens a node of a pattern and fills it.
func (d *dealing) fill(pattern *pack.Pattern) {
	bin := d.k.openCell(d.state, pattern)
	for _, x := range pattern.Items {
		d.serve(&d.piles[x.Class], bin, x.Count)
	}
}

// serve puts n pods of a pile on a bin, or as many as may be there: those that have the fewest other places first.
func (d *dealing) serve(p *pile, bin BinID, n int) {
	tied := p.hands[:p.tied]
	for i := 1; i < len(tied); i++ { // nearly in order since the last time
		for j := i; j > 0 && d.pressure(&tied[j]) > d.pressure(&tied[j-1]); j-- {
			tied[j], tied[j-1] = tied[j-1], tied[j]
		}
	}
	for i := range tied {
		if n == 0 {
			return
		}
		n -= d.put(&tied[i], bin, n)
	}
	p.first = max(p.first, p.tied)
	for i := p.first; i < len(p.hands) && n > 0; i++ {
		n -= d.put(&p.hands[i], bin, n)
		if p.hands[i].left == 0 && i == p.first {
			p.first++
		}
	}
}

// pressure is how many pods of the hand's groups wait for each place that a node has for them.
func (d *dealing) pressure(h *hand) int {
	if h.left == 0 {
		return -1
	}
	most := 0
	for _, g := range h.groups {
		most = max(most, d.owed[g]/max(1, int(d.groups[g].MaxSkew)))
	}
	return most
}

// put places up to n pods of a hand on a bin and returns how many.
func (d *dealing) put(h *hand, bin BinID, n int) int {
	placed := 0
	q := d.ask(d.read(h.class, h.variant))
	for n = min(n, h.left); placed < n && d.inPins(h, bin) && d.try(q, bin).code == 0; {
		many := d.most(q, n-placed)
		d.commit(q, many)
		placed += many
	}
	h.left -= placed
	for _, g := range h.groups {
		d.owed[g] -= placed
	}
	return placed
}

// inPins reports whether a bin is in the domains that a hand is pinned to.
func (d *dealing) inPins(h *hand, bin BinID) bool {
	for key, to := range h.pins {
		if to >= 0 && d.domainOf(key, bin) != to {
			return false
		}
	}
	return true
}

// rest places the pods that found no place where the packer meant them: on any new node, else on those that are opened for them.
func (d *dealing) rest() bool {
	for i := range d.piles {
		for j := range d.piles[i].hands {
			h := &d.piles[i].hands[j]
			for bin := range d.newBins() {
				if d.put(h, bin, h.left); h.left == 0 {
					break
				}
			}
			if !d.openFor(i, h) {
				return false
			}
		}
	}
	return true
}

// openFor opens nodes for what is left of a hand, each the cheapest for as many pods as it may hold.
func (d *dealing) openFor(pile int, h *hand) bool {
	k := d.k
	cell := -1
	for known := 0; h.left > 0; {
		together := h.left
		for _, g := range h.groups {
			together = min(together, d.groups[g].HostRoom(int(d.bins()), true, together))
		}
		if together != known || !d.within(cell) {
			cell, known = d.cheapestFor(pile, h, together), together
		}
		if cell < 0 {
			return false
		}
		bin := k.openCell(d.state, &pack.Pattern{Cell: cell})
		k.pin(d.state, bin, &h.item)
		if d.put(h, bin, h.left) == 0 {
			return false
		}
	}
	return true
}

// within reports whether the limits of its pool allow one more node of a cell.
func (d *dealing) within(cell int) bool {
	tmpl := &d.p.Templates[d.k.cells[cell].tmpl]
	return d.limits[tmpl.Pool].Fits(tmpl.Catalog.Capacity[d.k.cells[cell].shape])
}

// cheapestFor returns the cell with the lowest price for each of n pods of a hand, as far as it has room for them; −1 if there is none.
func (d *dealing) cheapestFor(pile int, h *hand, n int) int {
	k := d.k
	best, price, holds := -1, int64(0), int64(0)
	for c := range k.cells {
		if !k.problem.Classes[pile].Cells.Has(c) || !d.within(c) {
			continue
		}
		room := quantity.Vec(k.problem.Cells[c].Room)
		if m := int64(d.p.Classes[h.class].Need.Times(room, n)); best < 0 || ratioLess(k.problem.Cells[c].Price, m, price, holds) {
			best, price, holds = c, k.problem.Cells[c].Price, m
		}
	}
	return best
}

// finished is the placement once all pods have their place.
func (d *dealing) finished() *state {
	d.pinned = false
	return d.state
}
