package disrupt

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// An outlook is what the last search for a cheaper fleet found. A cluster never stands still: pods start, report and stop, and nearly
// none of it can change the answer.
type outlook struct {
	world uint64 // signature of what the answer depends on
	// Until sameUntil the same world has the same answer; until nextLook not even another one is looked at. Both are zero when there
	// was something to do.
	sameUntil, nextLook time.Time
	// cramped says how many nodes could go of the pools whose budgets were in use then, at least in part.
	cramped map[string]int

	before, target cloud.NanoUSD
	heldBack       map[string]cloud.NanoUSD
}

// betweenLooks is how long the search rests after it has found nothing.
const betweenLooks = 10 * time.Second

// same tells whether the answer is known.
func (o *outlook) same(world uint64, now time.Time) bool {
	return world == o.world && now.Before(o.sameUntil)
}

// rests tells whether another world has to wait before it is looked at. One in which a budget is free again has not: empty nodes,
// which go first, may have used it up, and then nothing was found only because nothing was allowed.
func (o *outlook) rests(world uint64, l *Ledger, now time.Time) bool {
	for pool, n := range o.cramped {
		if l.Left(pool, v1.DisruptionReasonUnderutilized) > n {
			return false
		}
	}
	return !o.same(world, now) && now.Before(o.nextLook)
}

// tell hands on what is known.
func (o *outlook) tell(out *Proposal, now time.Time) {
	out.Before, out.Target = o.before, o.target
	maps.Copy(out.HeldBack, o.heldBack)
	for _, at := range []time.Time{o.nextLook, o.sameUntil} {
		if at.After(now) && at.Before(out.Next) {
			out.Next = at
		}
	}
}

// signature tells worlds apart in which a search could find different steps: what may move, which room there is for it, what else
// waits for room, what can be bought, and what budgets allow.
func (s *search) signature(movers []*Candidate) uint64 {
	h := fnv.New64a()
	text := func(parts ...string) {
		for _, part := range parts {
			_, _ = h.Write([]byte(part))
			_, _ = h.Write([]byte{0})
		}
	}
	number := func(n int) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	for _, c := range movers {
		text(string(c.Node.Claim.UID))
		number(int(c.Price))
	}
	number(len(s.q.waiting))
	for _, p := range s.q.waiting {
		text(string(p.UID))
	}
	for n := range s.w.Snap.Nodes() {
		text(n.Name)
		if s.q.gated[n.Name] {
			number(-1)
		}
		number(len(n.Pods))
		for _, p := range n.Pods {
			text(string(p.UID))
			if !p.Deleted.IsZero() {
				number(-2)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.w.Pools)) {
		input := s.w.Pools[name]
		text(name, fmt.Sprintf("%p", input.Catalog), string(input.Pool.UID))
		number(int(input.Pool.Generation))
		number(s.ledger.Left(name, v1.DisruptionReasonUnderutilized))
	}
	return h.Sum64()
}
