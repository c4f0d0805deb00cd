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
	// mostAvoided is the part of the nodes that new pods may be kept off at a time: the rest must have room for a normal day.
	mostAvoided = 0.2
	// mostLeft is that part while the fleet is far from its target. Most of what comes to a node then was moved,
	// and kube-scheduler would give it to the emptiest, which go next: the same pods would move twice.
	mostLeft = 0.9
	// stickiness is how much more a node seems to waste once new pods are kept off it, so that the choice does not change all day.
	stickiness = 1.5
)

// Steering says which nodes should carry the taint that makes kube-scheduler prefer other ones. By itself it
// spreads pods over the emptiest nodes, and so fills those again that could soon go. The taint forbids nothing: a
// pod that fits nowhere else still goes there.
//
// It is the cheapest way to consolidate: pods that end by themselves need no eviction, and if nothing new comes to a node it is empty some
// day. The taint asks kube-scheduler to prefer other nodes. On a few nodes at a time, those that waste most, because where most nodes are
// tainted none is.
type Steering map[*cluster.Node]bool

// Avoided reports whether new pods are kept off a node.
func Avoided(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1.UnderusedTaintKey })
}

// avoid chooses the nodes that waste most, as many as cost what the fleet is dearer than its target.
//
// As many nodes as the fleet could do without, judged by their price: to steer pods off more would only spread them over fewer. The one
// that would go by itself soonest is not known, so the most wasteful stands for it; those chosen before stay chosen unless another one is
// clearly worse, since pods need hours to come to an end. part is how many of the nodes may be chosen.
func avoid(order []*Candidate, wasted map[*Candidate]float64, goal target, part float64) map[types.UID]bool {
	most := func(c *Candidate) float64 {
		if Avoided(c.Node.Node) {
			return stickiness * wasted[c]
		}
		return wasted[c]
	}
	order = slices.Clone(order)
	slices.SortStableFunc(order, func(a, b *Candidate) int { return cmp.Compare(most(b), most(a)) })
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

// steer returns the verdict on each Karpenter node: a node that consolidation may remove is judged by the last
// search, a node that may not be removed must not be avoided, nor one of a pool whose budgets let none go, and a
// node that has only just seen a pod come or go, or is on its way out, keeps its taint.
//
// Every taint that is there must have a reason today. So it begins with taking all of them off, and keeps those of nodes about which the
// last search still holds: a taint that was forgotten would keep new pods off a good node for ever.
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
