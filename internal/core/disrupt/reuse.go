package disrupt

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A verdict is the decision about using the last answer again. A search costs far more than anything else here. A cluster changes all the
// time, since pods start, report and stop, but few of these changes can change the answer. So a pass that found nothing is remembered
// in two ways: lastPass is fast to compare, and lastSearch knows what an answer depends on. Both last for five minutes, because prices
// and availability change without an event.
//
//	the last search      the world now                             until          this pass
//	found steps          any                                       –              searches anew
//	did not end          any                                       –              searches on, from Memory.resume
//	found nothing, and   nothing in the store or the catalogues    five minutes   is Idle: does not even look
//	  there was nothing  changed
//	  else to do
//	found nothing        what the answer depends on is the same    five minutes   sameAnswer: repeats what was found
//	found nothing        something of it changed                   ten seconds    waitFirst: repeats it, and is not calm
//	found nothing        a budget that was in use is free again    –              searches anew
//	a step failed        any                                       –              searches anew, without its nodes
type verdict uint8

const (
	searchAnew verdict = iota
	sameAnswer
	waitFirst
)

const (
	// sameFor is how long the answer of a search that found nothing is used again if the world is the same.
	sameFor = 5 * time.Minute
	// betweenSearches is how long a search that found nothing is not repeated although the world has changed.
	betweenSearches = 10 * time.Second
)

// lastPass describes the world in which a pass found nothing to do. The zero value equals no world.
type lastPass struct {
	news     uint64 // Snapshot.News
	catalogs map[string]*cloud.Catalog
	until    time.Time // when something changes by itself, or sameFor is over
	surge    uint64    // World.SurgeTurn
}

// same reports whether w is that world, at a time before until.
func (l *lastPass) same(w *World) bool {
	return l.news == w.Snap.News() && l.surge == w.SurgeTurn && w.Now.Before(l.until) && maps.Equal(l.catalogs, catalogsOf(w))
}

// catalogsOf returns the catalogue of each pool. Catalogues are compared by pointer: another pointer is another catalogue.
func catalogsOf(w *World) map[string]*cloud.Catalog {
	out := make(map[string]*cloud.Catalog, len(w.Pools))
	for name, input := range w.Pools {
		out[name] = input.Catalog
	}
	return out
}

// lastSearch is what the last search for a cheaper fleet found.
type lastSearch struct {
	world fingerprint // what the answer depends on
	// Until sameUntil the answer is used again if the world is the same. Until waitUntil it is used again even if the world has changed.
	// Both are zero if the search found steps or did not try everything.
	sameUntil, waitUntil time.Time
	// cramped has how many nodes could go of each pool whose budget was in use then, at least in part (ledger.cramped).
	cramped map[string]int

	before, target cloud.NanoUSD
	heldBack       map[string]cloud.NanoUSD // not changed
}

// verdict returns whether to search again in a world, or to use this answer.
func (l *lastSearch) verdict(world fingerprint, budgets *ledger, now time.Time) verdict {
	switch {
	case now.Before(l.sameUntil) && l.world.equals(world):
		return sameAnswer
	case now.Before(l.waitUntil) && !l.freed(budgets):
		return waitFirst
	}
	return searchAnew
}

// freed reports whether the budget of some pool lets more nodes go than at the last search. Then that search may have found nothing only
// because empty nodes, which go first, had used the budget up.
func (l *lastSearch) freed(budgets *ledger) bool {
	for pool, n := range l.cramped {
		if budgets.Left(pool, v1.DisruptionReasonUnderutilized) > n {
			return true
		}
	}
	return false
}

// report writes what the search found into a proposal, and makes its Next no later than the end of sameUntil and waitUntil.
func (l *lastSearch) report(out *Proposal, now time.Time) {
	out.Before, out.Target = l.before, l.target
	maps.Copy(out.HeldBack, l.heldBack)
	for _, at := range []time.Time{l.waitUntil, l.sameUntil} {
		if at.After(now) {
			out.by(at)
		}
	}
}

// A fingerprint differs between worlds in which a search could find different steps. It covers what may move, the room for it, what
// else waits for room, what can be bought, and what budgets allow. It leaves out what the answer does not depend on, such as the status
// of pods and when nodes last reported.
type fingerprint struct {
	sum      uint64
	catalogs map[string]*cloud.Catalog
}

func (f fingerprint) equals(other fingerprint) bool {
	return f.sum == other.sum && maps.Equal(f.catalogs, other.catalogs)
}

// fingerprint returns the fingerprint of the world for a search among the movers. Lists are hashed in their order, which is fixed:
// nodes and pods are sorted in a snapshot. Each list is written with its length or an end mark, so that a pod that goes from one node
// to the next changes the sum.
func (s *search) fingerprint(movers []*Candidate) fingerprint {
	h := fnv.New64a()
	buf := make([]byte, 0, 128)
	text := func(parts ...string) {
		for _, part := range parts {
			buf = identity.Text(buf[:0], part)
			_, _ = h.Write(buf)
		}
	}
	number := func(n int) {
		buf = identity.Number(buf[:0], int64(n))
		_, _ = h.Write(buf)
	}
	flag := func(yes bool) {
		buf = identity.Flag(buf[:0], yes)
		_, _ = h.Write(buf)
	}
	number(len(movers))
	for _, c := range movers {
		text(string(c.Node.Claim.UID))
		number(int(c.Price + c.Risk))
	}
	number(len(s.survey.waiting))
	for _, p := range s.survey.waiting {
		text(string(p.UID))
	}
	for n := range s.survey.w.Snap.Nodes() {
		flag(true)
		text(n.Name)
		flag(s.whatIf.gated[n.Name])
		number(len(n.Pods))
		for _, p := range n.Pods {
			text(string(p.UID))
			flag(!p.Deleted.IsZero())
		}
	}
	flag(false) // the list of nodes ends here
	number(len(s.survey.resting.still))
	for _, p := range s.survey.resting.still {
		text(string(p.UID), s.survey.resting.at[p])
		number(int(p.Class.ID))
	}
	for _, name := range slices.Sorted(maps.Keys(s.survey.w.Pools)) {
		pool := s.survey.w.Pools[name].Pool
		text(name, string(pool.UID))
		number(int(pool.Generation)) // of the spec: the status of a pool changes with every claim
		number(s.ledger.Left(name, v1.DisruptionReasonUnderutilized))
		flag(s.survey.w.Rollouts[name].Still)
	}
	return fingerprint{h.Sum64(), catalogsOf(s.survey.w)}
}
