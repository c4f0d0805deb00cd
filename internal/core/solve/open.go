package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A target is what a new node could be: a template, a shape, and the choices that are left.
type target struct {
	tmpl, shape int
	price       int64
	value       int64        // of the demand that it could hold
	low         []int        // minValues that had to be lowered; nil for nearly all
	reserve     quantity.Vec // what is taken from the pool's limit; nil: the shape's capacity
}

// A candidate list is the shapes of one template that could hold one pod of a class, as one variant.
type candidates struct {
	known  bool
	shapes []int32
}

// heaviest returns the first tier, from the given one on, whose templates could hold a pod of the class at all, or Tiers.
func (s *state) heaviest(ci, vi, from int) int {
	for t := range s.p.Templates {
		tmpl := &s.p.Templates[t]
		if tmpl.Tier >= from && len(s.candidatesOf(ci, vi, t)) > 0 && !s.exhausted(ci, vi, t) {
			return tmpl.Tier
		}
	}
	return s.p.Tiers
}

// exhausted reports whether the pool's limits allow none of the candidates any more.
func (s *state) exhausted(ci, vi, t int) bool {
	tmpl := &s.p.Templates[t]
	limit := &s.limits[tmpl.Pool]
	if !limit.Limited {
		return false
	}
	for _, sh := range s.candidatesOf(ci, vi, t) {
		if limit.Exceeded(tmpl.Catalog.Capacity[sh]) == -2 {
			return false
		}
	}
	return true
}

// candidatesOf returns the shapes of template t that can hold one pod of the visited class.
func (s *state) candidatesOf(ci, vi, t int) []int32 {
	v := &s.visit
	at := &v.cands[vi*len(s.p.Templates)+t]
	if !at.known {
		at.known = true
		at.shapes = s.findCandidates(&s.p.Classes[ci], &s.p.Classes[ci].Variants[vi], t)
	}
	return at.shapes
}

func (s *state) findCandidates(c *Class, v *Variant, t int) []int32 {
	tmpl := &s.p.Templates[t]
	if c.TooMuch != "" || !s.p.Labels.TolTmpl[v.Tol].Has(t) || s.tooLargeFor(c.Need, t) {
		return nil
	}
	m := &s.p.Labels.OnTemplate[v.Reqs][t]
	if !m.OK {
		return nil
	}
	mask := bits.Set(s.masks[0][:len(tmpl.Mask)])
	copy(mask, tmpl.Mask)
	if m.Mask != nil {
		mask.And(m.Mask)
	}
	prices := s.pricesOf(t, s.wide(mask))
	out := s.visit.arena[len(s.visit.arena):]
	ordinary := false
	for sh := range tmpl.Shapes.All() {
		if m.Shapes != nil && !m.Shapes.Has(sh) || prices[sh] == 0 || !c.Need.Fits(tmpl.Room[sh]) || !s.fitsHardware(c, tmpl, sh) {
			continue
		}
		out = append(out, int32(sh))
		ordinary = ordinary || !tmpl.Catalog.Exotic.Has(sh)
	}
	out = s.preferOrdinary(tmpl, out, ordinary)
	s.visit.arena = s.visit.arena[:len(s.visit.arena)+len(out)]
	if cap(out) > 0 && cap(s.visit.arena) < len(s.visit.arena)+len(tmpl.Room) {
		s.visit.arena = make([]int32, 0, 4*cap(s.visit.arena)+4*len(tmpl.Room))
	}
	return out
}

// preferOrdinary drops exotic machines where an ordinary one would do, as launch does, and large ones by the size policy.
func (s *state) preferOrdinary(tmpl *Template, shapes []int32, ordinary bool) []int32 {
	if ordinary {
		kept := shapes[:0]
		for _, sh := range shapes {
			if !tmpl.Catalog.Exotic.Has(int(sh)) {
				kept = append(kept, sh)
			}
		}
		shapes = kept
	}
	small := false
	for _, sh := range shapes {
		small = small || !s.tooLarge(tmpl, int(sh))
	}
	if !small {
		return shapes
	}
	kept := shapes[:0]
	for _, sh := range shapes {
		if !s.tooLarge(tmpl, int(sh)) {
			kept = append(kept, sh)
		}
	}
	return kept
}

// fitsHardware checks ports of daemons and attach limits of a shape.
func (s *state) fitsHardware(c *Class, tmpl *Template, sh int) bool {
	if len(c.Ports) > 0 && len(tmpl.Daemons) > 0 {
		for _, p := range tmpl.Daemons[tmpl.DaemonOf[sh]].Ports {
			if c.Conflict.Has(p) {
				return false
			}
		}
	}
	for i, v := range c.Volumes {
		if v.Driver >= len(tmpl.Drivers) || tmpl.Drivers[v.Driver] == nil {
			continue
		}
		n := int32(0)
		for j := range c.Volumes[:i+1] {
			if c.Volumes[j].Driver == v.Driver {
				n++
			}
		}
		if limit := tmpl.Drivers[v.Driver][sh]; limit >= 0 && n > limit {
			return false
		}
	}
	return true
}

// open opens a new node for one pod of class ci as variant vi in the given tier and places the pod there. It returns
// the bin, or the reason why there is none.
func (s *state) open(ci, vi, tier int) (int, reason.Code) {
	c := &s.p.Classes[ci]
	t := s.touchesOf(ci, vi)
	if code := s.openHost(t); code != 0 {
		return 0, code
	}
	best, code := s.openFrom(ci, vi, tier, t, 0)
	if code != 0 {
		return 0, code
	}
	bin := s.add(best)
	s.narrowNew(c, &c.Variants[vi], t, bin, best)
	s.commit(ci, vi, bin, 1)
	return bin, 0
}

// openHost asks the host-level groups about a new, empty node.
func (s *state) openHost(t *touches) reason.Code {
	for i, g := range t.host.owned {
		if !s.groups[g].Admits(s.bins, t.host.self[i], nil) {
			return codeOf(s.groups[g].Kind)
		}
	}
	return 0
}

// openFrom settles the domains of the touched keys from the i-th on, in the order of preference, and chooses the best target.
func (s *state) openFrom(ci, vi, tier int, t *touches, i int) (target, reason.Code) {
	if i == len(t.keys) {
		return s.bestTarget(ci, vi, tier, t)
	}
	to := &t.keys[i]
	v := &s.p.Classes[ci].Variants[vi]
	code := reason.Code(codeOfTouch(s, to))
	for _, d := range s.byCount(to, i) {
		if bad := s.admits(to, v, int(d)); bad != 0 {
			code = bad
			continue
		}
		s.choice[to.key] = d
		best, bad := s.openFrom(ci, vi, tier, t, i+1)
		if bad == 0 {
			return best, 0
		}
		code = bad
	}
	if len(to.owned) == 0 { // nothing is asked of the domain: a node without the label will do
		s.choice[to.key] = noDomain
		return s.openFrom(ci, vi, tier, t, i+1)
	}
	return target{}, code
}

func codeOfTouch(s *state, to *touch) reason.Code {
	if len(to.owned) > 0 {
		return codeOf(s.groups[to.owned[0]].Kind)
	}
	return reason.NoOffering
}

// bestTarget returns the target with the most worth per dollar among the templates of a tier, for the domains in s.choice.
func (s *state) bestTarget(ci, vi, tier int, t *touches) (target, reason.Code) {
	best, code := target{tmpl: -1}, reason.Code(reason.NoShape)
	for i := range s.p.Templates {
		if s.p.Templates[i].Tier != tier {
			continue
		}
		if s.likeEarlier(ci, vi, i, t) {
			continue
		}
		cands := s.candidatesOf(ci, vi, i)
		if len(cands) == 0 || !s.domainPossible(i, t) {
			continue
		}
		mask := s.maskFor(ci, vi, i, t)
		if !s.p.Templates[i].open(mask[:len(s.p.Templates[i].Mask)]) {
			code = reason.NoOffering
			continue
		}
		got, bad := s.bestShape(ci, vi, i, t, mask, cands)
		if bad != 0 {
			code = bad
			continue
		}
		if best.tmpl < 0 || better(got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	return best, 0
}

// likeEarlier reports whether an earlier template sells the same machines on the same terms, so that this one cannot be
// better.
func (s *state) likeEarlier(ci, vi, i int, t *touches) bool {
	u := s.twin[i]
	if u < 0 {
		return false
	}
	v := &s.p.Classes[ci].Variants[vi]
	a, b := &s.p.Labels.OnTemplate[v.Reqs][i], &s.p.Labels.OnTemplate[v.Reqs][u]
	if a.OK != b.OK || !a.Shapes.Equal(b.Shapes) || !a.Mask.Equal(b.Mask) || s.p.Labels.TolTmpl[v.Tol].Has(i) != s.p.Labels.TolTmpl[v.Tol].Has(u) {
		return false
	}
	for k := range t.keys {
		x, y := &s.p.Keys[t.keys[k].key].Tmpl[i], &s.p.Keys[t.keys[k].key].Tmpl[u]
		if x.Fixed != y.Fixed || (x.Choice == nil) != (y.Choice == nil) || (x.Shape == nil) != (y.Shape == nil) {
			return false
		}
	}
	return true
}

// findTwins says, for each template, which earlier one sells the same machines for the same prices, −1 for none.
func findTwins(p *Problem) []int {
	out := make([]int, len(p.Templates))
	for i := range p.Templates {
		out[i] = -1
		a := &p.Templates[i]
		for j := range i {
			b := &p.Templates[j]
			if out[j] < 0 && a.Catalog == b.Catalog && a.Tier == b.Tier && len(a.Segments) == 1 && len(b.Segments) == 1 && len(a.Min)+len(b.Min)+len(a.Daemons)+len(b.Daemons) == 0 &&
				!p.Pools[a.Pool].Limit.Limited && !p.Pools[b.Pool].Limit.Limited && a.Shapes.Equal(b.Shapes) && a.Mask.Equal(b.Mask) {
				out[i] = j
				break
			}
		}
	}
	return out
}

// better prefers more worth per dollar, then the lower price.
func better(a, b target) bool {
	if ratioLess(b.value, b.price, a.value, a.price) {
		return true
	}
	return !ratioLess(a.value, a.price, b.value, b.price) && a.price < b.price
}

// domainPossible reports whether template i can be in the chosen domains at all, as far as no shape has a say.
func (s *state) domainPossible(i int, t *touches) bool {
	for k := range t.keys {
		key := t.keys[k].key
		of := &s.p.Keys[key].Tmpl[i]
		switch {
		case of.Choice != nil:
			if d := s.choice[key]; d < 0 || of.Choice[d] == nil {
				return false
			}
		case of.Shape == nil:
			if of.Fixed != s.choice[key] {
				return false
			}
		}
	}
	return true
}

// maskFor returns the choices of template i that the variant and the chosen domains leave, in masks[last].
func (s *state) maskFor(ci, vi, i int, t *touches) bits.Set {
	mask := bits.Set(s.masks[len(s.masks)-1])
	clear(mask)
	copy(mask, s.p.Templates[i].Mask)
	if m := &s.p.Labels.OnTemplate[s.p.Classes[ci].Variants[vi].Reqs][i]; m.Mask != nil {
		mask[:len(m.Mask)].And(m.Mask)
	}
	for k := range t.keys {
		key := t.keys[k].key
		if of := &s.p.Keys[key].Tmpl[i]; of.Choice != nil {
			mask[:len(of.Choice[s.choice[key]])].And(of.Choice[s.choice[key]])
		}
	}
	return mask
}

// bestShape chooses among the candidates of template i.
func (s *state) bestShape(ci, vi, i int, t *touches, mask bits.Set, cands []int32) (target, reason.Code) {
	tmpl := &s.p.Templates[i]
	c := &s.p.Classes[ci]
	prices := s.pricesOf(i, mask)
	best, code := target{tmpl: -1}, reason.Code(reason.NoShape)
	limit := &s.limits[tmpl.Pool]
	for _, sh := range cands {
		price := prices[sh]
		if price == 0 {
			code = reason.NoOffering
			continue
		}
		if !s.shapeInDomains(i, int(sh), t) {
			continue
		}
		if limit.Limited && limit.Exceeded(tmpl.Catalog.Capacity[sh]) != -2 {
			code = reason.Limit
			continue
		}
		got := target{tmpl: i, shape: int(sh), price: price, value: s.valueWithin(tmpl.Room[sh], s.demand)}
		if t.glued { // all of them have to fit on this one node: room first, price second
			got.value = int64(s.gluedFit(ci, tmpl.Room[sh]))<<20 + 1
			if best.tmpl < 0 || got.value > best.value || got.value == best.value && price < best.price {
				best = got
			}
			continue
		}
		if best.tmpl < 0 || better(got, best) {
			best = got
		}
	}
	if best.tmpl < 0 {
		return best, code
	}
	if len(tmpl.Min) > 0 {
		return s.meetMinValues(c, &c.Variants[vi], t, best, mask)
	}
	return best, 0
}

// gluedFit returns how many pods of the class fit into room.
func (s *state) gluedFit(ci int, room quantity.Vec) int {
	return s.p.Classes[ci].Need.Times(room, s.visit.want)
}

func (s *state) shapeInDomains(i, sh int, t *touches) bool {
	for k := range t.keys {
		key := t.keys[k].key
		if of := &s.p.Keys[key].Tmpl[i]; of.Shape != nil && of.Shape[sh] != s.choice[key] {
			return false
		}
	}
	return true
}

// meetMinValues checks minValues for a new node with one pod. Where the settings allow, unmet ones are lowered.
func (s *state) meetMinValues(c *Class, v *Variant, t *touches, best target, mask bits.Set) (target, reason.Code) {
	tmpl := &s.p.Templates[best.tmpl]
	s.fillHolding(best.tmpl, mask, c.Need)
	if m := &s.p.Labels.OnTemplate[v.Reqs][best.tmpl]; m.Shapes != nil {
		s.shapes[:len(m.Shapes)].And(m.Shapes)
	}
	s.cutByChoice(best.tmpl, t)
	if limit := &s.limits[tmpl.Pool]; limit.Limited {
		best.reserve = s.reserveFor(tmpl, limit, best.shape)
		if limit.Exceeded(best.reserve) != -2 {
			return target{tmpl: -1}, reason.Limit
		}
	}
	for k, m := range tmpl.Min {
		if n := tmpl.Catalog.Distinct(m.Key, s.shapes, m.N); n < m.N {
			if !s.p.Settings.MinBestEffort || n == 0 {
				return target{tmpl: -1}, reason.MinValues
			}
			if best.low == nil {
				best.low = make([]int, len(tmpl.Min))
				for j, o := range tmpl.Min {
					best.low[j] = o.N
				}
			}
			best.low[k] = n
		}
	}
	return best, 0
}

// reserveFor cuts s.shapes to the smallest machines that meet minValues within the limit, and returns the largest capacity
// among them: what the claim takes from the limit.
func (s *state) reserveFor(tmpl *Template, limit *limits.Pool, sh int) quantity.Vec {
	var order []int
	for at := range s.shapes.All() {
		if limit.Exceeded(tmpl.Catalog.Capacity[at]) == -2 {
			order = append(order, at)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(tmpl.Catalog.Capacity[a][quantity.CPU], tmpl.Catalog.Capacity[b][quantity.CPU])
	})
	clear(s.shapes)
	s.shapes.Add(sh)
	for _, at := range order {
		if !slices.ContainsFunc(tmpl.Min, func(m MinValues) bool { return tmpl.Catalog.Distinct(m.Key, s.shapes, m.N) < m.N }) {
			break
		}
		s.shapes.Add(at)
	}
	most := make(quantity.Vec, s.p.Resources)
	for at := range s.shapes.All() {
		most.Max(tmpl.Catalog.Capacity[at])
	}
	return most
}

// takenBy returns what a new bin has taken from its pool's limit.
func (s *state) takenBy(i int) quantity.Vec {
	if s.reserve[i] != nil {
		return s.reserve[i]
	}
	return s.p.Templates[s.tmpl[i]].Catalog.Capacity[s.target[i]]
}

// add makes the bin of a target, without pods.
func (s *state) add(g target) int {
	bin := s.bins
	s.bins++
	tmpl := &s.p.Templates[g.tmpl]
	s.room = append(s.room, tmpl.Room[g.shape]...)
	s.tmpl = append(s.tmpl, int32(g.tmpl))
	s.target = append(s.target, int32(g.shape))
	s.held = append(s.held, -1)
	at := len(s.mask)
	s.mask = append(s.mask, make([]uint64, s.width)...)
	copy(s.mask[at:], tmpl.Mask)
	s.puts = append(s.puts, nil)
	s.low = append(s.low, g.low)
	for k := range s.domain {
		s.domain[k] = append(s.domain[k], s.p.Keys[k].Tmpl[g.tmpl].domain(g.shape))
	}
	s.ports.Grow(s.bins)
	if len(tmpl.Daemons) > 0 {
		s.ports.Take(bin, tmpl.Daemons[tmpl.DaemonOf[g.shape]].Ports)
	}
	s.volumes.Open(tmpl.volumes(g.shape, s.p.Drivers), nil)
	s.alive = s.alive.Grow(bin)
	s.alive.Add(bin)
	s.reserve = append(s.reserve, g.reserve)
	s.limits[tmpl.Pool].Take(s.takenBy(bin - len(s.p.Nodes)))
	return bin
}

// domain returns the domain of a new node of a shape, before anything is chosen.
func (k *KeyOf) domain(sh int) int32 {
	switch {
	case k.Choice != nil:
		return openDomain
	case k.Shape != nil:
		return k.Shape[sh]
	default:
		return k.Fixed
	}
}

// narrowNew puts the choices of a bin's first pod into masks[0], where commit takes them from, and holds a reservation if
// the bin is to use one.
func (s *state) narrowNew(c *Class, v *Variant, t *touches, bin int, g target) {
	mask := bits.Set(s.masks[0])
	copy(mask, s.maskOf(bin))
	if m := &s.p.Labels.OnTemplate[v.Reqs][g.tmpl]; m.Mask != nil {
		mask[:len(m.Mask)].And(m.Mask)
	}
	for k := range t.keys {
		key := t.keys[k].key
		if of := &s.p.Keys[key].Tmpl[g.tmpl]; of.Choice != nil {
			mask[:len(of.Choice[s.choice[key]])].And(of.Choice[s.choice[key]])
		}
	}
	s.hold(bin, mask)
}

// hold takes a machine of a reservation for the bin if its cheapest offer is reserved, and narrows mask to it. Otherwise
// reserved offers are taken out of mask: somebody else will need them.
func (s *state) hold(bin int, mask bits.Set) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	cat := tmpl.Catalog
	if len(cat.Left) == 0 {
		return
	}
	_, o := tmpl.offer(int(s.target[i]), mask, s.left)
	if o >= 0 && cat.Offers[o].Kind == shape.Reserved && cat.Offers[o].Reservation >= 0 {
		r := cat.Offers[o].Reservation
		for at := range cat.Offers {
			if at != o {
				mask.Remove(at)
			}
		}
		s.held[i] = int32(r)
		s.left[r]--
		if s.left[r] == 0 {
			s.prices.rows = s.prices.rows[:0]
		}
		return
	}
	for at := range cat.Offers {
		if cat.Offers[at].Kind == shape.Reserved && cat.Offers[at].Reservation >= 0 {
			mask.Remove(at)
		}
	}
}

// grow makes room for one more pod of class ci on a new bin by choosing a larger target, and places it there.
func (s *state) grow(ci, vi, bin int) bool {
	c := &s.p.Classes[ci]
	i := bin - len(s.p.Nodes)
	t, old := int(s.tmpl[i]), int(s.target[i])
	tmpl := &s.p.Templates[t]
	m := &s.p.Labels.OnTemplate[c.Variants[vi].Reqs][t]
	if s.held[i] >= 0 || s.reserve[i] != nil || !m.OK || !s.p.Labels.TolTmpl[c.Variants[vi].Tol].Has(t) {
		return false
	}
	need := s.used(bin)
	need.Add(c.Need)
	s.holding(bin, s.maskOf(bin), need, m)
	s.limits[tmpl.Pool].Give(tmpl.Catalog.Capacity[old])
	defer func() { s.limits[tmpl.Pool].Take(tmpl.Catalog.Capacity[s.target[i]]) }()
	prices := s.pricesOf(t, s.maskOf(bin))
	best := -1
	for sh := range s.shapes.All() {
		if sh >= len(prices) || prices[sh] == 0 || !s.sameDomains(bin, t, sh) || tmpl.DaemonOf != nil && !s.fitsHardware(c, tmpl, sh) {
			continue
		}
		if s.limits[tmpl.Pool].Exceeded(tmpl.Catalog.Capacity[sh]) != -2 {
			continue
		}
		if best < 0 || prices[sh] < prices[best] {
			best = sh
		}
	}
	if best < 0 {
		return false
	}
	s.retarget(bin, best)
	if v := s.try(c, &c.Variants[vi], s.touchesOf(ci, vi), bin); v.code != 0 {
		s.retarget(bin, old)
		return false
	}
	s.commit(ci, vi, bin, 1)
	return true
}

// retarget changes the shape that a bin is filled for.
func (s *state) retarget(bin, sh int) {
	i := bin - len(s.p.Nodes)
	tmpl := &s.p.Templates[s.tmpl[i]]
	room := s.roomOf(bin)
	room.Sub(tmpl.Room[s.target[i]])
	room.Add(tmpl.Room[sh])
	s.target[i] = int32(sh)
	s.alive.Add(bin)
}

func (s *state) sameDomains(bin, t, sh int) bool {
	for k := range s.p.Keys {
		if of := &s.p.Keys[k].Tmpl[t]; of.Shape != nil && of.Shape[sh] != s.domainOf(k, bin) {
			return false
		}
	}
	return true
}

// used returns what the pods of a new bin use.
func (s *state) used(bin int) quantity.Vec {
	i := bin - len(s.p.Nodes)
	u := append(quantity.Vec(nil), s.p.Templates[s.tmpl[i]].Room[s.target[i]]...)
	u.Sub(s.roomOf(bin))
	return u
}

// holding sets s.shapes to the shapes that can hold need, allow mask and satisfy every pod of the bin, and more if given.
func (s *state) holding(bin int, mask bits.Set, need quantity.Vec, more *Match) {
	i := bin - len(s.p.Nodes)
	t := int(s.tmpl[i])
	s.fillHolding(t, mask, need)
	for _, put := range s.puts[i] {
		m := &s.p.Labels.OnTemplate[s.p.Classes[put.Class].Variants[put.Variant].Reqs][t]
		if m.Shapes != nil {
			s.shapes[:len(m.Shapes)].And(m.Shapes)
		}
	}
	if more != nil && more.Shapes != nil {
		s.shapes[:len(more.Shapes)].And(more.Shapes)
	}
}

// fillHolding sets s.shapes to the shapes of template t that can hold need and be bought under mask.
func (s *state) fillHolding(t int, mask bits.Set, need quantity.Vec) {
	tmpl := &s.p.Templates[t]
	clear(s.shapes)
	for sh := tmpl.Shapes.Next(0); sh >= 0; sh = tmpl.Shapes.Next(sh + 1) {
		if need.Fits(tmpl.Room[sh]) && s.sells(tmpl, sh, mask) {
			s.shapes.Add(sh)
		}
	}
}

// sells reports whether a shape can be bought under mask.
func (s *state) sells(tmpl *Template, sh int, mask bits.Set) bool {
	if len(tmpl.Segments) == 1 {
		return tmpl.ShapeMask[sh].Meets(mask)
	}
	both := s.both[:len(tmpl.Mask)]
	copy(both, mask)
	both.And(tmpl.ShapeMask[sh])
	return tmpl.open(both)
}
