package disrupt

import (
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/static"
)

// staticDrifts proposes to replace drifted nodes of pools with a fixed number of nodes, each by a node as its pool
// asks for it now, whatever its pods need. As many go at once as the budgets and the pool's limit of nodes allow,
// which is never exceeded, not even by a node on its way.
//
// Such a pool is not asked what its pods need, since its nodes are there for their own sake. One goes when its like
// has come, so for a while there is one more than the pool wants; where the pool's limit of nodes leaves no room
// for that, the node stays and says so.
func (s *search) staticDrifts(candidates []*Candidate) (steps []*Step) {
	byPool := map[string][]*Candidate{}
	for _, c := range candidates {
		if c.Static() && c.replaceable() && !s.w.NotReady[c.Pool.Name] && c.Pool.DeletionTimestamp == nil {
			byPool[c.Pool.Name] = append(byPool[c.Pool.Name], c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byPool)) {
		input, list := s.w.Pools[name], byPool[name]
		stand := static.StandOf(s.w.Snap, name, func(*v1.NodeClaim) bool { return false })
		if len(stand.Active)+stand.Leaving > int(*input.Pool.Spec.Replicas) {
			continue // those that are too many go first
		}
		slices.SortFunc(list, byDrift)
		left := stand.Headroom(input.Pool)
		var opening *engine.Opening
		for _, c := range s.ledger.Fits(v1.DisruptionReasonDrifted, list) {
			why := Refusal{Code: NoPlace, Limits: []string{name}}
			if left > 0 && opening == nil {
				opening, why = s.openingOf(input)
			}
			if left <= 0 || opening == nil {
				s.hold(c, why)
				continue
			}
			s.ledger.Take(v1.DisruptionReasonDrifted, []*Candidate{c})
			left--
			steps = append(steps, driftStep(&part{remove: []*Candidate{c}, open: []engine.Opening{*opening}}))
		}
	}
	return steps
}

func (s *search) openingOf(pool engine.Pool) (*engine.Opening, Refusal) {
	o, why := static.Opening(s.w.Engine, pool, engine.Question{Snap: s.w.Snap, Settings: s.w.Terms, Now: s.w.Now, Ended: s.w.Ended})
	if why != nil {
		return nil, Refusal{Code: NoPlace, Why: why}
	}
	return &o, Refusal{}
}
