package disrupt

import (
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/static"
)

// replaceStatic proposes to replace those of some nodes that belong to pools with a fixed number of nodes, each by a node as its pool
// asks for it now, whatever its pods need. As many go at once as the budgets and the pool's limit of nodes allow,
// which is never exceeded, not even by a node on its way.
//
// Such a pool is not asked what its pods need, since its nodes are there for their own sake. One goes when its like
// has come, so for a while there is one more than the pool wants. Where the pool's limit of nodes leaves no room
// for that, or only the node's own place in a capacity reservation would take the other one, the node goes first if the
// feature gate for the reason is on, and the pool is filled when it is gone; else it stays, with a refusal.
func (s *search) replaceStatic(of replacing, candidates []*Candidate) (steps []*Step) {
	byPool := map[string][]*Candidate{}
	for _, c := range candidates {
		if c.Static() && !s.survey.w.NotReady[c.Pool.Name] && c.Pool.DeletionTimestamp == nil {
			byPool[c.Pool.Name] = append(byPool[c.Pool.Name], c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		input, list := s.survey.w.Pools[name], byPool[name]
		stand := static.StandOf(s.survey.w.Snap, name, func(*v1.NodeClaim) bool { return false })
		if len(stand.Active)+stand.Leaving > int(*input.Pool.Spec.Replicas) {
			continue // those that are too many go first
		}
		beside := besides{pool: input, left: stand.Headroom(input.Pool), first: s.survey.settings.terminatesFirst(of.reason)}
		beside.why = Refusal{Code: NoPlace, Limits: []string{name}}
		if beside.left > 0 {
			beside.opening, beside.why = s.openingOf(input, nil)
		}
		if beside.opening == nil && beside.first { // the others stay in any case
			slices.SortStableFunc(list, func(a, b *Candidate) int {
				return compareBool(s.survey.reservationOf(b.Node.Claim) != "", s.survey.reservationOf(a.Node.Claim) != "")
			})
		}
		for _, c := range s.ledger.Fits(of.reason, list) {
			opening, first, why := s.successor(&beside, c)
			if opening == nil {
				s.hold(of.reason, c, why)
				continue
			}
			s.ledger.Take(of.reason, []*Candidate{c})
			step := of.step(&part{remove: []*Candidate{c}, open: []engine.Opening{*opening}})
			step.First = first
			if first == "" {
				beside.left--
			} else {
				step.Open = nil
			}
			steps = append(steps, step)
		}
	}
	return steps
}

// besides is what a static pool may have beside its nodes.
type besides struct {
	pool    engine.Pool
	left    int  // nodes, by its limit
	first   bool // a node may go before its replacement comes
	opening *engine.Opening
	why     Refusal // there is none
}

// successor returns what replaces a node of a static pool, and why the node goes first, if it does; or why nothing replaces it.
func (s *search) successor(b *besides, c *Candidate) (o *engine.Opening, first TerminateFirst, why Refusal) {
	if b.opening != nil && b.left > 0 {
		return b.opening, "", Refusal{}
	}
	why = b.why
	if b.opening != nil {
		why = Refusal{Code: NoPlace, Limits: []string{b.pool.Pool.Name}}
	}
	if !b.first {
		return nil, "", why
	}
	gone := map[string]bool{c.Name(): true} // what can be launched once the node is
	if b.left <= 0 {
		if o, why = s.openingOf(b.pool, gone); o != nil {
			return o, StaticAtLimit, why
		}
	}
	if id := s.survey.reservationOf(c.Node.Claim); id != "" {
		o, why = s.openingOf(withPlace([]engine.Pool{b.pool}, id)[0], gone)
	}
	return o, NoReservedCapacity, why
}

// openingOf returns a new node of a static pool when some nodes are gone, or why there can be none.
func (s *search) openingOf(pool engine.Pool, gone map[string]bool) (*engine.Opening, Refusal) {
	w := s.survey.w
	question := engine.Question{Snap: w.Snap, Gone: gone, Settings: w.Terms, Now: w.Now, Ended: w.Ended}
	o, why := static.Opening(w.Engine, pool, question)
	if why != nil {
		return nil, Refusal{Code: NoPlace, Why: why}
	}
	return &o, Refusal{}
}
