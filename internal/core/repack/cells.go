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

// makeCells lists what nodes can be bought as, and which items may be on which.
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

// findKinds sorts items into kinds: items of one kind ask the same of templates and offers, whatever room they need.
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

// kindKey identifies the kind of an item.
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

// likeAnother reports whether the twin of a template sells the same machines to the same items, and as large ones.
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

// readings returns the variants that count for an item: the variant as which it was placed, or for a bound every one of the
// same level.
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

// reads reports whether a template suits one reading of an item.
func (q *question) reads(it *item, v *problem.Variant, t problem.TemplateID) bool {
	if tier := q.p.Templates[t].Tier; tier != it.tier && !(q.loose && (q.limitedTo(it.tier) || tier < it.tier)) {
		return false
	}
	return q.p.Labels.TolTmpl[v.Tol].Has(int(t)) && q.match(v, t).OK
}

// limitedTo reports whether some pool of a tier or of a heavier one has limits, so that pods may go to lighter ones.
func (q *question) limitedTo(tier int) bool {
	return slices.ContainsFunc(q.p.Templates, func(t problem.Template) bool { return t.Tier <= tier && q.limited(&t) })
}

// limited reports whether the pool of a template has limits.
func (q *question) limited(t *problem.Template) bool { return q.p.Pools[t.Pool].Limit.Limited }

// A want is what one reading of items leaves of a template: their node is one of these shapes, bought by one of these offers.
type want struct {
	shapes, offers bits.Set
	pins           []int32 // by topology key the domain that was chosen for it; nil where none was
}

// within reports whether an item that wants v may be bought as what w is bought as.
func (w *want) within(v *want) bool { return w.shapes.Within(v.shapes) && w.offers.Within(v.offers) }

func (w *want) equal(v *want) bool { return w.shapes.Equal(v.shapes) && w.offers.Equal(v.offers) }

// both is what two wants leave together.
func (w *want) both(v *want) (want, bool) {
	out := want{shapes: w.shapes.Clone(), offers: w.offers.Clone()}
	out.shapes.And(v.shapes)
	out.offers.And(v.offers)
	return out, out.shapes.Any() && out.offers.Any()
}

// wantsOf returns what the readings of an item leave of a template.
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

// tiedKeys returns the topology keys other than the host whose domains the rules of an item's pods are about: a plan may tie the node
// of such a pod to any of them.
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

// narrowed returns what a want leaves in each domain to which a plan may tie the node of an item, where a launch in that domain may cost
// less than one that chooses among all: a spot list costs the mean of its offers, and that of the cheapest zone is below the mean of all.
func (q *question) narrowed(it *item, t problem.TemplateID, w want) []want {
	var out []want
	from := []want{w}
	for _, k := range tiedKeys(q.p, it) {
		of := &q.p.Keys[k].Tmpl[t]
		if of.Kind != problem.ByChoice {
			continue
		}
		for _, wide := range from {
			for d := range q.p.Keys[k].Values {
				x := want{shapes: wide.shapes.Clone(), offers: wide.offers.Clone()}
				x.pin(of, int32(d))
				if x.offers.Any() && q.sellsCheaper(t, &x, &w) {
					out = append(out, x)
				}
			}
		}
		from = append(from, out...)
	}
	return out
}

// sellsCheaper reports whether a launch by some of the offers of wide may cost less than launches by all of them for the same pods.
func (q *question) sellsCheaper(t problem.TemplateID, some, wide *want) bool {
	all, _ := q.listsOf(t, wide)
	few, _ := q.listsOf(t, some)
	return slices.ContainsFunc(few, func(l shape.List) bool {
		return !slices.ContainsFunc(all, func(x shape.List) bool { return x.Cost <= l.Cost && l.Room.Fits(x.Room) })
	})
}

// split returns what a want leaves in each domain that the node of an item may be in, unless it costs the same in
// all of them: then an item that places the item chooses.
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
		alike = alike && out[d].shapes.Equal(w.shapes) && slices.Equal(q.at.Prices(t, out[d].offers), q.at.Prices(t, w.offers)) &&
			!(q.loose && q.sellsCheaper(t, &out[d], &w))
	}
	if alike {
		return []want{w}
	}
	return out
}

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

// bought returns the offers of a mask. Whatever else is chosen is bought in the same way.
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

// pin narrows a want to one domain of a topology key.
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

// mostWants is how many combinations of what items want of a template are distinguished.
const mostWants = 64

// findWants lists what the items want of a template, by kind, and what any of them leave together: nodes are shared. It returns false
// if there are too many combinations; then not all are among them.
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

// byReservation takes reserved offers out of wants, and, for a bound, adds each of them by itself.
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

// addCells lists what nodes of a template can be bought as.
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
		if q.limited(tmpl) && !q.loose {
			q.addShapes(t, &all[i])
		}
		q.openCells(from, byKind, func(_ *cell, w *want) bool { return all[i].within(w) })
	}
}

// openCells says which kinds may use the cells from one on.
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

// addLists adds a cell for each list that a launch of what is wanted may send.
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

// addShapes adds a cell for each shape. Limits count what shapes have, and not what is asked of it, so that a small machine may be the
// better one though a larger one costs less.
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

// addFloors adds a cell for each shape at the lowest price at which it is sold, whichever offer would be preferred:
// no plan gets it for less.
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

// addCell adds what a node can be bought as.
func (q *question) addCell(c cell, vcpu int64, as pack.Cell) {
	for r := range as.Room {
		as.Room[r] = max(as.Room[r], 0)
	}
	as.Over = q.at.TooLarge(c.tmpl, vcpu)
	q.cells = append(q.cells, c)
	q.problem.Cells = append(q.problem.Cells, as)
}

// roomsOf is what every shape has, and roomOf what one has: attach limits are further dimensions where volumes are
// counted, and so are devices.
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

// fillOf describes the items to the function that lists what they can be bought as.
func (q *question) fillOf() shape.Fill {
	fill := shape.Fill{Axes: []int{quantity.CPU, quantity.Memory}, Least: q.at.Least()}
	for r := range q.p.Resources {
		if r > quantity.Memory && r != quantity.Pods && q.asks(r) {
			fill.Axes = append(fill.Axes, r)
		}
	}
	first := q.p.Resources + q.p.Drivers
	for s := range q.gear.sets {
		fill.Axes = append(fill.Axes, first+s)
	}
	// some need nothing of what follows
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

// listsOf returns the lists that launches of what is wanted may send, and whether these are all. It remembers them: kinds that want the
// same ask for them again.
func (q *question) listsOf(t problem.TemplateID, w *want) ([]shape.List, bool) {
	key := string(identity.Numbers(identity.Numbers(identity.Number(nil, int64(t)), w.shapes), w.offers))
	known, ok := q.lists[key]
	if !ok {
		known.lists, known.complete = q.findLists(t, w)
		q.lists[key] = known
	}
	return known.lists, known.complete
}

func (q *question) findLists(t problem.TemplateID, w *want) (lists []shape.List, complete bool) {
	tmpl := &q.p.Templates[t]
	fill := q.fillOf()
	ruledOut := q.loose && q.limited(tmpl) // by limits, shapes may be
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
	complete = complete && !brings(q.p, q.items)
	if ruledOut || q.loose && !complete {
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

// asks reports whether any item asks for a resource.
func (q *question) asks(r int) bool {
	return slices.ContainsFunc(q.items, func(it item) bool { return q.p.Classes[it.class].Need[r] > 0 })
}

// brings reports whether any item brings a volume.
func brings(p *problem.Problem, items []item) bool {
	return slices.ContainsFunc(items, func(it item) bool { return len(p.Classes[it.class].Volumes) > 0 })
}

// cheapestOf returns the lowest price at which a shape is sold under the offers, whichever offer would be preferred.
func cheapestOf(tmpl *problem.Template, sh int, offers bits.Set) int64 {
	best := int64(0)
	for o := range tmpl.Catalog.Sold[sh].All() {
		if p := max(tmpl.Catalog.Price[sh][o], 1); offers.Has(o) && (best == 0 || p < best) {
			best = p
		}
	}
	return best
}

// openToItems says which cells items may use. No exotic machine is opened where an ordinary one would do; where a
// pod has to, others may ride along, because its cores and its memory are paid for anyway, unless it is smaller
// than what they need elsewhere: then they would seem to need no large machine. The packer is not told who has to
// be on such a machine, since GPUs are not bought for the cores that come with them; replay looks.
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

// leastOver is how many steps too large the smallest of some cells is.
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
