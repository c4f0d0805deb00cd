package disrupt

import (
	"math"
	"testing"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestBalancedScores(t *testing.T) {
	for name, tc := range map[string]struct {
		pool                poolSum
		savings, disruption float64
		score               float64
		approved            bool
	}{
		"an oversized node goes":                        {poolSum{price: cloud.FromDollars(58.08), cost: 90}, 7.26, 4, 2.81, true},
		"a spare node goes":                             {poolSum{price: cloud.FromDollars(58.08), cost: 90}, 4.84, 5, 1.50, true},
		"a marginal move does not":                      {poolSum{price: cloud.FromDollars(58.08), cost: 90}, 2.42, 9, 0.42, false},
		"a move that saves nothing does not":            {poolSum{price: cloud.FromDollars(58.08), cost: 90}, 0, 9, 0, false},
		"a move just at the threshold does":             {poolSum{price: cloud.FromDollars(48.40), cost: 90}, 2.42, 9, 0.50, true},
		"the whole of a pool of one node may go":        {poolSum{price: cloud.FromDollars(1), cost: 3}, 1, 3, 1, true},
		"ten times the pool and the move is no change":  {poolSum{price: cloud.FromDollars(580.8), cost: 900}, 24.2, 90, 0.42, false},
		"without totals nothing can be approved":        {poolSum{}, 1, 1, 0, false},
		"a move that disturbs nothing but saves may go": {poolSum{price: cloud.FromDollars(10), cost: 10}, 1, 0, math.Inf(1), true},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1.NodePool{}
			pool.Name, pool.Spec.Disruption.ConsolidationPolicy = "p", v1.ConsolidationPolicyBalanced
			step := &Step{Remove: []*Candidate{{Pool: pool, Price: cloud.FromDollars(tc.savings), Cost: tc.disruption}}, Before: cloud.FromDollars(tc.savings)}
			got := (&survey{pools: map[string]*poolSum{"p": &tc.pool}}).score(step)
			if len(got) != 1 || math.Abs(got[0].Score-tc.score) > 0.006 || approved(got) != tc.approved {
				t.Errorf("score = %+v, want %v, approved %v", got, tc.score, tc.approved)
			}
		})
	}
}

func TestBalancedPoolsHaveAVetoAndOthersNoSay(t *testing.T) {
	pool := func(name string, policy v1.ConsolidationPolicy) *v1.NodePool {
		p := &v1.NodePool{}
		p.Name, p.Spec.Disruption.ConsolidationPolicy = name, policy
		return p
	}
	good, bad, plain := pool("good", v1.ConsolidationPolicyBalanced), pool("bad", v1.ConsolidationPolicyBalanced), pool("plain", v1.ConsolidationPolicyWhenEmptyOrUnderutilized)
	all := &survey{pools: map[string]*poolSum{"good": {price: 100, cost: 10}, "bad": {price: 100000, cost: 10}, "plain": {price: 100, cost: 10}}}
	step := func(pools ...*v1.NodePool) *Step {
		s := &Step{}
		for _, p := range pools {
			s.Remove = append(s.Remove, &Candidate{Pool: p, Price: 50, Cost: 5})
			s.Before += 50
		}
		return s
	}
	for name, tc := range map[string]struct {
		step *Step
		want bool
	}{
		"one pool that agrees":            {step(good), true},
		"one pool that does not":          {step(good, bad), false},
		"pools of other policies":         {step(plain), true},
		"a plain pool beside a good one":  {step(plain, good), true},
		"a plain pool cannot outvote one": {step(plain, bad), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := approved(all.score(tc.step)); got != tc.want {
				t.Errorf("approved = %v, want %v", got, tc.want)
			}
		})
	}
}
