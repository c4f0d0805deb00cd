package disrupt

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/movable"
)

// balance is k: a move of a pool with policy Balanced must save at least 1/k of what it disturbs, both taken as
// parts of the whole pool.
const balance = 2

// totals is what a pool costs and what it would cost to move everything in it.
type totals struct {
	price      cloud.NanoUSD
	disruption float64
}

// A PoolScore is the verdict of one pool with policy Balanced on a step.
type PoolScore struct {
	Pool                string
	Score               float64
	Savings, Disruption float64 // parts of the pool's price and of its pods, 0 to 1
}

// Approved tells whether the score is good enough.
func (s PoolScore) Approved() bool { return s.Score >= 1.0/balance }

// poolTotals adds up price and disruption of every node of every pool, candidate or not.
func poolTotals(w *World) map[string]totals {
	out := map[string]totals{}
	for n := range w.Snap.Nodes() {
		if n.Claim == nil || n.Node == nil {
			continue
		}
		name := n.Node.Labels[v1.NodePoolLabelKey]
		p, ok := w.Pools[name]
		if !ok {
			continue
		}
		t := out[name]
		price, _ := priceOf(p.Catalog, n)
		t.price += price
		t.disruption++
		for _, pod := range n.Pods {
			if !pod.DaemonSet && !pod.Mirror {
				t.disruption += max(0, movable.EvictionCost(pod))
			}
		}
		out[name] = t
	}
	return out
}

// score judges a step for every pool with policy Balanced among its nodes. A saving across pools is split by
// what each pool pays for the nodes that go.
func score(s *Step, all map[string]totals) []PoolScore {
	type share struct {
		price      cloud.NanoUSD
		disruption float64
	}
	shares := map[string]share{}
	balanced := map[string]bool{}
	for _, c := range s.Remove {
		sh := shares[c.Pool.Name]
		sh.price += c.Price
		sh.disruption += c.Cost
		shares[c.Pool.Name] = sh
		balanced[c.Pool.Name] = c.Pool.Spec.Disruption.ConsolidationPolicy == v1.ConsolidationPolicyBalanced
	}
	var out []PoolScore
	for _, pool := range slices.Sorted(maps.Keys(shares)) {
		if !balanced[pool] {
			continue
		}
		sh, t := shares[pool], all[pool]
		verdict := PoolScore{Pool: pool}
		if t.price > 0 && t.disruption > 0 {
			part := 1.0
			if s.Before > 0 {
				part = float64(sh.price) / float64(s.Before)
			}
			verdict.Savings = part * float64(s.Saves()) / float64(t.price)
			verdict.Disruption = sh.disruption / t.disruption
			verdict.Score = ratio(verdict.Savings, verdict.Disruption)
		}
		out = append(out, verdict)
	}
	return out
}

func ratio(savings, disruption float64) float64 {
	switch {
	case savings <= 0:
		return 0
	case disruption <= 0:
		return math.Inf(1)
	}
	return savings / disruption
}

// approved tells whether every pool agrees.
func approved(scores []PoolScore) bool {
	return !slices.ContainsFunc(scores, func(s PoolScore) bool { return !s.Approved() })
}

// spot tells whether a candidate runs on spot capacity.
func (c *Candidate) spot() bool {
	return c.Node.Node.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot
}

// typeName is the instance type of a candidate.
func (c *Candidate) typeName() string { return c.Node.Node.Labels[corev1.LabelInstanceTypeStable] }
