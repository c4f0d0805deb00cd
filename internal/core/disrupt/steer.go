package disrupt

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

const (
	// mostAvoided is the largest part of the nodes that new pods may be kept off: the rest must have room for a normal day.
	mostAvoided = 0.2
	// mostLeft is that part while the fleet is recovering, which means far from its target. Most pods that come to a node then were
	// moved. kube-scheduler would put them on the emptiest nodes, which go next, so the same pods would move twice.
	mostLeft = 0.9
	// stickiness is the factor by which the waste of a node is raised once new pods are kept off it, so that the choice does not change
	// often.
	stickiness = 1.5
)

// Steering has the nodes whose taint has to change: true if the node should get the taint that makes kube-scheduler prefer other nodes,
// false if it should lose it. By itself kube-scheduler spreads pods over the emptiest nodes, and so fills nodes again that could soon go.
// The taint forbids nothing: a pod that fits nowhere else still goes there.
//
// It is the cheapest way to consolidate: if no new pods come to a node, its pods end by themselves and need no eviction. Only the few
// nodes that waste most are tainted, because the taint has no effect if most nodes have it.
type Steering map[*cluster.Node]bool

// Avoided reports whether a node has the taint that keeps new pods off it.
func Avoided(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1.UnderusedTaintKey })
}

// avoid chooses the nodes that new pods should be kept off: those that waste most, as many as the fleet could do without. Together they
// cost at most what the fleet is dearer than its target. Nodes that were chosen before stay chosen unless another one wastes clearly
// more (stickiness), since pods need hours to end. part is the largest part of the nodes that may be chosen; at least one may.
func avoid(order []*Candidate, wasted map[*Candidate]float64, goal target, part float64) map[types.UID]bool {
	waste := func(c *Candidate) float64 {
		if Avoided(c.Node.Node) {
			return stickiness * wasted[c]
		}
		return wasted[c]
	}
	order = slices.Clone(order)
	slices.SortStableFunc(order, func(a, b *Candidate) int { return cmp.Compare(waste(b), waste(a)) })
	out := map[types.UID]bool{}
	left := max(1, int(part*float64(len(order))))
	for surplus := goal.before - goal.after; left > 0 && len(order) > 1; left-- {
		i := slices.IndexFunc(order, func(c *Candidate) bool { return c.Price <= surplus })
		if i < 0 {
			break
		}
		surplus -= order[i].Price
		out[order[i].Node.Claim.UID] = true
		order = order[i+1:]
	}
	return out
}

// steer returns the nodes whose taint has to change. avoided are the claims that the last search chose, nil before the first search.
//
// Every taint must have a reason now, since a forgotten taint would keep new pods off a good node for ever. So steer begins with
// removing all taints, except from nodes that are part of a step or blocked by something that ends by itself (Code.Passes). Then it
// keeps those of candidates that consolidation may remove, even if a pod came or went there lately. At last it sets or removes the
// taint of each mover as the last search chose. Nodes of a pool whose budgets allow consolidation no node at all (frozen) lose their
// taints.
func (s *search) steer(candidates, movers []*Candidate, avoided map[types.UID]bool) Steering {
	frozen := func(c *Candidate) bool {
		return s.ledger.counts[c.Pool.Name].Raw[v1.DisruptionReasonUnderutilized] == 0
	}
	out := Steering{}
	for _, c := range s.survey.rows {
		if Avoided(c.Node.Node) && !s.survey.busy(c) && (c.Block == nil || !c.Block.Code.Passes() || c.Block.Code == NotInitialized) {
			out[c.Node] = false
		}
	}
	for _, c := range candidates {
		settling := *c // that a pod came or went is no reason to take a taint off
		settling.Consolidatable = true
		if _, ok := consolidates(&settling); c.Held == nil && !c.Static() && !frozen(c) && (ok || c.Empty()) {
			delete(out, c.Node)
		}
	}
	if avoided == nil {
		return out
	}
	for _, c := range movers {
		if want := avoided[c.Node.Claim.UID] && !frozen(c); want != Avoided(c.Node.Node) {
			out[c.Node] = want
		}
	}
	return out
}
