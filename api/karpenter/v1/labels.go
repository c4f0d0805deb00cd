package v1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Labels of NodeClaims and Nodes. What is known about each stands in Labels.
const (
	NodePoolLabelKey        = Group + "/nodepool"      // The NodePool that the node belongs to.
	CapacityTypeLabelKey    = Group + "/capacity-type" // How the machine is paid for: spot, on-demand or reserved.
	NodeRegisteredLabelKey  = Group + "/registered"    // "true" on a Node that has got its claim's labels and taints.
	NodeInitializedLabelKey = Group + "/initialized"   // "true" on a Node that is ready for pods.
	// "true", set by a node's bootstrap, keeps the claim's taints off the Node.
	NodeDoNotSyncTaintsLabelKey = Group + "/do-not-sync-taints"
	// What NodePoolLabelKey was called up to 0.31, on nodes of a pool that has ProvisionerAnnotationKey.
	ProvisionerLabelKey = Group + "/provisioner-name"
)

// NodeExcludedFromLoadBalancersLabelValue is the value of Kubernetes' own label that keeps load balancers away from a node that
// Karpenter drains.
const NodeExcludedFromLoadBalancersLabelValue = "karpenter"

// Values of CapacityTypeLabelKey.
const (
	CapacityTypeSpot     = "spot"
	CapacityTypeOnDemand = "on-demand"
	CapacityTypeReserved = "reserved"
)

// Values of Kubernetes' architecture label that the core knows.
const (
	ArchitectureAmd64 = "amd64"
	ArchitectureArm64 = "arm64"
)

// Annotations of pods, NodePools, NodeClaims and Nodes.
const (
	// On a pod, "true" or a duration since its start; on a Node, a NodeClaim or in a pool's template, "true":
	// forbids voluntary disruption.
	DoNotDisruptAnnotationKey = Group + "/do-not-disrupt"
	// On a pod: the older name of do-not-disrupt. "true" still counts, nothing else does.
	DoNotEvictAnnotationKey = Group + "/do-not-evict"
	// On a Node: "true" keeps it from consolidation, as it did before do-not-disrupt; drift and expiry go on.
	DoNotConsolidateAnnotationKey = Group + "/do-not-consolidate"

	// On a Node or a NodeClaim: "true" forbids repair of the machine.
	DoNotRepairAnnotationKey = Group + "/do-not-repair"
	// On a NodeClaim whose machine is being rebooted: how long draining may take before, as a duration; without it, without bound.
	RebootGracePeriodAnnotationKey = Group + "/reboot-termination-grace-period"
	// On a NodeClaim whose machine is being rebooted: the boot id of the Node before the provider was asked.
	RebootPreBootIDAnnotationKey = Group + "/reboot-pre-boot-id"
	// On a NodeClaim: when the last two reboots of its machine were requested, RFC 3339, with a comma between them. Within a day there are
	// no more than two.
	RebootsAnnotationKey = Group + "/reboots"
	// On a pod: a number that makes its node a later candidate for disruption the higher it is, and an earlier one where it is negative.
	DisruptionCostAnnotationKey = Group + "/disruption-cost"
	// On a pod: the value of controller.kubernetes.io/pod-deletion-cost that Karpenter wrote. Another value there is the user's.
	PodDeletionCostAnnotationKey = Group + "/pod-deletion-cost"

	// On a NodePool, or on the namespace kube-system for all of them: "true", or until when (RFC 3339), no node is disrupted voluntarily.
	PausedAnnotationKey = Group + "/paused"
	// Beside it: why, for its readers.
	PausedReasonAnnotationKey = Group + "/paused-reason"
	// Beside it, where the controller paused the pool itself: "breaker" or "rollout". "karpenter resume" ends such pauses too.
	PausedByAnnotationKey = Group + "/paused-by"
	// On a NodePool: when the breaker last stopped disruption, RFC 3339. It stays when the stop is over.
	BreakerTrippedAnnotationKey = Group + "/breaker-tripped"
	// On a NodePool: when a gate of its RolloutPolicy last stopped disruption, RFC 3339. It stays when the stop is over.
	RolloutTrippedAnnotationKey = Group + "/rollout-tripped"
	// On a NodeClaim that was opened while the rollout of its NodePool was stopped: it is made from the template that passed last, and
	// these images passed with it, separated by commas. The provider launches those that its node class has found before.
	LastGoodImagesAnnotationKey = Group + "/last-good-images"

	// On the pod template of a Deployment, else on its namespace, else on the NodePool of its node: "restart" if a rolling restart may move
	// a pod that must not go without a successor. Any other value forbids it.
	SurgeAnnotationKey = Group + "/surge"

	// On a NodePool: what it costs, in dollars, when a spot machine of it is taken back; without it, what the setting interruption-cost
	// says. On NodeClaims: what the plan reckoned with that opened them.
	InterruptionCostAnnotationKey = Group + "/interruption-cost"

	// On a NodePool: at most this part of its spot machines, and of those of one workload, are of one type in one zone, such as "50%".
	SpotMaxShareAnnotationKey = Group + "/spot-max-share"
	// On NodeClaims of pools with spot-max-share: the workloads whose pods they were opened for, and how many, such as "default/web=3".
	OpenedForAnnotationKey = Group + "/opened-for"

	// On a NodePool: "manual" if each voluntary step of it needs approval, "automatic" if none does.
	ApprovalAnnotationKey = Group + "/disruption-approval"
	// On a NodePool with manual approval: the rules by which steps are approved without anybody, such as
	// "reason=Empty; pods<=5,saves>=0.10".
	AutoApproveAnnotationKey = Group + "/disruption-auto-approve"

	// On NodePools and NodeClaims: the hash of the pool's template, by which drift is found.
	NodePoolHashAnnotationKey = Group + "/nodepool-hash"
	// On NodePools and NodeClaims: which way of hashing the hash is of.
	NodePoolHashVersionAnnotationKey = Group + "/nodepool-hash-version"
	// On NodeClaims and Nodes: when draining is forced to its end, RFC 3339.
	NodeClaimTerminationTimestampAnnotationKey = Group + "/nodeclaim-termination-timestamp"
	// On NodeClaims: "true" if minValues had to be lowered to find any machine, "false" if not.
	NodeClaimMinValuesRelaxedAnnotationKey = Group + "/nodeclaim-min-values-relaxed"
	// On NodeClaims: the DRA drivers that the node's pods need, sorted, separated by commas.
	RequestedDRADriversAnnotationKey = Group + "/requested-dra-drivers"
	// On NodeClaims: "true" if a NodeOverlay changed the price of an option.
	PriceOverlayAppliedAnnotationKey = Group + "/price-overlay-applied"
	// On NodeClaims: "true" if a NodeOverlay changed the capacity of an option.
	CapacityOverlayAppliedAnnotationKey = Group + "/capacity-overlay-applied"
	// On a NodePool: the Provisioner that it stands in for. Its nodes have the label by which pods chose that
	// Provisioner, and machines that it launched are taken over.
	ProvisionerAnnotationKey = "compatibility." + Group + "/provisioner-name"
	// On NodePools and NodeClaims: what older API versions said about the provider, as JSON.
	ProviderCompatibilityAnnotationKey = "compatibility." + Group + "/provider"

	// On NodePools and NodeClaims that v1beta1 wrote: the kubelet's configuration that v1beta1 kept there, as JSON.
	// While `legacy.v1beta1` is `serve` or `drop` it is used instead of the node class's; otherwise it is ignored.
	KubeletCompatibilityAnnotationKey = "compatibility." + Group + "/v1beta1-kubelet-conversion"
	// On NodePools and NodeClaims that v1beta1 wrote: the nodeClassRef as it was written, as JSON.
	NodeClassReferenceAnnotationKey = "compatibility." + Group + "/v1beta1-nodeclass-reference"
	// On what v1beta1 shows of a v1 object: the fields that v1beta1 has no place for, as JSON. A client that writes
	// the object back keeps them by it.
	V1FieldsAnnotationKey = "compatibility." + Group + "/v1-fields"
	// On v1 objects that v1beta1 wrote: what v1beta1 would show otherwise than it was written, as JSON.
	V1Beta1FieldsAnnotationKey = "compatibility." + Group + "/v1beta1-fields"
	// "true" on objects that Karpenter 1.0 has written again as v1. v1beta1 does not show it, so that a rollback writes them again.
	StoredVersionMigratedAnnotationKey = Group + "/stored-version-migrated"

	// On NodeClaims: the disruption step that the claim is part of, so that a restarted controller finishes or undoes it.
	DisruptionCommandAnnotationKey = Group + "/disruption-command"
	// On NodeClaims: the token of the launch that was begun, so that a restarted controller repeats the same call
	// and never launches twice.
	LaunchTokenAnnotationKey = Group + "/launch-token"
	// On NodeClaims: the provider id of the machine that the claim takes over instead of launching one.
	AdoptsAnnotationKey = Group + "/adopts"
	// On Nodes whose machine has no NodeClaim: what is to become of it, "adopt" or "terminate".
	OrphanAnnotationKey = Group + "/orphan"
	// On NodeClaims that are being deleted: the time (RFC 3339) before which pods are evicted only once their replacements are ready.
	EvictAfterAnnotationKey = Group + "/evict-after"

	// On a CapacityBuffer: the starts of the times in which it keeps room, as a cron schedule; without it, always.
	ScheduleAnnotationKey = Group + "/schedule"
	// Beside it: how long each time lasts, as a duration.
	ScheduleDurationAnnotationKey = Group + "/schedule-duration"
	// Beside them, or beside the annotation to learn: the time zone of the schedule or of the days, UTC if it is left out.
	ScheduleTimeZoneAnnotationKey = Group + "/schedule-time-zone"
	// On a NodePool or CapacityBuffer: "true" to have room kept at the times at which pods came on earlier days.
	LearnAnnotationKey = Group + "/learn"
	// On NodeClaims that foresight opened: the announcement that they were opened for, in one sentence.
	OpenedAheadAnnotationKey = Group + "/opened-ahead"

	// On CommitmentDiscounts that are imported: "true".
	ImportedLabelKey = Group + "/imported"
	// On such objects: when the cloud last named the commitment in whole (RFC 3339). An older time than a day ago
	// makes it stale. An object without it was written by a person, and the import leaves it alone.
	ImportedAtAnnotationKey = Group + "/imported-at"
	// On such objects: the share that the import gave. While spec.share is another one, that is a person's and stays.
	ImportedShareAnnotationKey = Group + "/imported-share"

	// On the pods that stand for a CapacityBuffer, which exist only in plans: "true".
	CapacityBufferFakePodAnnotationKey = Group + "/capacity-buffer-fake-pod"
	// On such pods: the buffer's name.
	CapacityBufferNameAnnotationKey = Group + "/capacity-buffer-name"
	// On such pods: the buffer's namespace.
	CapacityBufferNamespaceAnnotationKey = Group + "/capacity-buffer-namespace"
)

// Values of ApprovalAnnotationKey. An unknown value counts as manual.
const (
	ApprovalManual    = "manual"
	ApprovalAutomatic = "automatic"
)

// PausedNamespace is the namespace whose annotation pauses all pools. It is in every cluster, and few may write it.
const PausedNamespace = "kube-system"

// Values of PausedByAnnotationKey: what the breaker and the gates of a RolloutPolicy write.
const (
	PausedByBreaker = "breaker"
	PausedByRollout = "rollout"
)

// SurgeRestart is the value of SurgeAnnotationKey that agrees to rolling restarts.
const SurgeRestart = "restart"

// What may be written onto the Node of a machine without NodeClaim.
const (
	OrphanAdopt     = "adopt"     // A NodeClaim is made for it from its NodePool.
	OrphanTerminate = "terminate" // It is drained and stopped.
)

// Taints of Nodes.
const (
	DisruptedTaintKey    = Group + "/disrupted"    // NoSchedule: the node was chosen for disruption or is being terminated.
	UnregisteredTaintKey = Group + "/unregistered" // NoExecute: nodes boot with it and lose it when they are registered.
	RebootingTaintKey    = Group + "/rebooting"    // NoSchedule: the machine is being rebooted.
	UnderusedTaintKey    = Group + "/underused"    // PreferNoSchedule: new pods go elsewhere if they can, so that the node gets empty.
	ReadinessTaintPrefix = "readiness.k8s.io/"     // Begins the keys of taints that stand for something a starting node waits for.
)

// Finalizers of NodeClaims and Nodes.
const (
	TerminationFinalizer = Group + "/termination" // Stays until the machine is gone.
)

// ResourceNodes counts nodes in Limits and in NodePoolStatus.Resources.
const ResourceNodes corev1.ResourceName = "nodes"

// DisruptedTaint is on nodes that are chosen for disruption or are being terminated.
func DisruptedTaint() corev1.Taint {
	return corev1.Taint{Key: DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule}
}

// UnregisteredTaint is on nodes from boot until registration.
func UnregisteredTaint() corev1.Taint {
	return corev1.Taint{Key: UnregisteredTaintKey, Effect: corev1.TaintEffectNoExecute}
}

// IsUnregisteredTaint reports whether a taint is the taint with which a node boots. A taint of the same key with
// another effect belongs to others, and stays.
func IsUnregisteredTaint(t *corev1.Taint) bool {
	return t.Key == UnregisteredTaintKey && t.Effect == corev1.TaintEffectNoExecute
}

// UnderusedTaint is on nodes that should get empty, as the pods on them come to their end.
func UnderusedTaint() corev1.Taint {
	return corev1.Taint{Key: UnderusedTaintKey, Effect: corev1.TaintEffectPreferNoSchedule}
}

// KnownEphemeralTaint reports whether a taint is such as a starting node loses by itself. Scheduling ignores such taints on
// managed nodes that are not initialized yet, and initialization waits for them to go.
func KnownEphemeralTaint(t *corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady:
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeUnreachable:
		return t.Effect == corev1.TaintEffectNoSchedule
	case "node.cloudprovider.kubernetes.io/uninitialized", RebootingTaintKey:
		return t.Effect == corev1.TaintEffectNoSchedule
	default:
		return IsUnregisteredTaint(t) || strings.HasPrefix(t.Key, ReadinessTaintPrefix)
	}
}

// NodeClassLabelKey is the label that holds the name of a node class of the given kind.
func NodeClassLabelKey(gk schema.GroupKind) string {
	return gk.Group + "/" + strings.ToLower(gk.Kind)
}
