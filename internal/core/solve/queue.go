package solve

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
)

// A placement was found in an order that makes it cheap. Here it is mended so that it also holds in kube-scheduler's
// order (see schedule): pods that kube-scheduler would refuse get another place, or are left over.

// inOrder returns the placement if kube-scheduler would find it, else the better of two that it would: everything placed anew in the order
// of the queue, or the placement without what does not hold. left is what the placement leaves over; all three say that of theirs.
func (s *state) inOrder(left []int) (*state, []int) {
	s.schedule.avoid()
	if s.facts.meter.CutAt() > 0 {
		return s, left
	}
	if len(s.schedule.misplaced()) == 0 {
		return s.filled(left)
	}
	best, over := s.replayed(left)
	if s.facts.arrival != nil && sum(over) > 0 {
		return s.keepingSpread(best, over)
	}
	return best, over
}

// replayed is the placement once more in the order of the queue, or what is left of the first one.
func (s *state) replayed(left []int) (*state, []int) {
	queued := s.emptyInOrder()
	queued, over := queued.relocate(queued.placeLeft(queued.allPods()))
	if sum(over) <= sum(left) {
		return queued, over
	}
	if kept, fewer := s.relocate(left); sum(fewer) < sum(over) {
		return kept, fewer
	}
	return queued, over
}

// keepingSpread looks for a placement that leaves fewer pods over than the best so far, and of no class more, in which no
// node is opened whose daemons would upset pods that came before: in the order of the queue, and in that of their
// worth.
func (s *state) keepingSpread(best *state, over []int) (*state, []int) {
	for _, inTurn := range []bool{true, false} {
		keepsSpread := s.emptyInOrder()
		keepsSpread.fleet.census.keepsSpread = true
		if !inTurn {
			keepsSpread.turn = nil
		}
		keepsSpread, fewer := keepsSpread.relocate(keepsSpread.placeLeft(keepsSpread.allPods()))
		if sum(fewer) < sum(over) && within(fewer, over) {
			best, over = keepsSpread, fewer
		}
	}
	return best, over
}

// filled places pods that are left in domains which their spreads know only now, because others opened nodes there.
func (s *state) filled(left []int) (*state, []int) {
	if !s.foundDomains(left) {
		return s, left
	}
	if more, fewer := s.without(nil).relocate(left); sum(fewer) < sum(left) {
		return more, fewer
	}
	return s, left
}

// foundDomains reports whether new nodes are in domains that the spreads of pods that are left did not know.
func (s *state) foundDomains(left []int) bool {
	if sum(left) == 0 {
		return false
	}
	opened := s.schedule.opened()
	for ci, n := range left {
		for _, to := range s.schedule.required(problem.ClassID(ci)).keys {
			if n > 0 && s.schedule.opensUnknown(&to, opened) {
				return true
			}
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

func sum(counts []int) int {
	n := 0
	for _, k := range counts {
		n += k
	}
	return n
}

// mostMoves is how often pods are given another place. Each time it is few of those of the time before that are misplaced again; after the
// last they get none, so that what is returned holds.
const mostMoves = 8

// relocate gives pods that are misplaced, and those that are left, other places, as if they came last, or none. A new
// place may take a domain from another pod, which then is misplaced in turn: so it looks again until no pod is, and
// none was moved.
func (s *state) relocate(left []int) (*state, []int) {
	left = slices.Clone(left)
	for moves := 0; ; moves++ {
		s.schedule.avoid() // also for the sake of those that were placed last
		bad := s.schedule.misplaced()
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
	for g, known := range s.schedule.openedGroups(false) {
		s.fleet.census.groups[g].Universe = known.Universe
	}
	before := s.fleet.commits
	s.placeLeft(left)
	return s.fleet.commits > before
}

// emptyInOrder is an empty placement that takes classes as they stand in the queue, and knows the domains that this one opened.
func (s *state) emptyInOrder() *state {
	next := newState(s.facts)
	next.opener.worth = s.opener.worth
	next.prefer(s.prefers)
	next.turn = slices.Repeat([]int32{math.MaxInt32}, len(s.facts.p.Classes))
	for at, ci := range s.facts.p.Queue {
		next.turn[ci] = min(next.turn[ci], int32(at))
	}
	for g, known := range s.schedule.openedGroups(false) {
		next.fleet.census.groups[g].Universe = known.Universe
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
	for _, p := range stay(s.fleet.bins.placed) {
		next.restore(p, p.Bin, s.fleet.bins.domainOf)
	}
	for bin, n := range s.fleet.bins.newBins() {
		if puts := stay(n.puts); len(puts) > 0 {
			next.restoreBin(s, bin, puts)
		}
	}
	return next
}

// byTurn compares classes by their turn in the queue, where that is asked for.
func (s *state) byTurn(a, b problem.ClassID) int {
	if s.turn == nil {
		return 0
	}
	return cmp.Compare(s.turn[a], s.turn[b])
}
