package repack

import (
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// makeCells writes the needs and counts of the items, the cells, and which items may be on which cell.
func (q *question) makeCells() {
	tiers := map[int]bool{}
	for i := range q.items {
		tiers[q.items[i].tier] = true
		q.problem.Classes[i].Need = q.needOf(q.items[i].class)
		q.problem.Classes[i].Count = q.items[i].count
	}
	q.findKinds()
	q.exact = q.proves
	var seen []problem.TemplateID
	for i := range q.p.Templates {
		t, tmpl := problem.TemplateID(i), &q.p.Templates[i]
		if !q.loose && (!tiers[tmpl.Tier] || len(tmpl.Min) > 0) || q.likeAnother(t, seen) {
			continue
		}
		seen = append(seen, t)
		q.addCells(t)
	}
	q.openToItems()
}

// findKinds sorts items into kinds: items of one kind ask the same of templates and offers, and may need different room.
func (q *question) findKinds() {
	known := map[string]int{}
	var key []byte
	q.kindOf = make([]int, len(q.items))
	for i := range q.items {
		key = q.kindKey(key[:0], &q.items[i])
		at, ok := known[string(key)]
		if !ok {
			at = len(q.kinds)
			known[string(key)] = at
			q.kinds = append(q.kinds, i)
		}
		q.kindOf[i] = at
	}
}

// kindKey appends a key that is equal for items of one kind.
func (q *question) kindKey(key []byte, it *item) []byte {
	key = identity.Number(identity.Number(key, int64(it.tier)), int64(it.over))
	key = identity.Numbers(key, it.pins)
	readings := q.readings(it)
	key = identity.Count(key, len(readings))
	for _, v := range readings {
		key = identity.Number(identity.Number(key, int64(v.Reqs)), int64(v.Tol))
	}
	if q.loose {
		for _, k := range tiedKeys(q.p, it) {
			key = identity.Number(key, int64(k))
		}
	}
	return key
}

// likeAnother reports whether the template's twin, which has cells already (seen), sells the same machines to the same items, under the
// same size policy. Then t needs no cells of its own.
func (q *question) likeAnother(t problem.TemplateID, seen []problem.TemplateID) bool {
	u := q.at.Twin(t)
	if u < 0 || !slices.Contains(seen, u) {
		return false
	}
	if slices.ContainsFunc(q.p.Templates[t].Catalog.VCPU, func(n int64) bool { return q.at.TooLarge(t, n) != q.at.TooLarge(u, n) }) {
		return false
	}
	for _, i := range q.kinds {
		it := &q.items[i]
		if !slices.EqualFunc(q.wantsOf(it, t), q.wantsOf(it, u), func(a, b want) bool { return a.equal(&b) }) {
			return false
		}
	}
	return true
}

// readings returns the variants by which an item may be placed: the variant by which it was placed, or, for a loose question, all variants
// of the same level.
func (q *question) readings(it *item) []*problem.Variant {
	all := q.p.Classes[it.class].Variants
	if !q.loose {
		return []*problem.Variant{&all[it.variant]}
	}
	var out []*problem.Variant
	for i := range all {
		if all[i].Level == all[it.variant].Level {
			out = append(out, &all[i])
		}
	}
	return out
}

// reads reports whether a node of a template may hold an item by one of its readings. A template of another tier may only in a loose
// question: if it is heavier than the item's tier, or if pools of that tier or of heavier ones have limits.
func (q *question) reads(it *item, v *problem.Variant, t problem.TemplateID) bool {
	if tier := q.p.Templates[t].Tier; tier != it.tier && !(q.loose && (q.limitedTo(it.tier) || tier < it.tier)) {
		return false
	}
	return q.p.Labels.TolTmpl[v.Tol].Has(int(t)) && q.match(v, t).OK
}

// limitedTo reports whether some pool of a tier, or of a tier that is tried before it, has limits, so that pods may go to later ones.
func (q *question) limitedTo(tier int) bool {
	return slices.ContainsFunc(q.p.Templates, func(t problem.Template) bool { return t.Tier <= tier && limited(q.p, &t) })
}

// limited reports whether the pool of a template has limits.
func limited(p *problem.Problem, t *problem.Template) bool { return p.Pools[t.Pool].Limit.Limited }

// A want is what one reading of items leaves of a template: their node is one of these shapes, bought by one of these offers.
type want struct {
	shapes, offers bits.Set
	pins           []int32 // by topology key: the domain that split chose, negative for any; nil if it chose none
}

// within reports whether w allows only what v allows. Then an item that wants v may be on a node that is bought as w.
func (w *want) within(v *want) bool { return w.shapes.Within(v.shapes) && w.offers.Within(v.offers) }

// equal reports whether two wants allow the same shapes and offers.
func (w *want) equal(v *want) bool { return w.shapes.Equal(v.shapes) && w.offers.Equal(v.offers) }

// both returns what two wants allow together, and false if that is nothing.
func (w *want) both(v *want) (want, bool) {
	out := want{shapes: w.shapes.Clone(), offers: w.offers.Clone()}
	out.shapes.And(v.shapes)
	out.offers.And(v.offers)
	return out, out.shapes.Any() && out.offers.Any()
}

// wantsOf returns what the readings of an item leave of a template, each different want once: by domain where prices differ (split), and
// for a loose question also what is left in a domain to which a plan may tie the node (narrowed).
func (q *question) wantsOf(it *item, t problem.TemplateID) []want {
	var out []want
	for _, v := range q.readings(it) {
		if !q.reads(it, v, t) {
			continue
		}
		for _, w := range q.split(it, t, q.wantOf(it, v, t)) {
			also := []want{w}
			if q.loose {
				also = append(also, q.narrowed(it, t, w)...)
			}
			for _, w := range also {
				if w.shapes.Any() && w.offers.Any() && !slices.ContainsFunc(out, func(x want) bool { return x.equal(&w) }) {
					out = append(out, w)
				}
			}
		}
	}
	return out
}

// tiedKeys returns the topology keys, other than the host, to whose domains a plan may tie the node of an item: groups that count its pods
// or that they own in some variant are about these keys. Keys for which the item has a pin are left out, and the key over which it is
// spread (split sees to that).
func tiedKeys(p *problem.Problem, it *item) []int {
	c := &p.Classes[it.class]
	groups := slices.Clone(c.Groups)
	for i := range c.Variants {
		groups = append(groups, c.Variants[i].Owns...)
	}
	var out []int
	for _, g := range groups {
		if key := p.Groups[g].Key; key != spread.Host && !slices.Contains(out, key) && it.over != key+1 &&
			(it.pins == nil || it.pins[key] < 0) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// narrowed returns further wants, without w: those that pin w to a domain of one or more tied keys that the template leaves open, if a
// launch in that domain may cost less than a launch that chooses among all. That happens because a spot list costs the mean of its
// offers: the list of the cheapest zone costs less than that of all zones.
func (q *question) narrowed(it *item, t problem.TemplateID, w want) []want {
	var out []want
	from := []want{w}
	all, _ := q.listsOf(t, &w)
	for _, k := range tiedKeys(q.p, it) {
		of := &q.p.Keys[k].Tmpl[t]
		if of.Kind != problem.ByChoice {
			continue
		}
		for _, wide := range from {
			for d := range q.p.Keys[k].Values {
				x := want{shapes: wide.shapes.Clone(), offers: wide.offers.Clone()}
				x.pin(of, int32(d))
				if !x.offers.Any() {
					continue
				}
				if few, _ := q.listsOf(t, &x); anyCheaper(few, all) {
					out = append(out, x)
				}
			}
		}
		from = append(from, out...)
	}
	return out
}

// anyCheaper reports whether some list of few costs less than each list of all that has as much room.
func anyCheaper(few, all []shape.List) bool {
	return slices.ContainsFunc(few, func(l shape.List) bool {
		return !slices.ContainsFunc(all, func(x shape.List) bool { return x.Cost <= l.Cost && l.Room.Fits(x.Room) })
	})
}

// split returns what a want leaves in each domain of the key over which the item is spread (item.over); domains without offers are kept,
// empty. It returns w alone if the item is not spread, or if every domain has the shapes and prices of w and, for a loose question, no
// cheaper list: then the domain can be chosen later.
func (q *question) split(it *item, t problem.TemplateID, w want) []want {
	if it.over == 0 {
		return []want{w}
	}
	key, alike := &q.p.Keys[it.over-1], true
	out := make([]want, len(key.Values))
	for d := range out {
		pins := slices.Repeat([]int32{-1}, len(q.p.Keys))
		pins[it.over-1] = int32(d)
		out[d] = want{w.shapes.Clone(), w.offers.Clone(), pins}
		out[d].pin(&key.Tmpl[t], int32(d))
		alike = alike && out[d].shapes.Equal(w.shapes) && slices.Equal(q.at.Prices(t, out[d].offers), q.at.Prices(t, w.offers))
		if alike && q.loose { // the prices of shapes do not tell of all lists
			all, _ := q.listsOf(t, &w)
			few, _ := q.listsOf(t, &out[d])
			alike = !anyCheaper(few, all)
		}
	}
	if alike {
		return []want{w}
	}
	return out
}

// wantOf returns what one reading of an item leaves of a template, in the domains of its pins.
func (q *question) wantOf(it *item, v *problem.Variant, t problem.TemplateID) want {
	tmpl := &q.p.Templates[t]
	m := q.match(v, t)
	w := want{shapes: tmpl.Shapes.Clone(), offers: tmpl.Mask.Clone()}
	w.shapes.Keep(m.Shapes)
	w.offers.Keep(m.Mask)
	for key, d := range it.pins {
		if d >= 0 {
			w.pin(&q.p.Keys[key].Tmpl[t], d)
		}
	}
	w.offers = bought(tmpl, w.offers)
	return w
}

// bought returns the offers of a template's mask, without its choices of labels. Labels do not change what is bought.
func bought(t *problem.Template, mask bits.Set) bits.Set {
	if len(t.Segments) == 1 {
		return mask
	}
	out := mask.Clone()
	for o := out.Next(len(t.Catalog.Offers)); o >= 0; o = out.Next(o + 1) {
		out.Remove(o)
	}
	return out
}

// pin narrows a want to domain d of a topology key. If the template has no node there, no offers are left.
func (w *want) pin(of *problem.KeyOf, d int32) {
	switch {
	case of.Kind == problem.ByChoice && of.Choice[d] != nil:
		w.offers.And(of.Choice[d])
	case of.Kind == problem.ByShape:
		w.shapes.Only(func(sh int) bool { return of.Shape[sh] == d })
	case of.Kind != problem.Fixed || of.Domain != d:
		w.offers.Clear()
	}
}

// mostWants is the most combinations of wants of one template.
const mostWants = 64

// findWants returns what the items want of a template, by kind, and all different wants with their combinations: items with different wants
// may share a node, which is then what both allow. complete is false if there are more than mostWants; then some are missing.
func (q *question) findWants(t problem.TemplateID) (all []want, byKind [][]want, complete bool) {
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
	byKind = make([][]want, len(q.kinds))
	for i, it := range q.kinds {
		byKind[i] = q.byReservation(q.wantsOf(&q.items[it], t), t)
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

// byReservation takes reserved offers out of wants. For a loose question it adds a want with each reserved offer alone.
func (q *question) byReservation(wants []want, t problem.TemplateID) []want {
	cat := q.p.Templates[t].Catalog
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
			if q.loose {
				out = append(out, want{w.shapes, bits.Of(len(cat.Offers), o), w.pins})
			}
		}
		if w.offers.Any() {
			out = append(out, w)
		}
	}
	return out
}

// addCells adds the cells of a template, and which kinds of items may be on each. It sets q.exact to false if some may be missing.
func (q *question) addCells(t problem.TemplateID) {
	tmpl := &q.p.Templates[t]
	all, byKind, complete := q.findWants(t)
	q.exact = q.exact && complete
	if q.loose && (q.floors || len(tmpl.Min) > 0 || !complete) {
		q.addFloors(t, byKind)
		return
	}
	for i := range all {
		from := len(q.cells)
		q.addLists(t, &all[i])
		discount(q).addCells(t, &all[i])
		if limited(q.p, tmpl) && !q.loose {
			q.addShapes(t, &all[i])
		}
		q.openCells(from, byKind, func(_ *cell, w *want) bool { return all[i].within(w) })
	}
}

// openCells sets which kinds may use the cells from an index on: those with a want that suits the cell.
func (q *question) openCells(from int, byKind [][]want, suits func(*cell, *want) bool) {
	for c := from; c < len(q.cells); c++ {
		open := bits.Make(len(q.kinds))
		for kind := range byKind {
			if slices.ContainsFunc(byKind[kind], func(w want) bool { return suits(&q.cells[c], &w) }) {
				open.Add(kind)
			}
		}
		q.cells[c].kinds = open
	}
}

// addLists adds a cell for each list that a launch of a want may send. It sets q.exact to false if some lists may be missing.
func (q *question) addLists(t problem.TemplateID, w *want) {
	lists, complete := q.listsOf(t, w)
	q.exact = q.exact && complete
	for i := range lists {
		l := &lists[i]
		own := q.p.Settings.Terms.Own(l.Floor)
		q.addCell(cell{tmpl: t, shape: l.First.Shape, pins: w.pins}, l.VCPU, pack.Cell{Room: slices.Clone(l.Room),
			Price: l.Cost + own, Own: own})
	}
}

// addShapes adds a cell for each shape, for a pool with limits. A limit counts the size of the machine, so a small machine may be the
// better choice even if a larger one is cheaper.
func (q *question) addShapes(t problem.TemplateID, w *want) {
	tmpl := &q.p.Templates[t]
	prices := q.at.Prices(t, w.offers)
	for sh := range w.shapes.All() {
		if prices[sh] > 0 {
			q.addCell(cell{tmpl: t, shape: sh, pins: w.pins}, tmpl.Catalog.VCPU[sh],
				pack.Cell{Room: q.roomOf(tmpl, sh), Price: prices[sh], Own: q.p.Settings.Terms.Own(prices[sh])})
		}
	}
}

// addFloors adds a cell for each shape at the lowest price of all its offers, so that no plan buys it for less.
func (q *question) addFloors(t problem.TemplateID, byKind [][]want) {
	tmpl := &q.p.Templates[t]
	from := len(q.cells)
	for sh := range tmpl.Shapes.All() {
		if price := cheapestOf(tmpl, sh, tmpl.Mask); price > 0 {
			own := q.p.Settings.Terms.Own(price)
			q.addCell(cell{tmpl: t, shape: sh}, tmpl.Catalog.VCPU[sh], pack.Cell{Room: q.roomOf(tmpl, sh), Price: price + own, Own: own})
		}
	}
	discount(q).addCells(t, &want{shapes: tmpl.Shapes, offers: bought(tmpl, tmpl.Mask)})
	q.openCells(from, byKind, func(c *cell, w *want) bool {
		return w.shapes.Has(c.shape) && tmpl.ShapeMask[c.shape].Meets(w.offers)
	})
}

// addCell adds a cell, and as as the packer's cell for it. It sets as.Over by the size policy, and negative room to 0.
func (q *question) addCell(c cell, vcpu int64, as pack.Cell) {
	for r := range as.Room {
		as.Room[r] = max(as.Room[r], 0)
	}
	as.Over = q.at.TooLarge(c.tmpl, vcpu)
	q.cells = append(q.cells, c)
	q.problem.Cells = append(q.problem.Cells, as)
}

// roomsOf returns the room of every shape of a template, with the further dimensions of roomOf.
func (q *question) roomsOf(t *problem.Template) []quantity.Vec {
	if q.p.Drivers+len(q.gear.sets) == 0 {
		return t.Room
	}
	rooms := make([]quantity.Vec, len(t.Room))
	for sh := range rooms {
		rooms[sh] = q.roomOf(t, sh)
	}
	return rooms
}

// roomOf returns the room of a shape: resources, then how many volumes of each driver it can attach, then devices (gear).
func (q *question) roomOf(t *problem.Template, shape int) quantity.Vec {
	out := append(make(quantity.Vec, 0, len(t.Room[shape])+q.p.Drivers+len(q.gear.sets)), t.Room[shape]...)
	for d := range q.p.Drivers {
		most := quantity.Max
		if limit := t.Attachable(d, shape); limit >= 0 {
			most = int64(limit)
		}
		out = append(out, most)
	}
	return q.gear.room(out, t, shape)
}

// fillOf describes the items for shape.Market.Lists, which lists what they can be bought as: the dimensions that count, the least need in
// each, and the number of pods.
func (q *question) fillOf() shape.Fill {
	fill := shape.Fill{Axes: []int{quantity.CPU, quantity.Memory}, Least: q.at.Least()}
	for r := range q.p.Resources {
		if r > quantity.Memory && r != quantity.Pods && q.needs(r) {
			fill.Axes = append(fill.Axes, r)
		}
	}
	first := q.p.Resources + q.p.Drivers
	for s := range q.gear.sets {
		fill.Axes = append(fill.Axes, first+s)
	}
	// Some item needs none of the further dimensions, so the least need of these is 0.
	fill.Least = append(slices.Clone(fill.Least), make(quantity.Vec, first+len(q.gear.sets)-len(fill.Least))...)
	for i := range q.items {
		fill.Pods += int64(q.items[i].count)
	}
	return fill
}

// A listed holds the lists that launches may send, and whether these are all.
type listed struct {
	lists    []shape.List
	complete bool
}

// listsOf returns the lists that launches of a want may send, and whether these are all. It remembers them: several kinds ask for the same.
func (q *question) listsOf(t problem.TemplateID, w *want) ([]shape.List, bool) {
	key := string(identity.Numbers(identity.Numbers(identity.Number(nil, int64(t)), w.shapes), w.offers))
	known, ok := q.lists[key]
	if !ok {
		known.lists, known.complete = q.findLists(t, w)
		q.lists[key] = known
	}
	return known.lists, known.complete
}

// findLists makes the lists of listsOf. If a loose question may miss some, it relaxes the lists so that no launch is cheaper
// (shape.Market.Relax).
//
// Lists are first made without the number of pods as an axis. If that number may fill a machine (crowded) and a bound is wanted, they are
// made again with it, because lists that matter would be missing.
func (q *question) findLists(t problem.TemplateID, w *want) (lists []shape.List, complete bool) {
	tmpl := &q.p.Templates[t]
	fill := q.fillOf()
	ruledOut := q.loose && limited(q.p, tmpl) // limits may rule shapes out of a list
	if q.p.Drivers == 0 && !ruledOut && len(tmpl.Catalog.Left) == 0 && len(tmpl.Segments) == 1 &&
		len(fill.Axes) == 2 && w.shapes.Equal(tmpl.Shapes) {
		lists, complete = q.at.Lists(t, w.offers)
		if complete && (!q.proves || !crowded(lists, &fill)) {
			return lists, true
		}
	}
	market := tmpl.Catalog.Market(w.shapes, w.offers, q.p.Settings.Terms.Band, q.roomsOf(tmpl))
	lists, complete = market.Lists(fill)
	if q.proves && crowded(lists, &fill) {
		fill.Axes = append(fill.Axes, quantity.Pods)
		lists, complete = market.Lists(fill)
	}
	complete = complete && !bringVolumes(q.p, q.items)
	if ruledOut || q.loose && !complete {
		for i := range lists {
			market.Relax(&lists[i])
		}
	}
	return lists, complete
}

// crowded reports whether some machine of the lists may run out of pod slots before it runs out of a resource in f.Axes.
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

// needs reports whether any item needs resource r.
func (q *question) needs(r int) bool {
	return slices.ContainsFunc(q.items, func(it item) bool { return q.p.Classes[it.class].Need[r] > 0 })
}

// bringVolumes reports whether any item brings a volume.
func bringVolumes(p *problem.Problem, items []item) bool {
	return slices.ContainsFunc(items, func(it item) bool { return len(p.Classes[it.class].Volumes) > 0 })
}

// cheapestOf returns the lowest price at which a shape is sold by some offers, 0 if it is not sold.
func cheapestOf(tmpl *problem.Template, sh int, offers bits.Set) int64 {
	best := int64(0)
	for o := range tmpl.Catalog.Sold[sh].All() {
		if p := max(tmpl.Catalog.Price[sh][o], 1); offers.Has(o) && (best == 0 || p < best) {
			best = p
		}
	}
	return best
}

// openToItems sets which cells each item may use. An item uses exotic machines only if it fits no ordinary one. Other items may use the
// exotic cells that such an item needs, because their cores and memory are paid for anyway. That is not so if the exotic cell is smaller
// (Over) than the smallest ordinary one of the item, because then the item would seem to need no large machine.
//
// The packer does not know that an exotic machine must hold an item that needs it; replay checks that (wastes).
func (q *question) openToItems() {
	q.exotic = bits.Make(len(q.items))
	needed := bits.Make(len(q.cells))
	rides := make([]bits.Set, len(q.items))
	for i := range q.items {
		ordinary, exotic := q.cellsOf(i)
		if !ordinary.Any() {
			ordinary = exotic
			q.exotic.Add(i)
			needed.Or(exotic)
		}
		q.problem.Classes[i].Cells, rides[i] = ordinary, exotic
	}
	if !needed.Any() {
		return
	}
	for i := range q.items {
		cells := q.problem.Classes[i].Cells
		least := q.leastOver(cells)
		for c := range rides[i].All() {
			switch {
			case !needed.Has(c):
			case q.problem.Cells[c].Over >= least:
				cells.Add(c)
			default:
				q.exact = false
			}
		}
	}
}

// leastOver returns how many steps too large the smallest of some cells is.
func (q *question) leastOver(cells bits.Set) int {
	least := math.MaxInt
	for c := range cells.All() {
		least = min(least, q.problem.Cells[c].Over)
	}
	return least
}

// cellsOf returns the cells that an item may use by its requirements and its pins, ordinary and exotic ones. For a bound all are ordinary.
func (q *question) cellsOf(i int) (ordinary, exotic bits.Set) {
	ordinary, exotic = bits.Make(len(q.cells)), bits.Make(len(q.cells))
	need := quantity.Vec(q.problem.Classes[i].Need)
	for c := range q.cells {
		cell := &q.cells[c]
		if !cell.kinds.Has(q.kindOf[i]) || !need.Fits(q.problem.Cells[c].Room) {
			continue
		}
		if !q.loose && q.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) {
			exotic.Add(c)
			continue
		}
		ordinary.Add(c)
	}
	return ordinary, exotic
}
