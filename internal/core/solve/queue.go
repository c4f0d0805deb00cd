package solve

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
)

// A placement was found in an order that makes it cheap. Here it is mended so that it also holds in kube-scheduler's
// order (see schedule): pods that kube-scheduler would refuse get another place, or are left over. left is always, by class, how many
// pods a placement leaves over, and each function that returns a placement returns its left, too.

// inOrder returns a placement that kube-scheduler will bind as planned: this one, if that holds; else all pods placed anew (replayed). A
// placement that was cut by the meter is returned unchanged.
func (s *state) inOrder(left []int) (*state, []int) {
	s.schedule.avoidUnknown()
	if s.facts.meter.CutAt() > 0 {
		return s, left
	}
	if len(s.schedule.misplaced()) == 0 {
		return s.withNewDomains(left)
	}
	best, over := s.replayed(left)
	if s.facts.arrival != nil && sum(over) > 0 {
		return s.keepingSpread(best, over)
	}
	return best, over
}

// replayed places all pods anew in the order of the queue. If that leaves more pods over, and this placement with its misplaced pods
// relocated leaves fewer, it returns the latter.
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

// keepingSpread looks for a placement that leaves fewer pods over than the best so far, and no more of any class. It opens no node with
// daemons that upset the spread of pods placed before (see upsets). It tries the order of the queue and the usual order.
func (s *state) keepingSpread(best *state, over []int) (*state, []int) {
	for _, inTurn := range []bool{true, false} {
		keepsSpread := s.emptyInOrder()
		keepsSpread.fleet.census.keepsSpread = true
		if !inTurn {
			keepsSpread.turn = nil
		}
		keepsSpread, fewer := keepsSpread.relocate(keepsSpread.placeLeft(keepsSpread.allPods()))
		if sum(fewer) < sum(over) && noneMore(fewer, over) {
			best, over = keepsSpread, fewer
		}
	}
	return best, over
}

// withNewDomains returns the placement with more of the left pods placed, if it can: in domains that their spreads know only now, because
// nodes for other pods were opened there.
func (s *state) withNewDomains(left []int) (*state, []int) {
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
	opened := s.schedule.openedDomains()
	for ci, n := range left {
		for _, to := range s.schedule.required(problem.ClassID(ci)).keys {
			if n > 0 && s.schedule.opensUnknown(&to, opened) {
				return true
			}
		}
	}
	return false
}

// noneMore reports whether no class has more pods left than before.
func noneMore(left, before []int) bool {
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

// mostMoves is how often relocate gives pods another place. Each time, few of the moved pods are misplaced again. After the last time they
// get no place, so that the placement that is returned holds.
const mostMoves = 8

// relocate takes misplaced pods off their nodes, and gives them and the pods that are left other places, as if they came last, or none. A
// moved pod may change a domain so that another pod is misplaced. So relocate repeats this until no pod is misplaced and none was
// moved. It returns a new state if any pod was misplaced.
func (s *state) relocate(left []int) (*state, []int) {
	left = slices.Clone(left)
	for moves := 0; ; moves++ {
		s.schedule.avoidUnknown() // pods that were placed last have spreads with unknown domains, too
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

// fillIn places pods that are left, and reports whether it placed any. Spreads now also know the domains of the new nodes.
func (s *state) fillIn(left []int) bool {
	for g, known := range s.schedule.openedGroups(possible) {
		s.fleet.census.groups[g].Universe = known.Universe
	}
	before := s.fleet.commits
	s.placeLeft(left)
	return s.fleet.commits > before
}

// emptyInOrder returns an empty placement that takes classes in the order of the queue. Its spreads know the domains of the nodes that this
// placement opened.
func (s *state) emptyInOrder() *state {
	next := newState(s.facts)
	next.opener.worth = s.opener.worth
	next.prefer(s.preference)
	next.turn = slices.Repeat([]int32{math.MaxInt32}, len(s.facts.p.Classes))
	for at, ci := range s.facts.p.Queue {
		next.turn[ci] = min(next.turn[ci], int32(at))
	}
	for g, known := range s.schedule.openedGroups(possible) {
		next.fleet.census.groups[g].Universe = known.Universe
	}
	return next
}

// without returns a copy of the placement without some of its pods. New nodes that lose all pods are left out.
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

// byTurn compares classes by their first place in the queue. All are equal if the state does not follow the queue.
func (s *state) byTurn(a, b problem.ClassID) int {
	if s.turn == nil {
		return 0
	}
	return cmp.Compare(s.turn[a], s.turn[b])
}
