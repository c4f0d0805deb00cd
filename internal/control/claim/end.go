package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/internal/core/evict"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// stopPoll is how often the cloud is asked whether a machine is gone.
const stopPoll = 5 * time.Second

// definitionPoll is how often a claim looks whether the definition of claims is back.
const definitionPoll = 10 * time.Second

// unseenPoll is how often the API server is asked for a Node that our snapshot lacks.
const unseenPoll = 5 * time.Second

// end takes one step towards the end of a deleted claim. It returns when to look again if nothing changes, zero if that is not needed.
// While NodeClaims cannot be created (package definition), neither nodes are deleted nor machines stopped.
func (l *Loop) end(ctx context.Context, v lifecycle.View) (time.Time, error) {
	claim := v.Claim
	next := lifecycle.End(v)
	if (next == lifecycle.DeleteNodes || next == lifecycle.StopMachine) && !evict.Taken(claim, time.Now()) && l.Definition.Gone(ctx) {
		l.Events.Tell(telemetry.Refs(nil, claim), telemetry.FailedDraining, definition.Held)
		return time.Now().Add(definitionPoll), nil
	}
	switch next {
	case lifecycle.Stamp:
		stamped := lifecycle.Stamped(claim)
		if err := l.writeMeta(ctx, claim, stamped); err != nil {
			return time.Time{}, err
		}
		deadline, err := lifecycle.Deadline(stamped)
		if err == nil {
			l.reportDeadline(ctx, claim, deadline)
		}
		return time.Time{}, err
	case lifecycle.DeleteNodes:
		return time.Time{}, l.deleteNodes(ctx, v)
	case lifecycle.StopMachine:
		l.endsBooting(ctx, v)
		return l.stopMachine(ctx, claim)
	case lifecycle.Finish:
		if l.settings.Settled != nil && claim.Status.ProviderID == "" {
			if settled, err := l.settings.Settled(ctx, claim); err != nil || !settled {
				l.suspect(claim)
				return time.Now().Add(stopPoll), err
			}
		}
		return time.Time{}, l.finish(ctx, claim)
	}
	return time.Time{}, nil
}

// deleteNodes deletes the Nodes of a claim, whose finalizer then drains them. Their UIDs make sure that no later Node of the same name is
// deleted.
func (l *Loop) deleteNodes(ctx context.Context, v lifecycle.View) error {
	var errs []error
	for _, n := range v.Nodes {
		if n.DeletionTimestamp != nil {
			continue
		}
		if err := l.Client.Delete(ctx, n.DeepCopy(), client.Preconditions{UID: &n.UID}); err != nil {
			errs = append(errs, fmt.Errorf("delete node %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// stopMachine asks the cloud to stop the machine and sets condition InstanceTerminating. It is repeated until the machine is gone: then
// it finishes the claim. A claim whose Node is not in the snapshot waits until that is drained.
func (l *Loop) stopMachine(ctx context.Context, claim *v1.NodeClaim) (time.Time, error) {
	if unseen, err := l.hasUnseenNode(ctx, claim); err != nil || unseen {
		return time.Now().Add(unseenPoll), err
	}
	err := l.Cloud.Terminate(ctx, claim.Status.ProviderID)
	if errors.Is(err, cloud.ErrNotFound) {
		return time.Time{}, l.finish(ctx, claim)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("terminate machine %s: %w", claim.Status.ProviderID, err)
	}
	now := time.Now()
	stopping := *claim
	condition.SetTrue(&stopping, v1.ConditionTypeInstanceTerminating, now)
	return now.Add(stopPoll), l.writeStatus(ctx, claim, &stopping)
}

// hasUnseenNode asks the API server whether there is a Node for a claim that has none in our snapshot: another process may have
// registered it, and pods may run there. It deletes such a Node, so that it is drained as soon as the snapshot has it. It returns false
// without asking if the machine is stopping already, its termination deadline has passed, or it is being taken away (evict.Taken).
func (l *Loop) hasUnseenNode(ctx context.Context, claim *v1.NodeClaim) (bool, error) {
	now := time.Now()
	deadline, err := lifecycle.Deadline(claim)
	if err != nil {
		return false, fmt.Errorf("annotation %s: %w", v1.NodeClaimTerminationTimestampAnnotationKey, err)
	}
	if condition.IsTrue(claim, v1.ConditionTypeInstanceTerminating) || !deadline.IsZero() && !now.Before(deadline) ||
		evict.Taken(claim, now) {
		return false, nil
	}
	node, err := l.unseenNode(ctx, claim)
	if node == nil || err != nil {
		return false, err
	}
	telemetry.Log(ctx).Error("the machine is not stopped yet, because the API server has a node for it that was not "+
		"heard of", "NodeClaim", claim.Name, "Node", node.Name)
	if node.DeletionTimestamp != nil {
		return true, nil
	}
	err = l.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID})
	return true, client.IgnoreNotFound(err)
}

// unseenNode returns the registered Node that the API server has for the claim's machine, nil if there is none. After a crash between
// the registration of a Node and that of its claim, the claim does not have the name of its Node. Then Nodes with the claim's labels
// are listed.
func (l *Loop) unseenNode(ctx context.Context, claim *v1.NodeClaim) (*corev1.Node, error) {
	var list corev1.NodeList
	var err error
	if name := claim.Status.NodeName; name != "" {
		list.Items = make([]corev1.Node, 1)
		err = client.IgnoreNotFound(l.Client.Get(ctx, client.ObjectKey{Name: name}, &list.Items[0]))
	} else {
		like := client.MatchingLabels{v1.NodeRegisteredLabelKey: "true"}
		for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone} {
			if value := claim.Labels[key]; value != "" {
				like[key] = value
			}
		}
		err = l.Client.List(ctx, &list, like)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the node of claim %s before its machine is stopped: %w", claim.Name, err)
	}
	for i := range list.Items {
		if n := &list.Items[i]; n.Spec.ProviderID == claim.Status.ProviderID {
			return n, nil
		}
	}
	return nil, nil
}

// finish removes our finalizer from the claim, so that the API server deletes it.
func (l *Loop) finish(ctx context.Context, claim *v1.NodeClaim) error {
	if claim.Status.ProviderID == "" {
		l.suspect(claim)
	}
	free := &v1.NodeClaim{ObjectMeta: *claim.ObjectMeta.DeepCopy()}
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == v1.TerminationFinalizer })
	if err := l.Client.Patch(ctx, free, patch.Over(&v1.NodeClaim{ObjectMeta: claim.ObjectMeta})); err != nil {
		return fmt.Errorf("take the finalizer off claim %s: %w", claim.Name, err)
	}
	l.reportEnded(ctx, claim)
	return nil
}
