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
// for that, the node goes first if the feature gate for the reason is on, and the pool is filled when it is gone;
// else it stays, with a refusal.
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
		left := stand.Headroom(input.Pool)
		var opening *engine.Opening
		for _, c := range s.ledger.Fits(of.reason, list) {
			why := Refusal{Code: NoPlace, Limits: []string{name}}
			first := left <= 0 && s.survey.settings.terminatesFirst(of.reason)
			switch {
			case first: // what can be launched once the node is gone
				opening, why = s.openingOf(input, map[string]bool{c.Name(): true})
			case left > 0 && opening == nil:
				opening, why = s.openingOf(input, nil)
			}
			if left <= 0 && !first || opening == nil {
				s.hold(of.reason, c, why)
				continue
			}
			s.ledger.Take(of.reason, []*Candidate{c})
			step := of.step(&part{remove: []*Candidate{c}, open: []engine.Opening{*opening}})
			if first {
				step.Open, step.First = nil, StaticAtLimit
			} else {
				left--
			}
			steps = append(steps, step)
		}
	}
	return steps
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
