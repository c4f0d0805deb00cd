package disrupt

import (
	"maps"
	"math"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// balance is k: in a pool with policy Balanced, the saved part of the price must be at least 1/k of the moved part of the pods.
const balance = 2

// A PoolScore is the verdict of one pool with policy Balanced on a step.
type PoolScore struct {
	Pool                string
	Score               float64 // Savings / Disruption
	Savings, Disruption float64 // parts of the pool's price and of its pods, 0 to 1
}

// Approved reports whether the score is good enough.
func (s PoolScore) Approved() bool { return s.Score >= 1.0/balance }

// score returns the score of a step for every pool with policy Balanced among its nodes, sorted by pool. A saving across pools is split
// by the price of the nodes that each pool loses.
//
// Savings and disruption are parts of the pool, so a pool of ten nodes and one of a thousand are judged alike: to move half of the pods,
// half of the money must be saved, divided by balance.
func (s *survey) score(step *Step) []PoolScore {
	shares := map[string]poolSum{}
	balanced := map[string]bool{}
	for _, c := range step.Remove {
		sh := shares[c.Pool.Name]
		sh.price += c.Price
		sh.cost += c.Cost
		shares[c.Pool.Name] = sh
		balanced[c.Pool.Name] = c.Pool.Spec.Disruption.ConsolidationPolicy == v1.ConsolidationPolicyBalanced
	}
	var out []PoolScore
	for _, pool := range slices.Sorted(maps.Keys(shares)) {
		if !balanced[pool] {
			continue
		}
		sh, all := shares[pool], s.pools[pool]
		verdict := PoolScore{Pool: pool}
		if all != nil && all.price > 0 {
			part := 1.0
			if step.Before > 0 {
				part = float64(sh.price) / float64(step.Before)
			}
			verdict.Savings = part * float64(step.Saves()) / float64(all.price)
			verdict.Disruption = sh.cost / all.cost
			verdict.Score = ratio(verdict.Savings, verdict.Disruption)
		}
		out = append(out, verdict)
	}
	return out
}

// ratio is savings by disruption: 0 if nothing is saved, infinite if something is saved and nothing disturbed.
func ratio(savings, disruption float64) float64 {
	switch {
	case savings <= 0:
		return 0
	case disruption <= 0:
		return math.Inf(1)
	}
	return savings / disruption
}

// approved reports whether the score of every pool is good enough.
func approved(scores []PoolScore) bool {
	return !slices.ContainsFunc(scores, func(s PoolScore) bool { return !s.Approved() })
}
