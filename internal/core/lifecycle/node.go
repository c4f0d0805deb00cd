package lifecycle

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/taint"
)

// Join gives a Node what its claim says: finalizer, owner, labels, annotations and taints. It removes owners of older kinds. A Node that
// has been registered before gets no taints, so a startup taint that a user has removed does not come back.
func Join(node *corev1.Node, claim *v1.NodeClaim) {
	if !slices.Contains(node.Finalizers, v1.TerminationFinalizer) {
		node.Finalizers = append(node.Finalizers, v1.TerminationFinalizer)
	}
	node.OwnerReferences = disowned(node.OwnerReferences)
	if !slices.ContainsFunc(node.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == claim.UID }) {
		node.OwnerReferences = append(node.OwnerReferences, owner(claim))
	}
	if !hasLabel(node, v1.NodeRegisteredLabelKey) && node.Labels[v1.NodeDoNotSyncTaintsLabelKey] != "true" {
		node.Spec.Taints = mergeTaints(node.Spec.Taints, claim.Spec.Taints, claim.Spec.StartupTaints)
	}
	node.Labels = merge(node.Labels, claim.Labels)
	node.Annotations = merge(node.Annotations, nodeAnnotations(claim))
	setLabel(node, v1.NodeRegisteredLabelKey, "true")
}

// nodeAnnotations returns the claim's annotations without those that concern only the claim: launch token, disruption record, adoption.
func nodeAnnotations(claim *v1.NodeClaim) map[string]string {
	out := maps.Clone(claim.Annotations)
	delete(out, v1.LaunchTokenAnnotationKey)
	delete(out, v1.DisruptionCommandAnnotationKey)
	delete(out, v1.AdoptsAnnotationKey)
	return out
}

func owner(claim *v1.NodeClaim) metav1.OwnerReference {
	block := true
	return metav1.OwnerReference{
		APIVersion: v1.GroupVersion.String(), Kind: "NodeClaim", Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: &block,
	}
}

// mergeTaints adds the taints whose key and effect are not there yet.
func mergeTaints(have []corev1.Taint, more ...[]corev1.Taint) []corev1.Taint {
	for _, taints := range more {
		for _, t := range taints {
			if !slices.ContainsFunc(have, func(h corev1.Taint) bool { return h.MatchTaint(&t) }) {
				have = append(have, t)
			}
		}
	}
	return have
}

// merge returns base with everything of over in it.
func merge(base, over map[string]string) map[string]string {
	if len(over) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, over)
	return out
}

func setLabel(node *corev1.Node, key, value string) {
	node.Labels = merge(node.Labels, map[string]string{key: value})
}

func hasLabel(node *corev1.Node, key string) bool {
	_, ok := node.Labels[key]
	return ok
}

func hasTaint(node *corev1.Node, is func(*corev1.Taint) bool) bool {
	for i := range node.Spec.Taints {
		if is(&node.Spec.Taints[i]) {
			return true
		}
	}
	return false
}

// NeedsOpenNode reports whether the network of a node may wait for a DaemonSet that stays away while the node has the unregistered
// taint. Only pods on the host's network can run before the node is ready.
func NeedsOpenNode(ds *appsv1.DaemonSet) bool {
	spec, unregistered := &ds.Spec.Template.Spec, v1.UnregisteredTaint()
	return spec.HostNetwork && !taint.Tolerated(spec.Tolerations, &unregistered)
}

func ready(node *corev1.Node) bool { return ReadyStatus(node) == corev1.ConditionTrue }

// readySince returns when the node's Ready condition last changed, zero if it has none.
func readySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// ReadyStatus is the status of the node's Ready condition, Unknown if it has none.
func ReadyStatus(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func sortedNames(r corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(r))
}
