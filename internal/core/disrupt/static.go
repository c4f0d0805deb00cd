package disrupt

import (
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/static"
)

// replaceStatic proposes to replace candidates of static pools, which have a fixed number of nodes. Each gets a node as its pool asks
// for it now; the pods do not matter. As many go at once as the budgets and the pool's limit of nodes allow. Candidates of other pools
// are ignored.
//
// A node goes after its replacement has come, so for a while there is one node more than the pool wants. If the limit of nodes leaves
// no room for that, or the replacement needs the node's own place in a capacity reservation, the node goes first, if the feature gate
// for the reason is on: the pool is filled after it has gone. Otherwise it stays, with a refusal (hold).
func (s *search) replaceStatic(of replacing, candidates []*Candidate) (steps []*Step) {
	byPool := map[string][]*Candidate{}
	for _, c := range candidates {
		if c.Static() && !s.survey.w.NotReady[c.Pool.Name] && c.Pool.DeletionTimestamp == nil {
			byPool[c.Pool.Name] = append(byPool[c.Pool.Name], c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		input, list := s.survey.w.Pools[name], byPool[name]
		noneGone := func(*v1.NodeClaim) bool { return false } // the snapshot shows all deletions
		stand := static.StandOf(s.survey.w.Snap, name, noneGone)
		if len(stand.Active)+stand.Leaving > int(*input.Pool.Spec.Replicas) {
			continue // the pool has too many nodes: the surplus goes first
		}
		beside := besides{pool: input, left: stand.Headroom(input.Pool), first: s.survey.settings.terminatesFirst(of.reason)}
		beside.why = Refusal{Code: NoPlace, Limits: []string{name}}
		if beside.left > 0 {
			beside.opening, beside.why = s.openingOf(input, nil)
		}
		if beside.opening == nil && beside.first { // nodes of reservations come first: they may have a successor where others have none
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

// besides says which new nodes a static pool may have beside its present ones.
type besides struct {
	pool    engine.Pool
	left    int             // how many more nodes its limit allows
	first   bool            // a node may go before its replacement comes: the feature gate is on
	opening *engine.Opening // a new node, nil if there can be none beside the present ones
	why     Refusal         // why opening is nil
}

// successor returns the opening that replaces a node of a static pool, and why the node goes first, "" if it does not. If nothing can
// replace it, the opening is nil and why has the reason.
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
	gone := map[string]bool{c.Name(): true} // from here on: what can be launched after the node has gone
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

// openingOf returns the opening for a new node of a static pool, in a world without the nodes of gone, or nil and why there can be none.
func (s *search) openingOf(pool engine.Pool, gone map[string]bool) (*engine.Opening, Refusal) {
	w := s.survey.w
	question := engine.Question{Snap: w.Snap, Gone: gone, Settings: w.Terms, Now: w.Now, Ended: w.Ended}
	o, why := static.Opening(w.Engine, pool, question)
	if why != nil {
		return nil, Refusal{Code: NoPlace, Why: why}
	}
	return &o, Refusal{}
}
