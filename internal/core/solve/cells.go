package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// makeCells lists machines, merged over the offers that all items see alike, and which items may use which.
func (k *packing) makeCells() {
	s := k.s
	tiers := map[int]bool{}
	for i := range k.items {
		tiers[k.items[i].tier] = true
		k.problem.Classes[i].Need = s.needOf(k.items[i].class)
		k.problem.Classes[i].Count = k.items[i].count
	}
	k.findKinds()
	var seen []int
	for t := range s.p.Templates {
		tmpl := &s.p.Templates[t]
		if !k.loose && (!tiers[tmpl.Tier] || len(tmpl.Min) > 0) || k.likeAnother(t, seen) {
			continue
		}
		seen = append(seen, t)
		for _, offers := range k.offerGroups(t) {
			k.addCells(t, offers)
		}
	}
	for i := range k.items {
		k.problem.Classes[i].Cells = k.cellsOf(i)
	}
}

// findKinds picks one item of each kind: items of one kind ask the same of templates and offers, whatever room they need.
func (k *packing) findKinds() {
	known := map[string]bool{}
	var key []byte
	word := func(n int) { key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)) }
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
		if !known[string(key)] {
			known[string(key)] = true
			k.kinds = append(k.kinds, i)
		}
	}
}

// likeAnother reports whether the twin of a template sells the same machines to the same items.
func (k *packing) likeAnother(t int, seen []int) bool {
	u := k.s.twin[t]
	if u < 0 || !slices.Contains(seen, u) {
		return false
	}
	for _, i := range k.kinds {
		it := &k.items[i]
		if k.allows(it, t) != k.allows(it, u) || !slices.Equal(k.offersOf(it, t), k.offersOf(it, u)) {
			return false
		}
		for _, v := range k.readings(it) {
			if !k.s.p.Labels.OnTemplate[v.Reqs][t].Shapes.Equal(k.s.p.Labels.OnTemplate[v.Reqs][u].Shapes) {
				return false
			}
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

// allows reports whether an item may use a template at all.
func (k *packing) allows(it *item, t int) bool {
	return slices.ContainsFunc(k.readings(it), func(v *Variant) bool { return k.reads(it, v, t) })
}

// reads reports whether a template suits one reading of an item.
func (k *packing) reads(it *item, v *Variant, t int) bool {
	s := k.s
	if tier := s.p.Templates[t].Tier; tier != it.tier && !(k.loose && (s.limitedTo(it.tier) || tier < it.tier)) {
		return false
	}
	return s.p.Labels.TolTmpl[v.Tol].Has(t) && s.p.Labels.OnTemplate[v.Reqs][t].OK
}

// limitedTo reports whether some pool of a tier or of a heavier one has limits, so that pods may go to lighter ones.
func (s *state) limitedTo(tier int) bool {
	return slices.ContainsFunc(s.p.Templates, func(t Template) bool { return t.Tier <= tier && s.limits[t.Pool].Limited })
}

// offersOf returns the choices that an item's readings and pins leave of a template.
func (k *packing) offersOf(it *item, t int) bits.Set {
	tmpl := &k.s.p.Templates[t]
	out := bits.Make(64 * len(tmpl.Mask))
	for _, v := range k.readings(it) {
		if !k.reads(it, v, t) {
			continue
		}
		m := k.s.p.Labels.OnTemplate[v.Reqs][t].Mask
		if m == nil {
			m = tmpl.Mask
		}
		out.Or(m)
	}
	out.And(tmpl.Mask)
	for key, d := range it.pins {
		if d < 0 {
			continue
		}
		if of := &k.s.p.Keys[key].Tmpl[t]; of.Choice != nil {
			if of.Choice[d] == nil {
				out.Clear()
				return out
			}
			out.And(of.Choice[d][:len(out)])
		} else if of.Shape == nil && of.Fixed != d {
			out.Clear()
			return out
		}
	}
	return out
}

// offerGroups splits a template's offers into sets that every item accepts or refuses as a whole. A set of offers that
// all items accept together stays together, so that a launch can choose among them.
func (k *packing) offerGroups(t int) []bits.Set {
	tmpl := &k.s.p.Templates[t]
	signature := make([][]byte, len(tmpl.Catalog.Offers))
	known := map[string]bool{}
	for _, i := range k.kinds {
		if !k.allows(&k.items[i], t) {
			continue
		}
		offers := k.offersOf(&k.items[i], t)
		text := string(wordsText(offers))
		if known[text] {
			continue // the same offers as another item: no new distinction
		}
		known[text] = true
		for o := range signature {
			if offers.Has(o) {
				signature[o] = append(signature[o], 1)
			} else {
				signature[o] = append(signature[o], 0)
			}
		}
	}
	var order []string
	groups := map[string]bits.Set{}
	for o, sig := range signature {
		if !tmpl.Mask.Has(o) || !slices.Contains(sig, 1) || tmpl.Catalog.Offers[o].Reservation >= 0 && !k.loose {
			continue
		}
		if tmpl.Catalog.Offers[o].Reservation >= 0 {
			sig = append(sig, byte(2+o)) // each reservation by itself
		}
		g := groups[string(sig)]
		if g == nil {
			g = bits.Make(64 * len(tmpl.Mask))
			order = append(order, string(sig))
		}
		g.Add(o)
		groups[string(sig)] = g
	}
	out := make([]bits.Set, 0, len(order))
	for _, sig := range order {
		out = append(out, groups[sig])
	}
	return out
}

func wordsText(s bits.Set) []byte {
	out := make([]byte, 0, 8*len(s))
	for _, w := range s {
		for range 8 {
			out = append(out, byte(w))
			w >>= 8
		}
	}
	return out
}

// addCells lists the shapes of a template that can be bought under the offers, cheapest first. Where no item is particular about
// shapes, those are left out that another one beats in price and in everything that is asked for.
func (k *packing) addCells(t int, offers bits.Set) {
	s := k.s
	tmpl := &s.p.Templates[t]
	var found []pricedShape
	for sh := range tmpl.Shapes.All() {
		if !tmpl.ShapeMask[sh].Meets(offers) {
			continue
		}
		price, _ := tmpl.offer(sh, offers, s.left)
		if k.loose {
			price = cheapestOf(tmpl, sh, offers)
		}
		if price > 0 {
			found = append(found, pricedShape{sh, price})
		}
	}
	slices.SortStableFunc(found, func(a, b pricedShape) int { return cmp.Compare(a.price, b.price) })
	if k.indifferent(t) {
		found = k.best(tmpl, found)
	}
	for _, f := range found {
		k.cells = append(k.cells, packCell{t, f.shape, offers})
		k.problem.Cells = append(k.problem.Cells, pack.Cell{Room: s.roomWithVolumes(tmpl, f.shape), Price: f.price, Size: tmpl.Catalog.VCPU[f.shape]})
	}
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

// roomWithVolumes is what a shape has, with attach limits as further dimensions.
func (s *state) roomWithVolumes(tmpl *Template, sh int) []int64 {
	room := append(make([]int64, 0, s.p.Resources+s.p.Drivers), tmpl.Room[sh]...)
	for r := range room {
		room[r] = max(room[r], 0)
	}
	for d := range s.p.Drivers {
		most := int64(quantity.Max)
		if d < len(tmpl.Drivers) && tmpl.Drivers[d] != nil && tmpl.Drivers[d][sh] >= 0 {
			most = int64(tmpl.Drivers[d][sh])
		}
		room = append(room, most)
	}
	return room
}

type pricedShape struct {
	shape int
	price int64
}

// indifferent reports whether no item that may use a template cares which shape it gets, and nobody counts capacity.
func (k *packing) indifferent(t int) bool {
	s := k.s
	if s.limits[s.p.Templates[t].Pool].Limited || s.p.Drivers > 0 {
		return false
	}
	return !slices.ContainsFunc(k.items, func(it item) bool {
		if slices.ContainsFunc(k.readings(&it), func(v *Variant) bool { return k.reads(&it, v, t) && s.p.Labels.OnTemplate[v.Reqs][t].Shapes != nil }) {
			return true
		}
		for key, d := range it.pins {
			if d >= 0 && s.p.Keys[key].Tmpl[t].Shape != nil {
				return true
			}
		}
		return false
	})
}

// best keeps, of shapes sorted by price, those that no cheaper one of the same kind and size class contains.
func (k *packing) best(tmpl *Template, found []pricedShape) []pricedShape {
	s := k.s
	var asked []int
	for r := range s.p.Resources {
		if slices.ContainsFunc(k.items, func(it item) bool { return s.p.Classes[it.class].Need[r] > 0 }) {
			asked = append(asked, r)
		}
	}
	var kept []pricedShape
	for _, f := range found {
		a := tmpl.Room[f.shape]
		beaten := slices.ContainsFunc(kept, func(g pricedShape) bool {
			b := tmpl.Room[g.shape]
			for _, r := range asked {
				if b[r] < a[r] {
					return false
				}
			}
			return tmpl.Catalog.Exotic.Has(f.shape) || !tmpl.Catalog.Exotic.Has(g.shape) && (s.tooLarge(tmpl, f.shape) || !s.tooLarge(tmpl, g.shape))
		})
		if !beaten {
			kept = append(kept, f)
		}
	}
	return kept
}

// cellsOf returns the cells that an item may use: its requirements, its pins, and no exotic machine where an ordinary one
// would do.
func (k *packing) cellsOf(i int) pack.Set {
	s := k.s
	it := &k.items[i]
	ordinary, exotic := pack.NewSet(len(k.cells)), pack.NewSet(len(k.cells))
	found := false
	need := s.p.Classes[it.class].Need
	readings := k.readings(it)
	at, ok := -1, false
	var mask bits.Set
	for c := range k.cells {
		cell := &k.cells[c]
		if cell.tmpl != at {
			at, ok = cell.tmpl, k.allows(it, cell.tmpl)
			mask = k.offersOf(it, cell.tmpl)
		}
		if !ok || !mask.Meets(cell.offers) || !need.Fits(s.p.Templates[at].Room[cell.shape]) || !k.inDomains(it, cell) || !k.suits(it, readings, cell) {
			continue
		}
		if !k.loose && s.p.Templates[at].Catalog.Exotic.Has(cell.shape) {
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

// suits reports whether some reading of an item allows the cell's shape.
func (k *packing) suits(it *item, readings []*Variant, cell *packCell) bool {
	for _, v := range readings {
		m := &k.s.p.Labels.OnTemplate[v.Reqs][cell.tmpl]
		if (m.Shapes == nil || m.Shapes.Has(cell.shape)) && k.reads(it, v, cell.tmpl) {
			return true
		}
	}
	return false
}

func (k *packing) inDomains(it *item, cell *packCell) bool {
	for key, d := range it.pins {
		if of := &k.s.p.Keys[key].Tmpl[cell.tmpl]; of.Shape != nil && d >= 0 && of.Shape[cell.shape] != d {
			return false
		}
	}
	return true
}
