package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// An Ending is what a claim that is being deleted needs next.
type Ending uint8

// Endings, in order.
const (
	Nothing     Ending = iota // it has no Karpenter finalizer, so Karpenter does nothing
	Stamp                     // write the time by which it must be drained
	DeleteNodes               // delete its nodes; their own end drains them and stops the machine
	AwaitNodes                // the nodes are on their way out
	StopMachine               // ask the cloud to stop the machine, until it is gone
	Finish                    // take the finalizer off
)

// End returns what a deleted claim needs next. The machine is stopped only when no Node is left, so that pods leave first. A Node that
// never registered is not deleted and not waited for: its taint has kept ordinary pods away.
func End(v View) Ending {
	switch {
	case !slices.Contains(v.Claim.Finalizers, v1.TerminationFinalizer):
		return Nothing
	case v.Claim.Spec.TerminationGracePeriod != nil && v.Claim.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey] == "":
		return Stamp
	case len(v.Nodes) > 0 && (condition.IsTrue(v.Claim, v1.ConditionTypeRegistered) || slices.ContainsFunc(v.Nodes, IsRegistered)):
		if slices.ContainsFunc(v.Nodes, func(n *corev1.Node) bool { return n.DeletionTimestamp == nil }) {
			return DeleteNodes
		}
		return AwaitNodes
	case v.Claim.Status.ProviderID != "":
		return StopMachine
	}
	return Finish
}

// IsRegistered reports whether a Node has the label of a registered one. It reads the Node because a crash may have kept the claim's
// condition from being written, while pods run on the Node already.
func IsRegistered(n *corev1.Node) bool { return n.Labels[v1.NodeRegisteredLabelKey] == "true" }

// Stamped returns the claim with the time by which it must be drained: its deletion plus its grace period. The claim must have both.
func Stamped(claim *v1.NodeClaim) *v1.NodeClaim {
	deadline := claim.DeletionTimestamp.Add(claim.Spec.TerminationGracePeriod.Duration)
	return WithDeadline(claim, deadline)
}

// WithDeadline returns the claim with the time by which it must be drained.
func WithDeadline(claim *v1.NodeClaim, deadline time.Time) *v1.NodeClaim {
	out := another(claim)
	out.Annotations = merge(out.Annotations, map[string]string{
		v1.NodeClaimTerminationTimestampAnnotationKey: deadline.UTC().Format(time.RFC3339),
	})
	return out
}

// Deadline returns the time by which the claim must be drained, zero if it has none.
func Deadline(claim *v1.NodeClaim) (time.Time, error) {
	text := claim.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey]
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, text)
}

// Expiry returns when a claim has reached its greatest age. ok is false if it has none.
func Expiry(claim *v1.NodeClaim) (at time.Time, ok bool) {
	if claim.Spec.ExpireAfter.Duration == nil {
		return time.Time{}, false
	}
	return claim.CreationTimestamp.Add(*claim.Spec.ExpireAfter.Duration), true
}
