package claim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// staleWait is how long to wait for a newer snapshot after an API call showed that ours is old.
const staleWait = time.Second

// retryStale turns the error of a conflict, or of an object that is gone, into another look after staleWait: it only means that the
// snapshot was old. Other results are returned unchanged.
func retryStale(again time.Time, err error) (time.Time, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return time.Now().Add(staleWait), nil
	}
	return again, err
}

// write writes the Node and then the status of the claim that a step has, and reports the milestones that this reached. The Node comes
// first: if a crash comes between the two, the claim must not say something that is not on the Node yet.
func (l *Loop) write(ctx context.Context, v lifecycle.View, step lifecycle.Step) error {
	if step.Node != nil {
		if err := l.writeNode(ctx, v.Nodes[0], step.Node); err != nil {
			return fmt.Errorf("write node %s: %w", step.Node.Name, err)
		}
	}
	claim := v.Claim
	if step.Claim != nil {
		if err := l.writeStatus(ctx, v.Claim, step.Claim); err != nil {
			return err
		}
		claim = step.Claim
	}
	node := step.Node
	if node == nil && len(v.Nodes) > 0 { // the Node was written already, before a crash or a failed write of the claim
		node = v.Nodes[0]
	}
	for _, m := range step.Reached {
		l.reached(ctx, m, claim, node)
	}
	if step.Ended != nil {
		l.reportReboot(ctx, claim, step.Ended)
	}
	return nil
}

// reached reports one milestone of a claim in logs, metrics and events, and tells Health about it. node may be nil.
func (l *Loop) reached(ctx context.Context, m lifecycle.Milestone, claim *v1.NodeClaim, node *corev1.Node) {
	switch m {
	case lifecycle.RegisteredWithoutTaint:
		l.reportTaintMissing(ctx, claim, node)
	case lifecycle.Registered:
		l.reportRegistered(ctx, claim, node)
		l.Health.Registered(claim)
	case lifecycle.Initialized:
		l.reportInitialized(ctx, claim, node)
		l.Health.Ready(claim)
	case lifecycle.RebootObserved:
		l.Events.Tell(telemetry.Refs(nil, claim), telemetry.RebootObserved, sentence.RebootSeen)
	}
}

// To make a patch, the client compares the JSON of two whole objects. The functions below leave out of both objects what the patch does not
// change. Otherwise that would be most of the work when a thousand machines come at once.

// writeNode writes metadata and spec of a Node, only if the Node is still the version old.
func (l *Loop) writeNode(ctx context.Context, old, node *corev1.Node) error {
	patched := &corev1.Node{ObjectMeta: *node.ObjectMeta.DeepCopy(), Spec: *node.Spec.DeepCopy()}
	return l.Client.Patch(ctx, patched, patch.Over(&corev1.Node{ObjectMeta: old.ObjectMeta, Spec: old.Spec}))
}

// onlyStatus returns a claim with the given status and otherwise only what identifies its version.
func onlyStatus(claim *v1.NodeClaim, status *v1.NodeClaimStatus) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion},
		Status:     *status.DeepCopy(),
	}
}

// writeMeta writes labels, annotations and finalizers, if they differ from old, and updates the store. claim gets the metadata that the API
// server returned, with the new version.
func (l *Loop) writeMeta(ctx context.Context, old, claim *v1.NodeClaim) error {
	if equality.Semantic.DeepEqual(old.ObjectMeta, claim.ObjectMeta) {
		return nil
	}
	written := &v1.NodeClaim{ObjectMeta: *claim.ObjectMeta.DeepCopy()}
	if err := l.Client.Patch(ctx, written, patch.Over(&v1.NodeClaim{ObjectMeta: old.ObjectMeta})); err != nil {
		return fmt.Errorf("write claim %s: %w", claim.Name, err)
	}
	l.remember(written)
	claim.ObjectMeta = *written.ObjectMeta.DeepCopy()
	return nil
}

// writeStatus writes the status, if it differs from old, and updates the store.
func (l *Loop) writeStatus(ctx context.Context, old, claim *v1.NodeClaim) error {
	if equality.Semantic.DeepEqual(old.Status, claim.Status) {
		return nil
	}
	written := onlyStatus(old, &claim.Status)
	if err := l.Client.Status().Patch(ctx, written, patch.Over(onlyStatus(old, &old.Status))); err != nil {
		return fmt.Errorf("write status of claim %s: %w", claim.Name, err)
	}
	l.remember(written)
	return nil
}

// remember puts a claim that was just written into the store, so that the next step sees it before the watch does. Like the watch it leaves
// out managed fields.
func (l *Loop) remember(claim *v1.NodeClaim) {
	claim.ManagedFields = nil
	l.Store.Update(func(d *cluster.Draft) { d.PutClaim(claim) })
}

// remove deletes a claim in exactly this version and reports why. pods is the number of pods that are disrupted by that. If the claim has
// changed or is gone, remove returns an error and reports nothing.
func (l *Loop) remove(ctx context.Context, claim *v1.NodeClaim, reason lifecycle.Reason, pods int) error {
	err := l.Client.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	if err != nil {
		return fmt.Errorf("delete claim %s: %w", claim.Name, err)
	}
	l.reportDeleted(ctx, claim, reason, pods)
	return nil
}
