package lifecycle

import (
	"errors"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// maxMessage is the longest error text of a condition.
const maxMessage = 300

// Launched returns the claim with what is known once the machine m was launched for it: provider id, labels, capacity, condition Launched.
// It also sets Registered, as the next step would, which saves a write. A label of the claim counts before the machine's, and that before
// what the requirements decide.
func Launched(claim *v1.NodeClaim, m cloud.Machine, now time.Time, words Words) *v1.NodeClaim {
	out := another(claim)
	out.Labels = merge(merge(decided(claim), m.Labels), claim.Labels)
	out.Annotations = merge(out.Annotations, m.Annotations)
	out.Status.ProviderID, out.Status.ImageID = m.ProviderID, m.ImageID
	out.Status.Capacity, out.Status.Allocatable = m.Capacity, m.Allocatable
	condition.SetTrue(out, v1.ConditionTypeLaunched, now)
	if condition.IsUnknown(out, v1.ConditionTypeRegistered) {
		awaitNode(out, v1.ConditionTypeRegistered, now, words)
	}
	return out
}

// decided returns the labels for which the claim's requirements allow only one value.
func decided(claim *v1.NodeClaim) map[string]string {
	out := map[string]string{}
	for _, r := range claim.Spec.Requirements {
		switch r.Key {
		case corev1.LabelHostname, v1.NodeRegisteredLabelKey, v1.NodeInitializedLabelKey:
			continue
		}
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			out[r.Key] = r.Values[0]
		}
	}
	return out
}

// A Failure is what a failed launch means for the claim.
type Failure struct {
	GiveUp Reason        // "" to try again
	Claim  *v1.NodeClaim // with the condition that tells about it, to be written before the next try
}

// Failed returns what the error of a launch means: the claim is given up, for lack of capacity or because its node class is not ready; or
// it is tried again, and the claim's condition says why. An unjudged class may still turn out to be ready. A launch that the cloud has
// refused is tried with a new token.
func Failed(claim *v1.NodeClaim, err error, now time.Time) Failure {
	if _, ok := errors.AsType[*cloud.NoCapacityError](err); ok {
		return Failure{GiveUp: InsufficientCapacity}
	}
	class, ofClass := errors.AsType[*cloud.ClassNotReadyError](err)
	if ofClass && !class.Unjudged {
		return Failure{GiveUp: NodeClassNotReady}
	}
	out := another(claim)
	reason, message := v1.ReasonLaunchFailed, err.Error()
	if ofClass {
		reason = v1.ReasonNodeClassReadinessUnknown
	}
	if refused, ok := errors.AsType[*cloud.LaunchError](err); ok {
		reason, message = refused.Reason, refused.Message
		nextToken(out)
	}
	condition.SetUnknown(out, v1.ConditionTypeLaunched, reason, cut(message), now)
	return Failure{Claim: out}
}

// nextToken makes the next launch a new one. The cloud has refused the last for good, and would repeat its refusal as
// long as it repeats the same token. The first launch has no token: the claim's UID is enough.
func nextToken(claim *v1.NodeClaim) {
	n, _ := strconv.Atoi(claim.Annotations[v1.LaunchTokenAnnotationKey]) // what is not a number counts as none
	claim.Annotations = merge(claim.Annotations, map[string]string{v1.LaunchTokenAnnotationKey: strconv.Itoa(n + 1)})
}

// cut shortens a message to maxMessage bytes.
func cut(message string) string {
	if len(message) < maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}
