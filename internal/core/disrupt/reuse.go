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

// May the last answer be used again? A search costs far more than anything else here, and a cluster never stands
// still: pods start, report and stop, and nearly none of it can change the answer. So a pass that found nothing is
// remembered in two ways, a record that costs nothing to compare with (lastPass) and a record that knows what an
// answer depends on (lastSearch), both for five minutes, because prices and availability change without an event.
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
	// sameFor is how long the same world has the same answer.
	sameFor = 5 * time.Minute
	// betweenSearches is how long a search that found nothing is not repeated in another world.
	betweenSearches = 10 * time.Second
)

// lastPass is the world in which a pass found nothing that could ever be done without a change. The zero value is like no world.
type lastPass struct {
	news     uint64
	catalogs map[string]*cloud.Catalog
	until    time.Time
	surge    uint64
}

// same reports whether w is that world.
func (l *lastPass) same(w *World) bool {
	return l.news == w.Snap.News() && l.surge == w.SurgeTurn && w.Now.Before(l.until) && maps.Equal(l.catalogs, catalogsOf(w))
}

// catalogsOf are what each pool can launch: another pointer is another catalogue.
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
	// Until sameUntil the same world has the same answer; until waitUntil not even another one is looked at. Both are zero when there
	// was something to do.
	sameUntil, waitUntil time.Time
	// cramped says how many nodes could go of the pools whose budgets were in use then, at least in part.
	cramped map[string]int

	before, target cloud.NanoUSD
	heldBack       map[string]cloud.NanoUSD // not changed
}

// verdict says what to do in a world.
func (l *lastSearch) verdict(world fingerprint, budgets *ledger, now time.Time) verdict {
	switch {
	case now.Before(l.sameUntil) && l.world.equals(world):
		return sameAnswer
	case now.Before(l.waitUntil) && !l.freed(budgets):
		return waitFirst
	}
	return searchAnew
}

// freed reports whether budgets let more go than then: empty nodes, which go first, may have used them up, and then nothing was found only
// because nothing was allowed.
func (l *lastSearch) freed(budgets *ledger) bool {
	for pool, n := range l.cramped {
		if budgets.Left(pool, v1.DisruptionReasonUnderutilized) > n {
			return true
		}
	}
	return false
}

// tell hands on what is known.
func (l *lastSearch) tell(out *Proposal, now time.Time) {
	out.Before, out.Target = l.before, l.target
	maps.Copy(out.HeldBack, l.heldBack)
	for _, at := range []time.Time{l.waitUntil, l.sameUntil} {
		if at.After(now) {
			out.by(at)
		}
	}
}

// A fingerprint tells worlds apart in which a search could find different steps: what may move, which room there is for it, what else
// waits for room, what can be bought, and what budgets allow.
//
// What is left out is what the answer does not depend on: what pods say of themselves, when nodes last reported, which pods are bound
// where among those that cannot move. Two worlds that differ only in that have the same steps. Catalogues are compared by pointer: prices
// change rarely, and then for everything.
type fingerprint struct {
	sum      uint64
	catalogs map[string]*cloud.Catalog
}

func (f fingerprint) equals(other fingerprint) bool {
	return f.sum == other.sum && maps.Equal(f.catalogs, other.catalogs)
}

// Order is part of it where order is fixed (nodes and pods are sorted in a snapshot), so no set has to be built. Each list is
// written with its length or its end, so that a pod that goes from one node to the next makes another fingerprint.
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
