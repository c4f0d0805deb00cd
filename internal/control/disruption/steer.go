package disruption

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// steeredAtOnce bounds how many nodes one turn changes. The rest can wait for the next turn.
const steeredAtOnce = 10

// steer adds or removes the taint that makes new pods prefer other nodes, as steering demands (see disrupt.Steering).
func (l *Loop) steer(ctx context.Context, steering disrupt.Steering) {
	nodes := slices.SortedFunc(maps.Keys(steering), func(a, b *cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	nodes = nodes[:min(len(nodes), steeredAtOnce)]
	wanted := map[string]bool{}
	for _, n := range nodes {
		wanted[n.Claim.Name] = steering[n]
	}
	claims := sortedKeys(wanted)
	errs := lookAfter(claims, itself, func(claim string) error {
		return l.editNode(ctx, claim, func(node *corev1.Node) bool { return avoid(node, wanted[claim]) })
	})
	for i, err := range errs {
		if err != nil { // the next look tries again
			telemetry.Log(ctx).Error("cannot change which nodes new pods are kept off", "NodeClaim", claims[i], "error", err)
		}
	}
}

// avoid adds the taint to a Node or removes it, and reports whether that changed anything. A Node that is being deleted is left alone,
// and a Node that is being disrupted gets no taint.
func avoid(n *corev1.Node, want bool) bool {
	if disrupt.Avoided(n) == want || n.DeletionTimestamp != nil || want && slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
		return false
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1.UnderusedTaintKey })
	if want {
		n.Spec.Taints = append(n.Spec.Taints, v1.UnderusedTaint())
	}
	return true
}
