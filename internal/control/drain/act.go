package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// close adds the disrupted taint and the label that excludes the node from load balancers, as far as they are missing.
func (l *Loop) close(ctx context.Context, old *corev1.Node) error {
	node := old.DeepCopy()
	taint := v1.DisruptedTaint()
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	if node.Labels[corev1.LabelNodeExcludeBalancers] == "" {
		metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelNodeExcludeBalancers, v1.NodeExcludedFromLoadBalancersLabelValue)
	}
	if equality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints) && equality.Semantic.DeepEqual(node.Labels, old.Labels) {
		return nil
	}
	if err := l.Client.Patch(ctx, node, patch.Over(old)); err != nil {
		return fmt.Errorf("taint node %s: %w", old.Name, err)
	}
	telemetry.Log(ctx).Info("tainted node", "Node", old.Name, "taint.Key", taint.Key, "taint.Value", taint.Value,
		"taint.Effect", taint.Effect)
	return nil
}

// bound asks the API server for the pods of a node, and returns them as rows. The store is not used, because it may lag behind.
func (l *Loop) bound(ctx context.Context, node *corev1.Node) ([]*cluster.Pod, error) {
	var list corev1.PodList
	if err := l.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node.Name, err)
	}
	own := cluster.NewStore() // a store with this node alone, to make rows
	own.Update(func(d *cluster.Draft) {
		d.PutNode(node)
		for i := range list.Items {
			d.PutPod(&list.Items[i])
		}
	})
	return own.Snapshot().Node(node.Name).Pods, nil
}

// write writes the conditions of the claim, if they have changed, and reports a node that is drained now.
func (w *work) write(ctx context.Context) error {
	if w.claim == nil || equality.Semantic.DeepEqual(w.claim.Status, w.row.Claim.Status) {
		return nil
	}
	written := w.claim.DeepCopy()
	if err := w.Client.Status().Patch(ctx, written, patch.Over(w.row.Claim)); err != nil {
		return fmt.Errorf("write status of claim %s: %w", w.claim.Name, err)
	}
	w.Store.Update(func(d *cluster.Draft) { d.PutClaim(written) })
	if w.drained {
		w.reportDrained(w.row.Node)
	}
	return nil
}

// release removes our finalizer from the node, so that the API server deletes it.
func (l *Loop) release(ctx context.Context, row *cluster.Node) error {
	node := row.Node.DeepCopy()
	node.Finalizers = slices.DeleteFunc(node.Finalizers, func(f string) bool { return f == v1.TerminationFinalizer })
	if err := l.Client.Patch(ctx, node, patch.Over(row.Node)); err != nil {
		return fmt.Errorf("take the finalizer off node %s: %w", row.Name, err)
	}
	l.reportReleased(ctx, row.Node)
	return nil
}
