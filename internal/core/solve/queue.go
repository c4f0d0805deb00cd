package solve

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/work"
)

// kube-scheduler does not know the plan. It takes waiting pods by priority and age, asks those that it refused again when others have been
// bound, and every node that the plan opens is a domain for it, for whichever pod it was opened. A placement that was found in another
// order is played once more in this one; what does not hold is placed anew, and what finds no such place is left over.

// inOrder returns the placement if kube-scheduler would find it, else the better of two that it would: everything placed anew in the order
// of the queue, or the placement without what does not hold. left is what the placement leaves over; all three say that of theirs.
func (s *state) inOrder(left []int) (*state, []int) {
	s.avoid()
	if s.meter.CutAt() > 0 {
		return s, left
	}
	if len(s.misplaced()) == 0 {
		return s.filled(left)
	}
	best, over := s.replayed(left)
	if s.arrival != nil && sum(over) > 0 {
		return s.waryOf(best, over)
	}
	return best, over
}

// replayed is the placement once more in the order of the queue, or what is left of the first one.
func (s *state) replayed(left []int) (*state, []int) {
	queued := s.emptyInOrder()
	queued, over := queued.rehome(queued.placeLeft(queued.allPods()))
	if sum(over) <= sum(left) {
		return queued, over
	}
	if kept, fewer := s.rehome(left); sum(fewer) < sum(over) {
		return kept, fewer
	}
	return queued, over
}

// waryOf looks for a placement that leaves fewer pods over than the best so far, and of no class more, in which no
// node is opened whose daemons would upset pods that came before: in the order of the queue, and in that of their
// worth.
func (s *state) waryOf(best *state, over []int) (*state, []int) {
	for _, inTurn := range []bool{true, false} {
		wary := s.emptyInOrder()
		wary.wary = true
		if !inTurn {
			wary.turn = nil
		}
		wary, fewer := wary.rehome(wary.placeLeft(wary.allPods()))
		if sum(fewer) < sum(over) && within(fewer, over) {
			best, over = wary, fewer
		}
	}
	return best, over
}

// filled places pods that are left in domains which their spreads know only now, because others opened nodes there.
func (s *state) filled(left []int) (*state, []int) {
	if !s.foundGround(left) {
		return s, left
	}
	if more, fewer := s.without(nil).rehome(left); sum(fewer) < sum(left) {
		return more, fewer
	}
	return s, left
}

// foundGround reports whether new nodes are in domains that the spreads of pods that are left did not know.
func (s *state) foundGround(left []int) bool {
	if sum(left) == 0 {
		return false
	}
	opened := s.opened()
	for ci, n := range left {
		if n > 0 && slices.ContainsFunc(s.hard(problem.ClassID(ci)).keys, func(to touch) bool { return s.strays(&to, opened) }) {
			return true
		}
	}
	return false
}

// within reports whether of no class more are left than before.
func within(left, before []int) bool {
	for ci := range left {
		if left[ci] > before[ci] {
			return false
		}
	}
	return true
}

func sum(left []int) int {
	n := 0
	for _, k := range left {
		n += k
	}
	return n
}

// mostMoves is how often pods are given another place. Each time it is few of those of the time before that are misplaced again; after the
// last they get none, so that what is returned holds.
const mostMoves = 8

// rehome gives pods that are misplaced, and those that are left, other places, as if they came last, or none. A new
// place may take a domain from another pod, which then is misplaced in turn: so it looks again until no pod is, and
// none was moved.
func (s *state) rehome(left []int) (*state, []int) {
	left = slices.Clone(left)
	for moves := 0; ; moves++ {
		s.avoid() // also for the sake of those that were placed last
		bad := s.misplaced()
		if len(bad) > 0 {
			s = s.without(bad)
		}
		for _, p := range bad {
			left[p.Class] += p.Count
		}
		moved := moves < mostMoves && s.fillIn(left)
		if len(bad) == 0 && !moved {
			return s, left
		}
	}
}

// fillIn places pods that are left beside all others, where only nodes that are there are domains. It reports whether it placed any.
func (s *state) fillIn(left []int) bool {
	for g, known := range s.openedGroups(false) {
		s.groups[g].Universe = known.Universe
	}
	before := s.commits
	s.placeLeft(left)
	return s.commits > before
}

// emptyInOrder is an empty placement that takes classes as they stand in the queue, and knows the domains that this one opened.
func (s *state) emptyInOrder() *state {
	next := newState(s.facts)
	next.worth = s.worth
	next.turn = slices.Repeat([]int32{math.MaxInt32}, len(s.p.Classes))
	for at, ci := range s.p.Queue {
		next.turn[ci] = min(next.turn[ci], int32(at))
	}
	for g, known := range s.openedGroups(false) {
		next.groups[g].Universe = known.Universe
	}
	return next
}

// without is the placement without some of its pods.
func (s *state) without(bad []problem.Put) *state {
	next := s.emptied()
	gone := map[problem.Put]int{}
	for _, p := range bad {
		gone[problem.Put{Class: p.Class, Variant: p.Variant, Bin: p.Bin}] += p.Count
	}
	stay := func(puts []problem.Put) []problem.Put {
		var out []problem.Put
		for _, p := range puts {
			at := problem.Put{Class: p.Class, Variant: p.Variant, Bin: p.Bin}
			n := min(gone[at], p.Count)
			gone[at] -= n
			if p.Count -= n; p.Count > 0 {
				out = append(out, p)
			}
		}
		return out
	}
	for _, p := range stay(s.placed) {
		next.restore(p, p.Bin, s.domainOf)
	}
	for bin, n := range s.newBins() {
		if puts := stay(n.puts); len(puts) > 0 {
			next.restoreBin(s, bin, puts)
		}
	}
	return next
}

// hard returns what a class has to do with as kube-scheduler sees it: its preferences refuse no node.
func (s *state) hard(ci problem.ClassID) *touches {
	return s.touchesOf(ci, len(s.p.Classes[ci].Variants)-1)
}

// misplaced returns the pods that kube-scheduler would refuse where they are placed. It plays kube-scheduler: pods
// bind one after the other, in the order of the queue, each to any of the places that its class has in the plan,
// and who is refused is asked again once a pod else was bound. Those who wait when no pod binds any more are
// misplaced.
func (s *state) misplaced() []problem.Put {
	places := s.places()
	if !s.disputed(places) {
		return nil
	}
	counted := s.groups
	defer func() { s.groups = counted }()
	s.groups = s.openedGroups(false)
	waiting, bound := slices.Clone(s.p.Queue), 1 // bound is one more than are
	refused := make([]int, len(places))          // what bound was when a pod of the class was last refused, 0 before
	for before := 0; before != bound; {
		before = bound
		still := waiting[:0]
		for _, ci := range waiting {
			switch {
			case len(places[ci]) == 0:
			case refused[ci] != bound && s.bindOne(problem.ClassID(ci), places):
				bound++
			default:
				refused[ci] = bound
				still = append(still, ci)
			}
		}
		waiting = still
	}
	return slices.Concat(places...)
}

// places lists where the pods of each class are that stand in the queue.
func (s *state) places() [][]problem.Put {
	queued := bits.Make(len(s.p.Classes))
	for _, ci := range s.p.Queue {
		queued.Add(int(ci))
	}
	out := make([][]problem.Put, len(s.p.Classes))
	for p := range s.puts() {
		if queued.Has(int(p.Class)) {
			out[p.Class] = append(out[p.Class], *p)
		}
	}
	return out
}

// bindOne binds a pod of a class to the first of its places that takes it.
func (s *state) bindOne(ci problem.ClassID, places [][]problem.Put) bool {
	t := s.hard(ci)
	for at := range places[ci] {
		p := &places[ci][at]
		s.meter.Charge(tryWork/5 + work.Units(len(t.host.shunned)+len(t.host.owned)+len(t.keys))*groupWork)
		if !s.takes(t, p.Bin) {
			continue
		}
		s.record(&t.host, int32(p.Bin), p.Bin, 1)
		for k := range t.keys {
			s.record(&t.keys[k], s.domainOf(t.keys[k].key, p.Bin), p.Bin, 1)
		}
		if p.Count--; p.Count == 0 {
			places[ci] = slices.Delete(places[ci], at, at+1)
		}
		return true
	}
	return false
}

// takes reports whether what is bound so far lets a pod onto a bin.
func (s *state) takes(t *touches, bin problem.BinID) bool {
	if s.refusesHost(t, bin) != 0 {
		return false
	}
	for k := range t.keys {
		to := &t.keys[k]
		d := int(s.domainOf(to.key, bin))
		for _, g := range to.shunned {
			if s.groups[g].Repels(d) {
				return false
			}
		}
		for i, g := range to.owned {
			if !s.groups[g].Admits(d, to.self[i], nil) { // only nodes that are there are domains
				return false
			}
		}
	}
	return true
}

// disputed reports whether the order could matter. It does not where all pods that a constraint counts carry it
// themselves and are in domains that it knew: then those in the emptiest domain can always be bound.
func (s *state) disputed(places [][]problem.Put) bool {
	if s.arrival != nil {
		return true
	}
	owned := bits.Make(len(s.groups))
	opened := s.opened()
	for ci := range places {
		if len(places[ci]) == 0 {
			continue
		}
		t := s.hard(problem.ClassID(ci))
		spreads := 0
		for k := range t.keys {
			if t.keys[k].reach != nil {
				spreads++
			}
			if s.strays(&t.keys[k], opened) {
				return true
			}
			s.markOwned(owned, &t.keys[k])
		}
		if spreads > 1 {
			return true // what one lets in, the other may keep out
		}
		s.markOwned(owned, &t.host)
	}
	for ci := range places {
		if len(places[ci]) == 0 {
			continue
		}
		for _, g := range s.p.Classes[ci].Groups {
			if v := s.p.Classes[ci].Variants; owned.Has(g) && !slices.Contains(v[len(v)-1].Owns, g) {
				return true
			}
		}
	}
	return false
}

// markOwned adds the constraints of a class whose order may matter; whether two keep apart has none.
func (s *state) markOwned(owned bits.Set, to *touch) {
	for _, g := range to.owned {
		if s.groups[g].Kind != spread.Anti {
			owned.Add(g)
		}
	}
}

// strays reports whether a new node is in a domain that a spread did not know when its pods were placed.
func (s *state) strays(to *touch, opened []bits.Set) bool {
	for _, g := range to.owned {
		if s.groups[g].Kind != spread.Spread {
			continue
		}
		for d := range opened[to.key].All() {
			if !s.p.Groups[g].Universe.Has(d) && !to.reach.Has(d) {
				return true
			}
		}
	}
	return false
}

// opened returns, by topology key, the domains in which new nodes may be.
func (s *state) opened() []bits.Set {
	out, strange := make([]bits.Set, len(s.p.Keys)), s.strangeDomains()
	for key := range out {
		out[key] = bits.Make(len(s.p.Keys[key].Values))
		for _, in := range s.mayAllBeIn(key, strange) {
			for _, d := range in {
				out[key].Add(int(d))
			}
		}
	}
	return out
}

// mayAllBeIn is mayBeIn for all new bins.
func (s *state) mayAllBeIn(key int, strange []bits.Set) [][]int32 {
	out := make([][]int32, len(s.news))
	for bin := range s.newBins() {
		out[int(bin)-len(s.p.Nodes)] = s.mayBeIn(key, bin, strange)
	}
	return out
}

// mayBeIn returns the domains of a key in which a new bin may be, as far as its target goes; and all that it may
// become where minValues keep several types, of which those in strange domains are left out if they can be.
func (s *state) mayBeIn(key int, bin problem.BinID, strange []bits.Set) []int32 {
	n := s.node(bin)
	of := s.keyOf(key, n.tmpl)
	switch d := s.domainOf(key, bin); {
	case len(n.puts) == 0 || d == problem.NoDomain:
		return nil
	case of.Kind == problem.ByShape && strange != nil && len(s.template(n).Min) > 0 && !s.boundOf(bin)[key]:
		return s.shapesIn(of, bin, strange[key])
	case d != problem.OpenDomain:
		return s.domainsOf(bin)[key : key+1]
	}
	var out []int32
	mask := s.spare
	for d, choice := range of.Choice {
		if choice == nil {
			continue
		}
		copy(mask, s.maskOf(bin))
		mask.And(choice)
		if s.sells(s.template(n), n.target, mask) {
			out = append(out, int32(d))
		}
	}
	return out
}

// shapesIn returns the domains in which a new bin may be as one of the machines that it may become.
func (s *state) shapesIn(of *problem.KeyOf, bin problem.BinID, strange bits.Set) []int32 {
	n := s.node(bin)
	shapes := s.holding(bin, s.maskOf(bin), s.used(bin), nil)
	s.cut(bin, shapes)
	s.onlyDiverse(bin, shapes, func(sh int) bool { return of.Shape[sh] < 0 || !strange.Has(int(of.Shape[sh])) })
	out := []int32{of.Shape[n.target]}
	for sh := range shapes.All() {
		if d := of.Shape[sh]; d >= 0 && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// strangeDomains returns the domains that spreads do not know, by topology key, where nodes may have to become what
// is in one of them; else nil.
func (s *state) strangeDomains() []bits.Set {
	if !s.diverse {
		return nil
	}
	return s.findStrange().domains
}

// openedGroups are the constraints before any pod is placed, when all nodes of the placement are there; with sure set, only those whose
// domain is settled.
func (s *state) openedGroups(sure bool) []spread.Group {
	out := make([]spread.Group, len(s.p.Groups))
	var strange []bits.Set
	if !sure {
		strange = s.strangeDomains()
	}
	mayBe := make([][][]int32, len(s.p.Keys)) // by key and new bin
	for g := range out {
		out[g] = s.p.Groups[g].Clone()
		group := &out[g]
		if group.Kind != spread.Spread || group.Key == spread.Host {
			continue
		}
		if mayBe[group.Key] == nil {
			mayBe[group.Key] = s.mayAllBeIn(group.Key, strange)
		}
		for bin := range s.newBins() {
			in := mayBe[group.Key][int(bin)-len(s.p.Nodes)]
			if sure && (len(in) != 1 || !s.settled(group.Key, bin)) {
				continue
			}
			for _, d := range in {
				if !group.Universe.Has(int(d)) && s.counts(group, bin) {
					group.Know(int(d))
				}
			}
		}
	}
	for bin, n := range s.newBins() {
		if s.arrival != nil && len(n.puts) > 0 {
			s.arrive(out, bin)
		}
	}
	return out
}

// settled reports whether a new bin is in its domain of a key whatever machine is bought.
func (s *state) settled(key int, bin problem.BinID) bool {
	n := s.node(bin)
	of := s.keyOf(key, n.tmpl)
	if of.Kind != problem.ByChoice || s.domainOf(key, bin) != problem.OpenDomain {
		return of.Kind != problem.ByShape || s.boundOf(bin)[key]
	}
	left := 0 // domains that its choices leave, for some machine
	for _, choice := range of.Choice {
		if choice == nil {
			continue
		}
		mask := s.spare
		copy(mask, s.maskOf(bin))
		mask.And(choice)
		if s.template(n).SellsAny(mask[:len(s.template(n).Mask)]) {
			left++
		}
	}
	return left <= 1
}

// byTurn compares classes by their turn in the queue, where that is asked for.
func (s *state) byTurn(a, b problem.ClassID) int {
	if s.turn == nil {
		return 0
	}
	return cmp.Compare(s.turn[a], s.turn[b])
}
