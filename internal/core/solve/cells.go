package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/shape"
)

// makeCells lists what nodes can be bought as, and which items may be on which.
func (k *packing) makeCells() {
	s := k.s
	tiers := map[int]bool{}
	for i := range k.items {
		tiers[k.items[i].tier] = true
		k.problem.Classes[i].Need = s.needOf(k.items[i].class)
		k.problem.Classes[i].Count = k.items[i].count
	}
	k.findKinds()
	k.exact = k.proves
	var seen []TemplateID
	for i := range s.p.Templates {
		t, tmpl := TemplateID(i), &s.p.Templates[i]
		if !k.loose && (!tiers[tmpl.Tier] || len(tmpl.Min) > 0) || k.likeAnother(t, seen) {
			continue
		}
		seen = append(seen, t)
		k.addCells(t)
	}
	for i := range k.items {
		k.problem.Classes[i].Cells = k.cellsOf(i)
	}
}

// findKinds sorts items into kinds: items of one kind ask the same of templates and offers, whatever room they need.
func (k *packing) findKinds() {
	known := map[string]int{}
	var key []byte
	word := func(n int) { key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)) }
	k.kindOf = make([]int, len(k.items))
	for i := range k.items {
		it := &k.items[i]
		key = key[:0]
		word(it.tier)
		word(len(it.pins))
		for _, d := range it.pins {
			word(int(d))
		}
		for _, v := range k.readings(it) {
			word(v.Reqs)
			word(v.Tol)
		}
		at, ok := known[string(key)]
		if !ok {
			at = len(k.kinds)
			known[string(key)] = at
			k.kinds = append(k.kinds, i)
		}
		k.kindOf[i] = at
	}
}

// likeAnother reports whether the twin of a template sells the same machines to the same items.
func (k *packing) likeAnother(t TemplateID, seen []TemplateID) bool {
	u := k.s.twin[t]
	if u < 0 || !slices.Contains(seen, u) {
		return false
	}
	for _, i := range k.kinds {
		it := &k.items[i]
		if !slices.EqualFunc(k.wantsOf(it, t), k.wantsOf(it, u), func(a, b want) bool { return a.equal(&b) }) {
			return false
		}
	}
	return true
}

// readings returns the variants that count for an item: the one that it was placed as, or for a bound every one of the
// same level.
func (k *packing) readings(it *item) []*Variant {
	all := k.s.p.Classes[it.class].Variants
	if !k.loose {
		return []*Variant{&all[it.variant]}
	}
	var out []*Variant
	for i := range all {
		if all[i].Level == all[it.variant].Level {
			out = append(out, &all[i])
		}
	}
	return out
}

// reads reports whether a template suits one reading of an item.
func (k *packing) reads(it *item, v *Variant, t TemplateID) bool {
	s := k.s
	if tier := s.p.Templates[t].Tier; tier != it.tier && !(k.loose && (s.limitedTo(it.tier) || tier < it.tier)) {
		return false
	}
	return s.tolerates(v, t) && s.match(v, t).OK
}

// limitedTo reports whether some pool of a tier or of a heavier one has limits, so that pods may go to lighter ones.
func (s *state) limitedTo(tier int) bool {
	return slices.ContainsFunc(s.p.Templates, func(t Template) bool { return t.Tier <= tier && s.limits[t.Pool].Limited })
}

// A want is what one reading of items leaves of a template: their node is one of these shapes, bought by one of these offers.
type want struct{ shapes, offers bits.Set }

// within reports whether whoever wants v may be bought as what w is bought as.
func (w *want) within(v *want) bool { return w.shapes.Within(v.shapes) && w.offers.Within(v.offers) }

func (w *want) equal(v *want) bool { return w.shapes.Equal(v.shapes) && w.offers.Equal(v.offers) }

// both is what two wants leave together.
func (w *want) both(v *want) (want, bool) {
	out := want{w.shapes.Clone(), w.offers.Clone()}
	out.shapes.And(v.shapes)
	out.offers.And(v.offers)
	return out, out.shapes.Any() && out.offers.Any()
}

// wantsOf returns what the readings of an item leave of a template.
func (k *packing) wantsOf(it *item, t TemplateID) []want {
	var out []want
	for _, v := range k.readings(it) {
		if !k.reads(it, v, t) {
			continue
		}
		if w := k.wantOf(it, v, t); w.shapes.Any() && w.offers.Any() && !slices.ContainsFunc(out, func(x want) bool { return x.equal(&w) }) {
			out = append(out, w)
		}
	}
	return out
}

func (k *packing) wantOf(it *item, v *Variant, t TemplateID) want {
	tmpl := &k.s.p.Templates[t]
	m := k.s.match(v, t)
	w := want{tmpl.Shapes.Clone(), tmpl.Mask.Clone()}
	w.shapes.Keep(m.Shapes)
	w.offers.Keep(m.Mask)
	for key, d := range it.pins {
		if d >= 0 {
			w.pin(k.s.keyOf(key, t), d)
		}
	}
	w.offers = tmpl.bought(w.offers)
	return w
}

// bought returns the offers of a mask. Whatever else is chosen is bought in the same way.
func (t *Template) bought(mask bits.Set) bits.Set {
	if len(t.Segments) == 1 {
		return mask
	}
	out := mask.Clone()
	for o := out.Next(len(t.Catalog.Offers)); o >= 0; o = out.Next(o + 1) {
		out.Remove(o)
	}
	return out
}

// pin narrows a want to one domain of a topology key.
func (w *want) pin(of *KeyOf, d int32) {
	switch {
	case of.Kind == ByChoice && of.Choice[d] != nil:
		w.offers.And(of.Choice[d])
	case of.Kind == ByShape:
		w.shapes.Only(func(sh int) bool { return of.Shape[sh] == d })
	case of.domain(0) != d:
		w.offers.Clear()
	}
}

// mostWants is how many combinations of what items want of a template are told apart.
const mostWants = 64

// findWants lists what the items want of a template, by kind, and what any of them leave together: nodes are shared. It returns false
// if there are too many combinations; then not all are among them.
func (k *packing) findWants(t TemplateID) (all []want, byKind [][]want, complete bool) {
	complete = true
	note := func(w want) {
		if slices.ContainsFunc(all, func(x want) bool { return x.equal(&w) }) {
			return
		}
		if len(all) == mostWants {
			complete = false
			return
		}
		all = append(all, w)
	}
	byKind = make([][]want, len(k.kinds))
	for i, it := range k.kinds {
		byKind[i] = k.byReservation(k.wantsOf(&k.items[it], t), t)
		for _, w := range byKind[i] {
			note(w)
		}
	}
	for i := 1; i < len(all) && complete; i++ {
		for j := range i {
			if w, ok := all[i].both(&all[j]); ok {
				note(w)
			}
		}
	}
	return all, byKind, complete
}

// byReservation takes reserved offers out of wants, and, for a bound, adds each of them by itself.
func (k *packing) byReservation(wants []want, t TemplateID) []want {
	cat := k.s.p.Templates[t].Catalog
	if len(cat.Left) == 0 {
		return wants
	}
	var out []want
	for _, w := range wants {
		for o := range w.offers.Clone().All() {
			if cat.Offers[o].Reservation < 0 {
				continue
			}
			w.offers.Remove(o)
			if k.loose {
				out = append(out, want{w.shapes, bits.Of(len(cat.Offers), o)})
			}
		}
		if w.offers.Any() {
			out = append(out, w)
		}
	}
	return out
}

// addCells lists what nodes of a template can be bought as.
func (k *packing) addCells(t TemplateID) {
	s := k.s
	tmpl := &s.p.Templates[t]
	all, byKind, complete := k.findWants(t)
	k.exact = k.exact && complete
	if k.loose && (len(tmpl.Min) > 0 || !complete) {
		k.addFloors(t, byKind)
		return
	}
	for i := range all {
		from := len(k.cells)
		k.addLists(t, &all[i])
		if s.limits[tmpl.Pool].Limited && !k.loose {
			k.addShapes(t, &all[i])
		}
		k.openCells(from, byKind, func(_ *packCell, w *want) bool { return all[i].within(w) })
	}
}

// openCells says which kinds may use the cells from one on.
func (k *packing) openCells(from int, byKind [][]want, suits func(*packCell, *want) bool) {
	for c := from; c < len(k.cells); c++ {
		open := bits.Make(len(k.kinds))
		for kind := range byKind {
			if slices.ContainsFunc(byKind[kind], func(w want) bool { return suits(&k.cells[c], &w) }) {
				open.Add(kind)
			}
		}
		k.cells[c].kinds = open
	}
}

// addLists adds a cell for each list that a launch of what is wanted may send.
func (k *packing) addLists(t TemplateID, w *want) {
	lists, complete := k.listsOf(t, w)
	k.exact = k.exact && complete
	for i := range lists {
		l := &lists[i]
		own := k.s.p.Settings.Terms.Own(l.Floor)
		k.addCell(packCell{tmpl: t, shape: l.First.Shape}, l.VCPU, pack.Cell{Room: slices.Clone(l.Room), Price: l.Cost + own, Own: own})
	}
}

// addShapes adds a cell for each shape. Limits count what shapes have, and not what is asked of it, so that a small machine may be the
// better one though a larger one costs less.
func (k *packing) addShapes(t TemplateID, w *want) {
	tmpl := &k.s.p.Templates[t]
	prices := k.s.pricesOf(t, k.s.wide(w.offers))
	for sh := range w.shapes.All() {
		if prices[sh] > 0 {
			k.addCell(packCell{tmpl: t, shape: sh}, tmpl.Catalog.VCPU[sh], pack.Cell{Room: k.s.roomWithVolumes(tmpl, sh), Price: prices[sh], Own: k.s.p.Settings.Terms.Own(prices[sh])})
		}
	}
}

// addFloors adds a cell for each shape at the lowest price at which it is sold, whoever would be preferred: no plan gets it for less.
func (k *packing) addFloors(t TemplateID, byKind [][]want) {
	tmpl := &k.s.p.Templates[t]
	from := len(k.cells)
	for sh := range tmpl.Shapes.All() {
		if price := cheapestOf(tmpl, sh, tmpl.Mask); price > 0 {
			own := k.s.p.Settings.Terms.Own(price)
			k.addCell(packCell{tmpl: t, shape: sh}, tmpl.Catalog.VCPU[sh], pack.Cell{Room: k.s.roomWithVolumes(tmpl, sh), Price: price + own, Own: own})
		}
	}
	k.openCells(from, byKind, func(c *packCell, w *want) bool {
		return w.shapes.Has(c.shape) && tmpl.ShapeMask[c.shape].Meets(w.offers)
	})
}

// addCell adds what a node can be bought as. A bound is about every fleet, whatever machines it is made of.
func (k *packing) addCell(c packCell, vcpu int64, cell pack.Cell) {
	for r := range cell.Room {
		cell.Room[r] = max(cell.Room[r], 0)
	}
	if !k.loose {
		cell.Over = k.s.tooLarge(&k.s.p.Templates[c.tmpl], vcpu)
	}
	k.cells = append(k.cells, c)
	k.problem.Cells = append(k.problem.Cells, cell)
}

// fillOf says what is known of the items to whoever lists what they can be bought as.
func (k *packing) fillOf() shape.Fill {
	fill := shape.Fill{Axes: []int{quantity.CPU, quantity.Memory}, Least: k.s.least}
	for r := range k.s.p.Resources {
		if r > quantity.Memory && r != quantity.Pods && k.asks(r) {
			fill.Axes = append(fill.Axes, r)
		}
	}
	for i := range k.items {
		fill.Pods += int64(k.items[i].count)
	}
	return fill
}

// listsOf returns the lists that launches of what is wanted may send, and whether these are all.
func (k *packing) listsOf(t TemplateID, w *want) (lists []shape.List, complete bool) {
	tmpl := &k.s.p.Templates[t]
	fill := k.fillOf()
	relaxed := k.loose && k.s.limits[tmpl.Pool].Limited
	if k.s.p.Drivers == 0 && !relaxed && len(tmpl.Catalog.Left) == 0 && len(tmpl.Segments) == 1 && len(fill.Axes) == 2 && w.shapes.Equal(tmpl.Shapes) {
		lists, complete = k.s.rowOf(t, k.s.wide(w.offers)).listed(tmpl, &k.s.p.Settings.Terms)
		if complete && (!k.proves || !crowded(lists, &fill)) {
			return lists, true
		}
	}
	market := tmpl.Catalog.Market(w.shapes, w.offers, k.s.p.Settings.Terms.Band, k.s.roomsOf(tmpl))
	lists, complete = market.Lists(fill)
	if k.proves && crowded(lists, &fill) {
		fill.Axes = append(fill.Axes, quantity.Pods)
		lists, complete = market.Lists(fill)
	}
	complete = complete && !k.mounts()
	if relaxed || k.loose && !complete {
		for i := range lists {
			market.Relax(&lists[i])
		}
	}
	return lists, complete
}

// crowded reports whether the number of pods may be what fills a machine of some list.
func crowded(lists []shape.List, f *shape.Fill) bool {
	return slices.ContainsFunc(lists, func(l shape.List) bool {
		most := f.Pods
		for _, r := range f.Axes {
			if f.Least[r] > 0 {
				most = min(most, l.Room[r]/f.Least[r])
			}
		}
		return most > l.Room[quantity.Pods]
	})
}

// asks reports whether any item asks for a resource, and mounts whether any brings a volume.
func (k *packing) asks(r int) bool {
	return slices.ContainsFunc(k.items, func(it item) bool { return k.s.p.Classes[it.class].Need[r] > 0 })
}

func (k *packing) mounts() bool {
	return slices.ContainsFunc(k.items, func(it item) bool { return len(k.s.p.Classes[it.class].Volumes) > 0 })
}

// cheapestOf returns the lowest price at which a shape is sold under the offers, whoever would be preferred.
func cheapestOf(tmpl *Template, sh int, offers bits.Set) int64 {
	best := int64(0)
	for o := range tmpl.Catalog.Sold[sh].All() {
		if p := max(tmpl.Catalog.Price[sh][o], 1); offers.Has(o) && (best == 0 || p < best) {
			best = p
		}
	}
	return best
}

// cellsOf returns the cells that an item may use: its requirements, its pins, and no exotic machine where an ordinary one
// would do.
func (k *packing) cellsOf(i int) bits.Set {
	s := k.s
	ordinary, exotic := bits.Make(len(k.cells)), bits.Make(len(k.cells))
	found := false
	need := s.p.Classes[k.items[i].class].Need
	for c := range k.cells {
		cell := &k.cells[c]
		if !cell.kinds.Has(k.kindOf[i]) || !need.Fits(k.problem.Cells[c].Room[:s.p.Resources]) {
			continue
		}
		if !k.loose && s.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) {
			exotic.Add(c)
			continue
		}
		ordinary.Add(c)
		found = true
	}
	if !found {
		return exotic
	}
	return ordinary
}
