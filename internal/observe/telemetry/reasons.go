package telemetry

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Reason is the reason of an event.
type Reason string

// The reasons of events. What each means stands in reasons.
const (
	Nominated                      Reason = "Nominated"
	FailedScheduling               Reason = "FailedScheduling"
	NodeClaimNotCreated            Reason = "NodeClaimNotCreated"
	Evicted                        Reason = "Evicted"
	Disrupted                      Reason = "Disrupted"
	InvalidDoNotDisruptAnnotation  Reason = "InvalidDoNotDisruptAnnotation"
	DoNotDisruptUntil              Reason = "DoNotDisruptUntil"
	DoNotDisruptGracePeriodElapsed Reason = "DoNotDisruptGracePeriodElapsed"
	DeprecatedAnnotation           Reason = "DeprecatedAnnotation"
	OlderKind                      Reason = "OlderKind"

	DisruptionLaunching          Reason = "DisruptionLaunching"
	DisruptionWaitingReadiness   Reason = "DisruptionWaitingReadiness"
	DisruptionTerminating        Reason = "DisruptionTerminating"
	DisruptionBlocked            Reason = "DisruptionBlocked"
	DisruptionFailed             Reason = "DisruptionFailed"
	DisruptionAwaitsApproval     Reason = "DisruptionAwaitsApproval"
	DisruptionStopped            Reason = "DisruptionStopped"
	RolloutStopped               Reason = "RolloutStopped"
	SurgeRestart                 Reason = "SurgeRestart"
	Unconsolidatable             Reason = "Unconsolidatable"
	ConsolidationCandidate       Reason = "ConsolidationCandidate"
	ConsolidationRejected        Reason = "ConsolidationRejected"
	ConsolidationApproved        Reason = "ConsolidationApproved"
	FailedDraining               Reason = "FailedDraining"
	AwaitingVolumeDetachment     Reason = "AwaitingVolumeDetachment"
	TerminationGracePeriodEnding Reason = "TerminationGracePeriodExpiring"
	FailedConsistencyCheck       Reason = "FailedConsistencyCheck"
	InsufficientCapacity         Reason = "InsufficientCapacityError"
	LaunchFailed                 Reason = "LaunchFailed"
	FewInstanceTypes             Reason = "FewInstanceTypes"
	SpotShareExceeded            Reason = "SpotShareExceeded"
	OpenedAhead                  Reason = "OpenedAhead"
	AnnouncedInVain              Reason = "AnnouncedInVain"
	LearningOff                  Reason = "LearningOff"
	UnregisteredTaintMissing     Reason = "UnregisteredTaintMissing"
	Finalized                    Reason = "Finalized"

	NoCompatibleInstanceTypes Reason = "NoCompatibleInstanceTypes"
	NodePoolNotReady          Reason = "NodePoolNotReady"
	PodsUnschedulable         Reason = "PodsUnschedulable"
	MachinesNeverReady        Reason = "MachinesNeverReady"
	ReplicasMissing           Reason = "ReplicasMissing"
	UnreadableObject          Reason = "UnreadableObject"
	OrphanKept                Reason = "OrphanKept"
	NodeRepairBlocked         Reason = "NodeRepairBlocked"
	RebootObserved            Reason = "RebootObserved"
	RebootFailed              Reason = "RebootFailed"
	BufferWithoutRoom         Reason = "BufferWithoutRoom"
	QuotaReached              Reason = "QuotaReached"
	QuotaExceeded             Reason = "QuotaExceeded"
	LeftOut                   Reason = "LeftOut"

	SpotInterrupted                Reason = "SpotInterrupted"
	SpotRebalanceRecommendation    Reason = "SpotRebalanceRecommendation"
	InstanceStopping               Reason = "InstanceStopping"
	InstanceTerminating            Reason = "InstanceTerminating"
	InstanceUnhealthy              Reason = "InstanceUnhealthy"
	CapacityReservationInterrupted Reason = "CapacityReservationInstanceInterrupted"
	ZonalShiftActive               Reason = "ZonalShiftActive"
	ZonalShiftCleared              Reason = "ZonalShiftCleared"
	TerminatingOnInterruption      Reason = "TerminatingOnInterruption"
	SpotServiceRoleMissing         Reason = "SpotSLRCreationFailed"
	WaitingOnNodeClaimTermination  Reason = "WaitingOnNodeClaimTermination"
	NodeClassNotReady              Reason = "NodeClassNotReady"
	BootstrapsTwice                Reason = "BootstrapsTwice"
)

// EventRow is one line of the table of events.
type EventRow struct {
	Reason Reason
	Type   string
	When   string // for the reference
	// Again is how long an equal event is held back. Equal are events of one reason and key; without a key none are.
	Again time.Duration
	// Rate and Burst limit how many events of this reason are sent; what exceeds them is dropped. Zero is no limit.
	Rate  float64
	Burst int
	// Paced events are not dropped but sent at a steady rate behind all others, the newest for each object.
	Paced bool
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning

	// repeatInterval is how long equal events are held back unless a row says otherwise.
	repeatInterval = 2 * time.Minute
)

// reasons is the table of events.
var reasons = []EventRow{
	{Nominated, normal, "A pod is meant for a node or a new NodeClaim.", repeatInterval, 5, 10, false},
	{FailedScheduling, warning, "No pool can hold a pod; the message says what kept it from each.", 5 * time.Minute, 0, 0, true},
	{NodeClaimNotCreated, warning, "The API server did not take the NodeClaim that pods were planned for; the message says why.",
		5 * time.Minute, 0, 0, true},
	{Evicted, normal, "The eviction of a pod was accepted; the message says why.", repeatInterval, 0, 0, false},
	{Disrupted, normal, "A pod was deleted because its node had to go at a deadline.", repeatInterval, 0, 0, false},
	{InvalidDoNotDisruptAnnotation, warning, "A do-not-disrupt annotation means nothing and is ignored.", repeatInterval, 0, 0, false},
	{DoNotDisruptUntil, normal, "A pod is protected until some time.", repeatInterval, 0, 0, false},
	{DoNotDisruptGracePeriodElapsed, normal, "The protection of a pod has ended.", repeatInterval, 0, 0, false},
	{DeprecatedAnnotation, warning, "An annotation of a pod has an older name, which counts still; the message gives " +
		"the new one.", time.Hour, 0, 0, false},
	{OlderKind, warning, "A Provisioner or AWSNodeTemplate is of a kind of older Karpenters; the message says what it " +
		"would be today.", time.Hour, 0, 0, false},

	{DisruptionLaunching, normal, "A replacement is being launched.", repeatInterval, 0, 0, false},
	{DisruptionWaitingReadiness, normal, "A replacement is not ready yet.", repeatInterval, 0, 0, false},
	{DisruptionTerminating, normal, "A node is being removed by disruption.", repeatInterval, 0, 0, false},
	{DisruptionBlocked, normal, "A node or pool cannot be disrupted now; the message says why.", repeatInterval, 0, 0, false},
	{DisruptionAwaitsApproval, normal, "A step waits for a user's approval; the message names its DisruptionPlan.",
		repeatInterval, 0, 0, false},
	{SurgeRestart, normal, "A Deployment is restarted, so that its pod leaves a node when its successor is ready.",
		repeatInterval, 0, 0, false},
	{DisruptionStopped, warning, "Too many new machines or moved pods did not get ready, or a gate of a RolloutPolicy tripped, and " +
		"voluntary disruption of the pool stopped; the message has the figures.", time.Hour, 0, 0, false},
	{RolloutStopped, warning, "On a RolloutPolicy: a gate tripped, and its NodePools are paused; the message has the evidence.",
		time.Hour, 0, 0, false},
	{DisruptionFailed, warning, "A step was begun and taken back; the message says why. On a NodePool: it may not have " +
		"what the step asks for, such as more than its limits.", repeatInterval, 0, 0, false},
	{Unconsolidatable, normal, "A node cannot be consolidated; the message says why.", 15 * time.Minute, 0, 0, false},
	{ConsolidationCandidate, normal, "A node could be replaced; the message gives the savings.", repeatInterval, 0, 0, false},
	{ConsolidationRejected, normal, "A move did not pass validation.", repeatInterval, 0, 0, false},
	{ConsolidationApproved, normal, "A move is worth its disruption.", repeatInterval, 0, 0, false},
	{FailedDraining, warning, "Pods are left on a draining node, or an eviction was refused.", repeatInterval, 0, 0, false},
	{AwaitingVolumeDetachment, normal, "Volumes are still attached to a drained node.", repeatInterval, 0, 0, false},
	{TerminationGracePeriodEnding, warning, "The time by which a node must be gone is known.", repeatInterval, 0, 0, false},
	{FailedConsistencyCheck, warning, "A node is not what its NodeClaim promised.", repeatInterval, 0, 0, false},
	{InsufficientCapacity, warning, "The cloud has none of what a NodeClaim allows; told on the NodeClaim and on the pods that " +
		"were planned onto it.", repeatInterval, 0, 0, true},
	{LaunchFailed, warning, "The cloud refuses to launch a machine, for another reason than capacity, or does so for " +
		"now; the message says why. It is tried again.", repeatInterval, 0, 0, false},
	{FewInstanceTypes, normal, "A spot machine is bought from fewer than five instance types, because the pool and its " +
		"pods allow no more; told once an hour for each pool.", time.Hour, 0, 0, false},
	{SpotShareExceeded, normal, "Every type and zone for a spot machine has its share of the pool already; told once an hour for " +
		"each pool.", time.Hour, 0, 0, false},
	{OpenedAhead, normal, "A NodeClaim was created for pods that are announced, such as those of a CronJob; the message names what " +
		"announces them and when they come.", repeatInterval, 0, 0, false},
	{AnnouncedInVain, warning, "Most pods that a CronJob or ScaledObject announced did not come, several times in a row. No machines are " +
		"opened ahead of time for it until they come; the message says what to do.", repeatInterval, 0, 0, false},
	{LearningOff, warning, "A NodePool or CapacityBuffer that is to learn keeps no room, because that cost more than it brought, or " +
		"because an annotation cannot be understood; the message says which.", repeatInterval, 0, 0, false},
	{UnregisteredTaintMissing, warning, "A node joined without the taint that keeps pods away until it is " +
		"registered.", repeatInterval, 0, 0, false},
	{Finalized, normal, "A finalizer was removed.", 0, 0, 0, false},

	{NoCompatibleInstanceTypes, warning, "The requirements of a pool leave no instance type.", time.Minute, 0, 0, false},
	{NodePoolNotReady, warning, "A pool gets no nodes; the message says why.", repeatInterval, 0, 0, false},
	{PodsUnschedulable, warning, "Pods that no pool can hold, counted by what keeps them from this pool.", time.Minute, 0, 0, false},
	{MachinesNeverReady, warning, "Machines of a pool ran for their whole time without becoming ready nodes; the " +
		"message says what failed.", 15 * time.Minute, 0, 0, false},
	{ReplicasMissing, warning, "A pool with replicas cannot get all its nodes; the message says why.", 5 * time.Minute, 0, 0, false},
	{UnreadableObject, warning, "An object could not be read and is left out.", 15 * time.Minute, 0, 0, false},
	{OrphanKept, warning, "The machine of a Node has no NodeClaim, as most machines; it is kept until a user " +
		"decides.", 15 * time.Minute, 0, 0, false},
	{NodeRepairBlocked, warning, "A broken node stays, because so many of its pool are broken that it is hardly the " +
		"machines.", 15 * time.Minute, 0, 0, false},
	{RebootObserved, normal, "A machine that was rebooted to repair it has booted.", 30 * time.Minute, 0, 0, false},
	{RebootFailed, warning, "A broken machine was not repaired by a reboot and is replaced instead; the message says why.",
		repeatInterval, 0, 0, false},
	{BufferWithoutRoom, warning, "A CapacityBuffer cannot be understood, or no pool can hold its pods; the message " +
		"says what to change.", 5 * time.Minute, 0, 0, false},
	{QuotaReached, warning, "A CapacityQuota keeps pods waiting; the message says how many and for which resource.", time.Hour, 0, 0,
		false},
	{QuotaExceeded, warning, "The nodes that match a CapacityQuota have more than it allows: it was lowered, a price rose, or nodes " +
		"were added by other means. No node is removed, and none that counts is opened.", time.Hour, 0, 0, false},
	{LeftOut, warning, "Decisions about an object run into a bug of Karpenter, and it is left out of them for a while. " +
		"Please report it.", time.Minute, 0, 0, false},

	{SpotInterrupted, warning, "The cloud takes a spot machine back.", repeatInterval, 0, 0, false},
	{SpotRebalanceRecommendation, normal, "A spot machine is likely to be taken back.", repeatInterval, 0, 0, false},
	{InstanceStopping, warning, "A machine was told to stop.", repeatInterval, 0, 0, false},
	{InstanceTerminating, warning, "A machine was told to terminate.", repeatInterval, 0, 0, false},
	{InstanceUnhealthy, warning, "The cloud found a machine broken.", repeatInterval, 0, 0, false},
	{CapacityReservationInterrupted, warning, "The reservation of a machine is taken back.", repeatInterval, 0, 0, false},
	{ZonalShiftActive, warning, "Traffic is shifted away from a zone in which a pool may have nodes; nothing is " +
		"launched, stopped or replaced there.", repeatInterval, 0, 0, false},
	{ZonalShiftCleared, normal, "Traffic is no longer shifted away from a zone in which a pool may have nodes.",
		repeatInterval, 0, 0, false},
	{TerminatingOnInterruption, warning, "A node is removed because its machine is going away.", repeatInterval, 0, 0, false},
	{SpotServiceRoleMissing, warning, "No spot machine can be launched: the account lacks a role, and the controller " +
		"may not create it.", repeatInterval, 0, 0, false},
	{WaitingOnNodeClaimTermination, normal, "A node class cannot go while NodeClaims use it.", repeatInterval, 0, 0, false},
	{BootstrapsTwice, warning, "The user data of a node class joins the cluster, which Karpenter does as well.", time.Hour, 0, 0, false},
	{NodeClassNotReady, warning, "Something that a node class asks for is not there or not allowed; the message names it.",
		repeatInterval, 0, 0, false},
}

// EventRows describes every reason of events, in the order of the table.
func EventRows() []EventRow { return append([]EventRow(nil), reasons...) }

// row returns the line of a reason. Reasons that are not in the table are condition types: their events say that a condition
// changed, and are never held back.
func row(r Reason) EventRow {
	for i := range reasons {
		if reasons[i].Reason == r {
			return reasons[i]
		}
	}
	return EventRow{Reason: r, Type: normal}
}
