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
	want   int           // pods left
	open   []bits.Set    // [variant] bins that have not refused finally
	bins   problem.BinID // bins that existed when open was last extended
	cands  []candidates
	arena  []int32
	tier   []int         // [variant] the heaviest tier that can hold a pod
	failed []int         // [variant] commits when opening a node last failed, plus one
	codes  []reason.Code // [variant] why opening failed
	spared bool          // candidates were left out because they are exotic or large
	lavish bool          // they are not any more: there is no other place
}

// order returns the classes in the order in which they are placed: important ones first; among these as they stand
// in the queue, if that is asked for, else those whose node is chosen for them, and then those that are worth the
// most.
func (s *state) order() []problem.ClassID {
	out := make([]problem.ClassID, len(s.p.Classes))
	worth := make([]int64, len(s.p.Classes))
	for i := range out {
		out[i] = problem.ClassID(i)
		worth[i] = s.value(s.p.Classes[i].Need)
	}
	slices.SortStableFunc(out, func(a, b problem.ClassID) int {
		x, y := &s.p.Classes[a], &s.p.Classes[b]
		return cmp.Or(
			cmp.Compare(y.Priority, x.Priority),
			s.byTurn(a, b),
			cmp.Compare(s.looseness(a), s.looseness(b)),
			cmp.Compare(worth[b], worth[a]),
			cmp.Compare(x.Order, y.Order))
	})
	return out
}

// looseness puts classes first that have a right to be, and those that must share a node with others: their node is chosen for them.
func (s *state) looseness(ci problem.ClassID) int {
	if s.p.Classes[ci].First {
		return 0
	}
	if len(s.p.Classes[ci].Variants) > 0 && s.touchesOf(ci, 0).glued {
		return 0
	}
	return 1
}

// place places all classes, again and again until a round brings nothing new: a pod may have to wait for a friend, or for a
// domain to fill up. It returns how many pods of each class are left.
func (s *state) place() []int { return s.placeLeft(s.allPods()) }

func (s *state) allPods() []int {
	left := make([]int, len(s.p.Classes))
	for i := range left {
		left[i] = s.p.Classes[i].Count
	}
	return left
}

// placeLeft places what is left of each class, and returns what is left then.
func (s *state) placeLeft(left []int) []int {
	queue := slices.DeleteFunc(s.order(), func(ci problem.ClassID) bool { return left[ci] == 0 })
	for round := 0; len(queue) > 0; round++ {
		before := s.commits
		var again []problem.ClassID
		for _, ci := range queue {
			if s.meter.Cut() {
				return left
			}
			left[ci] = s.placeClass(ci, left[ci])
			if left[ci] > 0 {
				again = append(again, ci)
			}
		}
		if s.commits == before || !s.worthWaiting(again) {
			break
		}
		queue = again
	}
	return left
}

// worthWaiting reports whether any of the classes could be placed later in the same run.
func (s *state) worthWaiting(classes []problem.ClassID) bool {
	return slices.ContainsFunc(classes, func(ci problem.ClassID) bool {
		for vi := range s.p.Classes[ci].Variants {
			if t := s.touchesOf(ci, vi); len(t.keys) > 0 || len(t.host.owned) > 0 {
				return true
			}
		}
		return false
	})
}

// placeClass places up to n pods of a class and returns how many are left.
func (s *state) placeClass(ci problem.ClassID, n int) int {
	c := &s.p.Classes[ci]
	s.begin(ci, n)
	for _, st := range c.Sticky {
		for k := 0; k < st.Count && n > 0 && s.placeAt(ci, st.Node); k++ {
			n--
		}
	}
	for n > 0 {
		s.visit.want = n
		placed := s.placeSome(ci, n)
		if placed == 0 {
			break
		}
		n -= placed
		if s.meter.Cut() {
			break
		}
	}
	return n
}

// begin prepares the scratch of a visit.
func (s *state) begin(ci problem.ClassID, want int) {
	v, c := &s.visit, &s.p.Classes[ci]
	n := len(c.Variants)
	v.want, v.bins, v.spared, v.lavish = want, s.bins(), false, false
	v.open = resize(v.open, n)
	v.tier, v.failed, v.codes = resize(v.tier, n), resize(v.failed, n), resize(v.codes, n)
	v.cands = resize(v.cands, n*len(s.p.Templates))
	clear(v.cands)
	if v.arena == nil {
		v.arena = make([]int32, 0, 4*s.largest)
	}
	if cap(v.arena) < 2*s.largest {
		v.arena = make([]int32, 0, 8*s.largest)
	}
	v.arena = v.arena[:0]
	for vi := range n {
		v.tier[vi], v.failed[vi], v.codes[vi] = -1, 0, 0
		v.open[vi] = s.firstOpen(v.open[vi][:0], &c.Variants[vi])
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// firstOpen returns the bins that a variant may try: nodes that agree with its requirements and tolerations, and all new ones.
func (s *state) firstOpen(open bits.Set, v *problem.Variant) bits.Set {
	open = append(open, s.alive...)
	for w := range bits.Words(len(s.p.Nodes)) {
		both := s.p.Labels.OnNode[v.Reqs][w] & s.p.Labels.TolNode[v.Tol][w]
		if rest := len(s.p.Nodes) - 64*w; rest < 64 {
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

// placeAt places one pod on one node, by the first variant that it admits.
func (s *state) placeAt(ci problem.ClassID, bin problem.BinID) bool {
	for vi := range s.p.Classes[ci].Variants {
		if !s.visit.open[vi].Has(int(bin)) {
			continue
		}
		if q := s.ask(s.read(ci, vi)); s.try(q, bin).code == 0 {
			s.commit(q, 1)
			return true
		}
	}
	return false
}

// placeSome places at least one pod by the strictest variant that has room for it, and returns how many it placed.
func (s *state) placeSome(ci problem.ClassID, n int) int {
	c := &s.p.Classes[ci]
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
	if s.spareNothing(ci) {
		return s.placeSome(ci, n)
	}
	return 0
}

// spareNothing lets a class use exotic and large machines too, where they could be in domains in which no other is.
func (s *state) spareNothing(ci problem.ClassID) bool {
	v, c := &s.visit, &s.p.Classes[ci]
	if v.lavish || !v.spared && !s.reachOf(ci).spared || !s.choosy(s.hard(ci)) {
		return false
	}
	v.lavish = true
	s.lavish.Add(int(ci))
	clear(v.cands)
	clear(v.failed)
	for vi := range c.Variants {
		v.tier[vi] = -1
		t := s.touchesOf(ci, vi)
		for k := range t.keys {
			if t.keys[k].reach != nil {
				t.keys[k].reach = s.reachOf(ci).domains[t.keys[k].key]
			}
		}
	}
	return true
}

// choosy reports whether pods care about which domain a new node is in, or which daemons are on it; where minValues have to be met in
// that domain alone, they do if they have one at all.
func (s *state) choosy(t *touches) bool {
	if s.diverse && len(t.keys) > 0 {
		return true
	}
	cares := func(to touch) bool { return len(to.owned)+len(to.shunned) > 0 }
	return slices.ContainsFunc(t.keys, cares) || s.arrival != nil && cares(t.host)
}

// placeVariant places pods of a variant on a bin that is there, or on a new node. Nodes that this plan opens in a lighter pool come after
// a new one in the heaviest that can hold a pod.
func (s *state) placeVariant(q *trial, n int) int {
	s.visit.extend(s.bins())
	if many := s.join(q, n, 0, s.tierOf(q)); many > 0 {
		return many
	}
	return s.placeNew(q, n)
}

// join places pods of a variant on the first bin that takes them: an existing node, or a new one of the tiers between least and most.
func (s *state) join(q *trial, n, least, most int) int {
	open := s.visit.open[q.variant]
	for at := open.Next(0); at >= 0 && at < int(s.bins()); at = open.Next(at + 1) {
		bin := problem.BinID(at)
		if node := s.node(bin); node != nil {
			if tier := s.template(node).Tier; tier < least || tier > most {
				continue
			}
		}
		verdict := s.try(q, bin)
		if verdict.code == 0 {
			many := s.most(q, n)
			s.commit(q, many)
			return many
		}
		if verdict.final {
			open.Remove(at)
			if verdict.code == reason.TooLarge {
				s.visit.forget(at, q.variant)
			}
		}
	}
	return 0
}

// forget keeps the variants after one from asking a bin without room.
func (v *visit) forget(bin, variant int) {
	for _, open := range v.open[variant+1:] {
		if bin>>6 < len(open) {
			open.Remove(bin)
		}
	}
}

// tierOf returns the heaviest tier that can hold a pod of the variant.
func (s *state) tierOf(q *trial) int {
	if s.p.Tiers <= 1 {
		return 0
	}
	if s.visit.tier[q.variant] < 0 {
		s.visit.tier[q.variant] = s.heaviest(q.reading, 0)
	}
	return s.visit.tier[q.variant]
}

// suits reports whether machines of any template could hold a pod, whatever limits say.
func (s *state) suits(q *trial) bool {
	for t := range s.p.Templates {
		if len(s.candidatesOf(q.reading, problem.TemplateID(t))) > 0 {
			return true
		}
	}
	return false
}

// placeNew opens a node for the variant, in the heaviest tier that accepts it.
func (s *state) placeNew(q *trial, n int) int {
	if s.visit.failed[q.variant] == s.commits+1 {
		return 0 // nothing happened since it failed
	}
	code := reason.Code(reason.NoShape)
	if s.tierOf(q) == s.p.Tiers && s.suits(q) {
		code = reason.Limit // there is nothing else that keeps a template's machines from it
	}
	for tier := s.tierOf(q); tier < s.p.Tiers; {
		bad := s.openFor(q, tier)
		if bad == 0 {
			s.visit.extend(s.bins())
			return 1 + s.fillUp(q, n-1)
		}
		code = bad
		if bad == reason.Limit && s.heaviest(q.reading, tier) > tier {
			s.visit.tier[q.variant] = tier + 1
		}
		next := s.heaviest(q.reading, tier+1)
		if many := s.join(q, n, tier+1, next); many > 0 {
			return many
		}
		tier = next
	}
	s.visit.failed[q.variant], s.visit.codes[q.variant] = s.commits+1, code
	return 0
}

// fillUp places more pods of a trial on the bin that was just opened for it, at most n.
func (s *state) fillUp(q *trial, n int) int {
	if n <= 0 || q.one || len(q.c.Ports) > 0 || s.try(q, q.bin).code != 0 {
		return 0
	}
	many := s.most(q, n)
	s.commit(q, many)
	return many
}

// growAny looks for a new node that could become another machine, for pods that have no other chance: those that must be on one
// host with others, and those for which no further node may be opened, though one of another size might do.
func (s *state) growAny(q *trial) bool {
	if code := s.visit.codes[q.variant]; len(q.keys) == 0 && !q.glued && code != reason.Limit && code != reason.MinValues {
		return false
	}
	for bin := range s.newBins() {
		q.bin = bin
		if s.admitHosts(q).code == 0 && s.grow(q, bin) {
			s.visit.reopen(bin)
			return true
		}
	}
	return false
}
