package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/bits"
)

// featuresOf returns the features that kube-scheduler wants a node to declare for a pod; nil for nearly all pods. An API server accepts
// such a pod only where nodes declare features, so no version has to be asked for. What the library looks at of a pod is kept by podclass.
func featuresOf(spec *corev1.PodSpec) (out []string) {
	for _, f := range features.AllFeatures {
		if f.InferForScheduling(&types.PodInfo{Spec: spec}) {
			out = append(out, f.Name())
		}
	}
	return out
}

// declares reports whether the kubelet of a node declares all of the features.
func (n *nodeInfo) declares(features []string) bool {
	return !slices.ContainsFunc(features, func(f string) bool { return !slices.Contains(n.row.Node.Status.DeclaredFeatures, f) })
}

// lacking returns which of the nodes and templates do not have the features.
func (w *world) lacking(features []string, nodes, tmpls bits.Set, templates []*template) (onNodes, onTemplates bits.Set) {
	pools := w.poolsWithout(features)
	onNodes, onTemplates = bits.Make(len(w.nodes)), bits.Make(len(templates))
	for i := range nodes.All() {
		if n := w.nodes[i]; n.row.Node == nil && pools[n.pool] || n.row.Node != nil && !n.declares(features) {
			onNodes.Add(i)
		}
	}
	for t := range tmpls.All() {
		if pools[templates[t].pool.Name] {
			onTemplates.Add(t)
		}
	}
	return onNodes, onTemplates
}

// poolsWithout returns the pools whose next nodes are expected to lack the features: they have nodes, and none of these declares them.
// Drifted nodes do not count, because new nodes will differ from them. A pool without nodes is expected to have the features: new machines
// run the minor version of the API server, which accepted the pod. If that is wrong, the first node shows it, and package bindfail limits
// how often the pool is tried again.
func (w *world) poolsWithout(features []string) map[string]bool {
	without, with := map[string]bool{}, map[string]bool{}
	for _, n := range slices.Concat(w.nodes, w.leaving) {
		switch {
		case n.row.Node == nil || n.row.Claim == nil || condition.IsTrue(n.row.Claim, v1.ConditionTypeDrifted):
		case n.declares(features):
			with[n.pool] = true
		default:
			without[n.pool] = true
		}
	}
	for pool := range with {
		delete(without, pool)
	}
	return without
}
