// Package deletioncost decides which pods a ReplicaSet removes first when it is scaled in: the pods of nodes that are removed next. The
// ReplicaSet controller reads the annotation controller.kubernetes.io/pod-deletion-cost and removes the pods with the lowest values first.
//
//	node                                          value of its pods
//	is being removed                              Leaving
//	drifted                                       from Drifted upwards, one number for each node
//	new pods are kept off it (consolidation)      from Underused upwards, one number for each node
//	any other                                     none: a value that Karpenter wrote is removed
//
// A node keeps its number, so pods are written only when a node enters or leaves the order, or a pod comes. A value that Karpenter did not
// write is never touched.
package deletioncost

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
)

// Values of pods. Drifted and Underused are those of the first node of their kind; the next ones count upwards.
const (
	Leaving   = math.MinInt32
	Drifted   = -2_000_000
	Underused = -1_000_000
	nodesMost = 1_000_000 // of one kind
)

// An Edit changes the annotation of one pod.
type Edit struct {
	Pod    *cluster.Pod
	Node   *cluster.Node
	Value  int32
	Remove bool // remove the annotation instead of setting Value
}

// Edits returns the annotations that have to be written or removed, by ascending value and node; removals come last.
func Edits(snap *cluster.Snapshot) (out []Edit) {
	kinds := map[int32][]*cluster.Node{}
	var others []*cluster.Node
	for n := range snap.Nodes() {
		if first, ranked := kindOf(n); ranked {
			kinds[first] = append(kinds[first], n)
		} else {
			others = append(others, n)
		}
	}
	for _, n := range kinds[Leaving] {
		out = edits(out, n, Leaving, false)
	}
	for _, first := range []int32{Drifted, Underused} {
		for value, n := range numbered(kinds[first], first) {
			out = edits(out, n, value, false)
		}
	}
	for _, n := range others {
		out = edits(out, n, 0, true)
	}
	return out
}

// kindOf returns the first value of n's kind (Leaving, Drifted or Underused), and false if n is of none of them.
func kindOf(n *cluster.Node) (first int32, ranked bool) {
	switch {
	case n.Claim == nil || n.Node == nil:
		return 0, false
	case n.MarkedForRemoval:
		return Leaving, true
	case condition.IsTrue(n.Claim, v1.ConditionTypeDrifted):
		return Drifted, true
	case disrupt.Avoided(n.Node):
		return Underused, true
	}
	return 0, false
}

// numbered yields each node of a kind with its value, in ascending order. A node keeps the value that its pods have.
// Other nodes get the next free numbers.
func numbered(nodes []*cluster.Node, first int32) iter.Seq2[int32, *cluster.Node] {
	const none = math.MaxInt32
	value := make(map[*cluster.Node]int32, len(nodes))
	next := first
	for _, n := range nodes {
		value[n] = none
		for _, p := range n.Pods {
			if v := p.DeletionCost.Value; p.DeletionCost.Ours && v >= first && v < first+nodesMost {
				value[n] = min(value[n], v)
				next = max(next, v+1)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *cluster.Node) int {
		return cmp.Or(cmp.Compare(value[a], value[b]), cmp.Compare(a.Name, b.Name))
	})
	return func(yield func(int32, *cluster.Node) bool) {
		for _, n := range nodes {
			v := value[n]
			if v == none {
				v = min(next, first+nodesMost-1)
				next++
			}
			if !yield(v, n) {
				return
			}
		}
	}
}

// edits appends the edits for the pods of a node that do not have the value yet, or, with remove, that still have one. It leaves out pods
// without a ReplicaSet, because nothing else reads the annotation.
func edits(out []Edit, n *cluster.Node, value int32, remove bool) []Edit {
	for _, p := range n.Pods {
		cost := p.DeletionCost
		foreign := cost.Set && !cost.Ours
		if p.Owner == nil || p.Owner.Kind != "ReplicaSet" || !p.Deleted.IsZero() || foreign {
			continue
		}
		if remove && cost.Set || !remove && (!cost.Set || cost.Value != value) {
			out = append(out, Edit{Pod: p, Node: n, Value: value, Remove: remove})
		}
	}
	return out
}
