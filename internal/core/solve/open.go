package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A target is what a new node could be: a template, a shape, and the choices that are left.
type target struct {
	tmpl, shape int
	price       int64
	value       int64        // of the demand that it could hold
	low         []int        // minValues that had to be lowered; nil for nearly all
	reserve     quantity.Vec // what is taken from the pool's limit; nil: the shape's capacity
	unmet       int          // of a refusal for minValues: which of the template's cannot be met
}

// A run is neighbouring templates: those of a tier, or just one.
type run struct{ from, to int }

// tierRun returns the templates of a tier.
func (s *state) tierRun(tier int) run {
	var r run
	for r.from < len(s.p.Templates) && s.p.Templates[r.from].Tier < tier {
		r.from++
	}
	for r.to = r.from; r.to < len(s.p.Templates) && s.p.Templates[r.to].Tier == tier; {
		r.to++
	}
	return r
}

// open opens a new node for one pod of class ci as variant vi in the given tier and places the pod there. It returns
// the bin, or the reason why there is none.
func (s *state) open(ci, vi, tier int) (int, reason.Code) {
	c := &s.p.Classes[ci]
	t := s.touchesOf(ci, vi)
	if code := s.openHost(t); code != 0 {
		return 0, code
	}
	best, code := s.openFrom(ci, vi, s.tierRun(tier), t, 0)
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
	if s.arrival != nil {
		return 0 // it will not be empty; see expected
	}
	for i, g := range t.host.owned {
		if !s.groups[g].Admits(s.bins, t.host.self[i], nil) {
			return codeOf(s.groups[g].Kind)
		}
	}
	return 0
}

// openFrom settles the domains of the touched keys from the i-th on, in the order of preference, and chooses the best target
// among some templates.
func (s *state) openFrom(ci, vi int, among run, t *touches, i int) (target, reason.Code) {
	if i == len(t.keys) {
		return s.bestTarget(ci, vi, among, t)
	}
	to := &t.keys[i]
	if s.arrival != nil && len(to.owned)+len(to.counted) == 0 {
		return s.openAnywhere(ci, vi, among, t, i)
	}
	bare := s.admitsFirst(to, noDomain) == 0
	if bare && s.leavesOut(to.key, among) { // nobody gives a node a label that nobody asks for
		s.choice[to.key] = noDomain
		if got, bad := s.openFrom(ci, vi, among, t, i+1); bad == 0 {
			return got, 0
		}
	}
	best, code := target{}, reason.Code(codeOfTouch(s, to))
	reached := false // a domain that the groups admit and some template is in
	for _, d := range s.byCount(to, i) {
		if bad := s.admitsFirst(to, int(d)); bad != 0 {
			if !reached {
				code = bad
			}
			continue
		}
		s.choice[to.key] = d
		got, bad := s.openFrom(ci, vi, among, t, i+1)
		if bad == 0 {
			return got, 0
		}
		if bad != reason.NoShape { // else no template is in that domain, which explains nothing
			best, code, reached = got, bad, true
		}
	}
	if bare {
		s.choice[to.key] = noDomain
		if got, bad := s.openFrom(ci, vi, among, t, i+1); bad != reason.NoShape {
			return got, bad
		}
	}
	return best, code
}

// openAnywhere is openFrom for a key that pods have nothing to do with but for the daemons beside them: the best of all domains is theirs.
func (s *state) openAnywhere(ci, vi int, among run, t *touches, i int) (target, reason.Code) {
	key := t.keys[i].key
	best, code := target{tmpl: -1}, reason.Code(reason.NoShape)
	chosen := append([]int32(nil), s.choice...)
	for d := int32(noDomain); int(d) < len(s.p.Keys[key].Values); d++ {
		s.choice[key] = d
		got, bad := s.openFrom(ci, vi, among, t, i+1)
		switch {
		case bad != 0 && best.tmpl < 0 && bad != reason.NoShape:
			code = bad
		case bad == 0 && (best.tmpl < 0 || better(got, best)):
			best, code = got, 0
			copy(chosen, s.choice)
		}
	}
	copy(s.choice, chosen)
	return best, code
}

// admitsFirst asks the groups of a key about the first pod on a new node. Where daemons are counted, that is asked later, with these.
func (s *state) admitsFirst(to *touch, d int) reason.Code {
	if s.arrival != nil {
		return 0
	}
	return s.admits(to, d)
}

// leavesOut reports whether some of the templates have the label of a key only if somebody asks for it.
func (s *state) leavesOut(key int, among run) bool {
	return slices.ContainsFunc(s.p.Keys[key].Tmpl[among.from:among.to], func(k KeyOf) bool { return k.None != nil })
}

func codeOfTouch(s *state, to *touch) reason.Code {
	if len(to.owned) > 0 {
		return codeOf(s.groups[to.owned[0]].Kind)
	}
	return reason.NoShape
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
			chosen := of.choice(s.choice[key])
			mask[:len(chosen)].And(chosen)
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
			s.prices.rows = nil
		}
		return
	}
	for at := range cat.Offers {
		if cat.Offers[at].Kind == shape.Reserved && cat.Offers[at].Reservation >= 0 {
			mask.Remove(at)
		}
	}
}
