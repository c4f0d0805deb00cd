package solve

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
)

// A visit is what is known while the pods of one class are placed: which bins have refused for good, which machines could
// hold a pod. Its memory is used again for the next class.
type visit struct {
	want       int           // pods left
	open       []bits.Set    // [variant] bins that have not refused finally
	bins       problem.BinID // number of bins when open was last extended
	cands      []candidates  // [variant and template] see candidatesOf
	arena      []int32       // memory for the shapes of all cands
	tier       []int         // [variant] the heaviest tier that can hold a pod
	failed     []int         // [variant] commits when opening a node last failed, plus one; 0: it did not
	codes      []reason.Code // [variant] why opening failed
	heldBack   bool          // candidates were left out because they are exotic or large
	anyMachine bool          // exotic and large machines are candidates now: there is no other place
}

// order returns the classes in the order in which they are placed: by priority, then by place in the queue if state.turn is set, then by
// the Preference, then by looseness, then by what a pod is worth, the most first.
func (s *state) order() []problem.ClassID {
	out := make([]problem.ClassID, len(s.facts.p.Classes))
	worth := make([]int64, len(s.facts.p.Classes))
	for i := range out {
		out[i] = problem.ClassID(i)
		worth[i] = s.opener.worth.of(s.facts.p.Classes[i].Need)
	}
	slices.SortStableFunc(out, func(a, b problem.ClassID) int {
		x, y := &s.facts.p.Classes[a], &s.facts.p.Classes[b]
		return cmp.Or(
			cmp.Compare(y.Priority, x.Priority),
			s.byTurn(a, b),
			s.preference.compareClasses(a, b),
			cmp.Compare(s.looseness(a), s.looseness(b)),
			cmp.Compare(worth[b], worth[a]),
			cmp.Compare(x.Order, y.Order))
	})
	return out
}

// looseness ranks a class for order: 0 if it has a right to be first (Class.First), or if its pods must be on one node with others, which
// leaves them no choice; 1 for all others.
func (s *state) looseness(ci problem.ClassID) int {
	if s.facts.p.Classes[ci].First {
		return 0
	}
	if len(s.facts.p.Classes[ci].Variants) > 0 && s.ties.touchesOf(ci, 0).glued {
		return 0
	}
	return 1
}

// place places all pods. It returns how many pods of each class are left.
func (s *state) place() []int { return s.placeLeft(s.allPods()) }

// allPods returns how many pods each class has.
func (s *state) allPods() []int {
	left := make([]int, len(s.facts.p.Classes))
	for i := range left {
		left[i] = s.facts.p.Classes[i].Count
	}
	return left
}

// placeLeft places what is left of each class, and returns what is left then; it changes left in place. It goes through the classes again
// until a round places nothing: a pod may have to wait for a pod that its affinity looks for, or for a domain to fill up.
func (s *state) placeLeft(left []int) []int {
	queue := slices.DeleteFunc(s.order(), func(ci problem.ClassID) bool { return left[ci] == 0 })
	for round := 0; len(queue) > 0; round++ {
		before := s.fleet.commits
		var again []problem.ClassID
		for _, ci := range queue {
			if s.facts.meter.Cut() {
				return left
			}
			left[ci] = s.placeClass(ci, left[ci])
			if left[ci] > 0 {
				again = append(again, ci)
			}
		}
		if s.fleet.commits == before || !s.worthWaiting(again) {
			break
		}
		queue = again
	}
	return left
}

// worthWaiting reports whether any of the classes could be placed later in the same run.
func (s *state) worthWaiting(classes []problem.ClassID) bool {
	return slices.ContainsFunc(classes, func(ci problem.ClassID) bool {
		for vi := range s.facts.p.Classes[ci].Variants {
			if t := s.ties.touchesOf(ci, vi); len(t.keys) > 0 || len(t.host.owned) > 0 {
				return true
			}
		}
		return false
	})
}

// placeClass places up to n pods of a class and returns how many are left. Pods that earlier plans put on a node go there first.
func (s *state) placeClass(ci problem.ClassID, n int) int {
	c := &s.facts.p.Classes[ci]
	s.begin(ci, n)
	for _, st := range c.Sticky {
		for k := 0; k < st.Count && n > 0 && s.placeAt(ci, st.Node); k++ {
			n--
		}
	}
	for n > 0 {
		s.opener.visit.want = n
		placed := s.placeSome(ci, n)
		if placed == 0 {
			break
		}
		n -= placed
		if s.facts.meter.Cut() {
			break
		}
	}
	return n
}

// begin begins a visit of a class with want pods to place: no bin has refused yet, and no candidates are known.
func (s *state) begin(ci problem.ClassID, want int) {
	v, c := &s.opener.visit, &s.facts.p.Classes[ci]
	n := len(c.Variants)
	v.want, v.bins, v.heldBack, v.anyMachine = want, s.fleet.bins.next(), false, false
	v.open = resize(v.open, n)
	v.tier, v.failed, v.codes = resize(v.tier, n), resize(v.failed, n), resize(v.codes, n)
	v.cands = resize(v.cands, n*len(s.facts.p.Templates))
	clear(v.cands)
	if v.arena == nil {
		v.arena = make([]int32, 0, 4*s.facts.largest)
	}
	if cap(v.arena) < 2*s.facts.largest {
		v.arena = make([]int32, 0, 8*s.facts.largest)
	}
	v.arena = v.arena[:0]
	for vi := range n {
		v.tier[vi], v.failed[vi], v.codes[vi] = -1, 0, 0
		v.open[vi] = s.firstOpen(v.open[vi][:0], &c.Variants[vi])
	}
}

// resize returns s with length n, in the same memory if that is large enough. Old values stay.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// firstOpen returns the bins that a variant may try: nodes that agree with its requirements and tolerations, and all new ones.
func (s *state) firstOpen(open bits.Set, v *problem.Variant) bits.Set {
	open = append(open, s.fleet.bins.alive...)
	for w := range bits.Words(len(s.facts.p.Nodes)) {
		both := s.facts.p.Labels.OnNode[v.Reqs][w] & s.facts.p.Labels.TolNode[v.Tol][w]
		if rest := len(s.facts.p.Nodes) - 64*w; rest < 64 {
			both |= ^uint64(0) << rest // new bins share the last word
		}
		open[w] &= both
	}
	return open
}

// extend adds the bins that were opened since the visit began.
func (v *visit) extend(bins problem.BinID) {
	for ; v.bins < bins; v.bins++ {
		v.reopen(v.bins)
	}
}

// reopen lets the class ask a bin: a new bin, or a bin that had no room and has grown since.
func (v *visit) reopen(bin problem.BinID) {
	for i := range v.open {
		v.open[i] = v.open[i].Grow(int(bin))
		v.open[i].Add(int(bin))
	}
}

// placeAt places one pod of a class on a bin, by the first variant that the bin admits, and reports whether there was one.
func (s *state) placeAt(ci problem.ClassID, bin problem.BinID) bool {
	for vi := range s.facts.p.Classes[ci].Variants {
		if !s.opener.visit.open[vi].Has(int(bin)) {
			continue
		}
		if q := s.ask(s.read(ci, vi)); s.fleet.try(q, bin).code == 0 {
			s.fleet.commit(q, 1)
			return true
		}
	}
	return false
}

// placeSome places one pod or more by the strictest variant with a place, and returns how many it placed. If no variant has a place, it
// tries to give a new node another target, and then to allow machines that were held back. It returns 0 if all of that fails.
func (s *state) placeSome(ci problem.ClassID, n int) int {
	c := &s.facts.p.Classes[ci]
	if c.TooMuch != "" {
		return 0
	}
	for vi := range c.Variants {
		if placed := s.placeVariant(s.ask(s.read(ci, vi)), n); placed > 0 {
			return placed
		}
	}
	for vi := range c.Variants {
		if s.growAny(s.ask(s.read(ci, vi))) {
			return 1
		}
	}
	if s.allowAnyMachine(ci) {
		return s.placeSome(ci, n)
	}
	return 0
}

// allowAnyMachine lets a class use exotic and large machines too, if any were held back, and if they may be in domains or within limits
// where no other machine is. It forgets what failed before and works out the reach of the class's spreads again. It reports whether it
// did so.
func (s *state) allowAnyMachine(ci problem.ClassID) bool {
	v, c := &s.opener.visit, &s.facts.p.Classes[ci]
	if v.anyMachine || !v.heldBack && !s.ties.reachOf(ci).heldBack ||
		!s.choosy(s.schedule.required(ci)) && !s.fleet.stock.limits.limitAny() {
		return false
	}
	v.anyMachine = true
	s.ties.anyMachine.Add(int(ci))
	clear(v.cands)
	clear(v.failed)
	for vi := range c.Variants {
		v.tier[vi] = -1
		t := s.ties.touchesOf(ci, vi)
		for k := range t.keys {
			if t.keys[k].reach != nil {
				t.keys[k].reach = s.ties.reachOf(ci).domains[t.keys[k].key]
			}
		}
	}
	return true
}

// choosy reports whether it matters to pods which domain a new node is in, or which daemons are on it. With minValues it matters for each
// key that the pods have to do with, because minValues have to be met in the chosen domain alone.
func (s *state) choosy(t *touches) bool {
	if s.facts.diverse && len(t.keys) > 0 {
		return true
	}
	cares := func(to touch) bool { return len(to.owned)+len(to.shunned) > 0 }
	return slices.ContainsFunc(t.keys, cares) || s.facts.arrival != nil && cares(t.host)
}

// placeVariant places pods of a variant on an existing node, or on a new one. It returns how many it placed. New nodes of a tier below the
// heaviest that can hold a pod are not joined before placeNew tried to open a node in that tier.
func (s *state) placeVariant(q *trial, n int) int {
	s.opener.visit.extend(s.fleet.bins.next())
	if many := s.join(q, n, 0, s.tierOf(q)); many > 0 {
		return many
	}
	return s.placeNew(q, n)
}

// join places pods of a variant on the first bin that admits one: an existing node, or a new one of the tiers from least to most. It places
// up to n at once, if each joins under the same rules, and returns how many. Bins that refuse for good are not asked again.
func (s *state) join(q *trial, n, least, most int) int {
	open := s.opener.visit.open[q.variant]
	for at := open.Next(0); at >= 0 && at < int(s.fleet.bins.next()); at = open.Next(at + 1) {
		bin := problem.BinID(at)
		if node := s.fleet.bins.node(bin); node != nil {
			if tier := s.fleet.bins.template(node).Tier; tier < least || tier > most {
				continue
			}
		}
		verdict := s.fleet.try(q, bin)
		if verdict.code == 0 {
			many := s.fleet.mostAtOnce(q, n)
			s.fleet.commit(q, many)
			return many
		}
		if verdict.final {
			open.Remove(at)
			if verdict.code == reason.TooLarge {
				s.opener.visit.forget(at, q.variant)
			}
		}
	}
	return 0
}

// forget takes a bin without room off the lists of all later variants, which need the same room.
func (v *visit) forget(bin, variant int) {
	for _, open := range v.open[variant+1:] {
		if bin>>6 < len(open) {
			open.Remove(bin)
		}
	}
}

// tierOf returns the heaviest tier that can hold a pod of the variant, Tiers if none can. It is remembered for the visit.
func (s *state) tierOf(q *trial) int {
	if s.facts.p.Tiers <= 1 {
		return 0
	}
	if s.opener.visit.tier[q.variant] < 0 {
		s.opener.visit.tier[q.variant] = s.opener.heaviestTier(q.reading, 0)
	}
	return s.opener.visit.tier[q.variant]
}

// suits reports whether machines of any template could hold a pod if limits are ignored.
func (s *state) suits(q *trial) bool {
	for t := range s.facts.p.Templates {
		if len(s.opener.candidatesOf(q.reading, problem.TemplateID(t))) > 0 {
			return true
		}
	}
	return false
}

// placeNew opens a node for the variant in the heaviest tier that can, fills it with further pods, and returns how many it placed. Before
// it goes to the next tier, pods may join new nodes of that tier. If nothing works, visit.failed and visit.codes note it.
func (s *state) placeNew(q *trial, n int) int {
	if s.opener.visit.failed[q.variant] == s.fleet.commits+1 {
		return 0 // no pod was placed since it failed
	}
	code := reason.Code(reason.NoShape)
	if s.tierOf(q) == s.facts.p.Tiers && s.suits(q) {
		code = reason.Limit // some machine could hold the pod, so only limits keep it out
	}
	for tier := s.tierOf(q); tier < s.facts.p.Tiers; {
		bad := s.opener.openFor(q, tier)
		if bad == 0 {
			s.opener.visit.extend(s.fleet.bins.next())
			return 1 + s.fillUp(q, n-1)
		}
		code = bad
		if bad == reason.Limit && s.opener.heaviestTier(q.reading, tier) > tier {
			s.opener.visit.tier[q.variant] = tier + 1
		}
		next := s.opener.heaviestTier(q.reading, tier+1)
		if many := s.join(q, n, tier+1, next); many > 0 {
			return many
		}
		tier = next
	}
	s.opener.visit.failed[q.variant], s.opener.visit.codes[q.variant] = s.fleet.commits+1, code
	return 0
}

// fillUp places up to n more pods of a trial on the bin that was just opened for it, and returns how many it placed.
func (s *state) fillUp(q *trial, n int) int {
	if n <= 0 || q.oneByOne || len(q.c.Ports) > 0 || s.fleet.try(q, q.bin).code != 0 {
		return 0
	}
	many := s.fleet.mostAtOnce(q, n)
	s.fleet.commit(q, many)
	return many
}

// growAny places one pod on a new node that gets another target for it (see grow), and reports whether it did. It is for pods that have no
// other chance: those with topology keys, those that must be on one host with others, and those for which limits or minValues allow no
// further node.
func (s *state) growAny(q *trial) bool {
	if code := s.opener.visit.codes[q.variant]; len(q.keys) == 0 && !q.glued && code != reason.Limit && code != reason.MinValues {
		return false
	}
	for bin := range s.fleet.bins.newBins() {
		q.bin = bin
		if s.fleet.census.admitHosts(q).code == 0 && s.grow(q, bin) {
			s.opener.visit.reopen(bin)
			return true
		}
	}
	return false
}
