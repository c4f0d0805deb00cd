package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
)

// ConditionTypeReady is the root condition of NodePool and NodeClaim.
const ConditionTypeReady = condition.Ready

// Conditions of a NodePool. The last five do not count for Ready.
const (
	ConditionTypeValidationSucceeded     = "ValidationSucceeded"     // What the schema cannot check is in order.
	ConditionTypeNodeClassReady          = "NodeClassReady"          // The node class exists and is ready.
	ConditionTypeNodeRegistrationHealthy = "NodeRegistrationHealthy" // Nodes that were launched lately have joined the cluster.
	// False while Karpenter cannot read what decides whether a node may go; absent otherwise.
	ConditionTypeClusterStateCurrent = "ClusterStateCurrent"
	// False while the last machines of the template did not become ready nodes in their time; absent otherwise.
	ConditionTypeMachinesGetReady = "MachinesGetReady"
	// An operator has paused voluntary disruption, of the pool or of the cluster; absent otherwise.
	ConditionTypeDisruptionPaused     = "DisruptionPaused"
	ConditionTypeDisruptionByApproval = "DisruptionByApproval" // Each voluntary step of the pool needs approval; absent otherwise.
	// The template has annotations that Karpenter keeps for itself; nodes do not get them.
	ConditionTypeReservedKeysIgnored = "ReservedKeysIgnored"
	// ConditionTypeSpotAnnotationsIgnored is on a pool some of whose annotations about spot cannot be read; absent otherwise.
	ConditionTypeSpotAnnotationsIgnored = "SpotAnnotationsIgnored"
)

// Reasons of NodePool conditions.
const (
	ReasonNodePoolValidationFailed = "NodePoolValidationFailed" // ValidationSucceeded is False: the message lists what is wrong.
	// ValidationSucceeded is False: the pool needs a feature gate that is off.
	ReasonFeatureGateDisabled  = "FeatureGateDisabled"
	ReasonNodeClassNotFound    = "NodeClassNotFound"    // NodeClassReady is False: there is no such node class.
	ReasonNodeClassTerminating = "NodeClassTerminating" // NodeClassReady is False: the node class is being deleted.
	// NodeClassReady is False, Launched Unknown: the node class does not say yet whether it is ready.
	ReasonNodeClassReadinessUnknown = "NodeClassReadinessUnknown"
	// NodeRegistrationHealthy is False: machines were launched that never joined.
	ReasonRegistrationFailed = "RegistrationFailed"
	// MachinesGetReady is False: the last machine ran and never joined the cluster.
	ReasonRegistrationTimeout = "RegistrationTimeout"
	// MachinesGetReady is False: the last machine joined and was never ready for pods; the message says what it lacked.
	ReasonInitializationTimeout = "InitializationTimeout"
	// DisruptionPaused is True: the pool is paused; the message says for how long and why.
	ReasonPoolPaused = "PoolPaused"
	// DisruptionPaused is True: all pools are paused; the message says for how long and why.
	ReasonClusterPaused = "ClusterPaused"
	// DisruptionPaused is True: too many new machines or moved pods did not get ready; the message has the figures.
	ReasonBreakerTripped = "BreakerTripped"
	// DisruptionPaused is True: a gate of the pool's RolloutPolicy tripped; the message has the evidence.
	ReasonRolloutTripped = "RolloutTripped"
	// DisruptionByApproval is True: the message names the rules that approve by themselves.
	ReasonApprovalManual = "Manual"
	// DisruptionByApproval is True: an annotation has a value that is not understood, so no rule counts.
	ReasonApprovalNotUnderstood = "NotUnderstood"
	// ClusterStateCurrent is False: the message names what is not read. No node is disrupted voluntarily.
	ReasonFeedFailed = "FeedFailed"
)

// ConditionTypeConverted is on Provisioners and AWSNodeTemplates.
const ConditionTypeConverted = "Converted" // The NodePool and the EC2NodeClass that the object would be are kept in step with it.

// Reasons of the condition of Provisioners and AWSNodeTemplates.
const (
	// Converted is False: nothing is launched for the kind; the message names what to apply instead.
	ReasonOlderKind      = "OlderKind"
	ReasonKeptInStep     = "KeptInStep"     // Converted is True: the message names the objects.
	ReasonNotConvertible = "NotConvertible" // Converted is False: the message says what the new kinds have no place for.
	ReasonNameTaken      = "NameTaken"      // Converted is False: there is an object of the name, and it belongs to another owner.
)

// Conditions of a NodeClaim. The first three make it Ready.
const (
	ConditionTypeLaunched             = "Launched"             // The cloud has started a machine.
	ConditionTypeRegistered           = "Registered"           // The machine joined as a Node and got the claim's labels and taints.
	ConditionTypeInitialized          = "Initialized"          // The Node is ready, has its resources and lost its startup taints.
	ConditionTypeConsolidatable       = "Consolidatable"       // No pod came or went for as long as the pool's consolidateAfter says.
	ConditionTypeDrifted              = "Drifted"              // The machine no longer is what pool and node class ask for.
	ConditionTypeDrained              = "Drained"              // No pod is left that has to leave before the machine stops.
	ConditionTypeVolumesDetached      = "VolumesDetached"      // No volume is attached any more.
	ConditionTypeInstanceTerminating  = "InstanceTerminating"  // The cloud was told to stop the machine.
	ConditionTypeConsistentStateFound = "ConsistentStateFound" // The Node has what the claim promised.
	ConditionTypeDisruptionReason     = "DisruptionReason"     // The claim was chosen for disruption; the reason says why.
	ConditionTypeRebooting            = "Rebooting"            // The machine is being rebooted, to repair it.
)

// Reasons of NodeClaim conditions.
const (
	ReasonAwaitingReconciliation = condition.ReasonAwaitingReconciliation // Not looked at yet.

	ReasonLaunchFailed = "LaunchFailed" // Launched is Unknown: the cloud refused; the message says why. It is tried again.

	ReasonNodeNotFound       = "NodeNotFound"       // Registered or Initialized is Unknown: no Node has joined yet.
	ReasonMultipleNodesFound = "MultipleNodesFound" // Registered is False: two Nodes claim to be the machine.
	// Registered is Unknown: the provider is not done; the message names what is left.
	ReasonRegistrationHookPending = "RegistrationHookPending"

	ReasonNodeNotReady              = "NodeNotReady"              // Initialized is Unknown: the Node is not ready.
	ReasonStartupTaintsExist        = "StartupTaintsExist"        // Initialized is Unknown: a startup taint is left.
	ReasonKnownEphemeralTaintsExist = "KnownEphemeralTaintsExist" // Initialized is Unknown: a taint of a starting node is left.
	// Initialized is Unknown: the Node lacks a resource that was asked for.
	ReasonResourceNotRegistered      = "ResourceNotRegistered"
	ReasonDRADriverPoolsNotPublished = "DRADriverPoolsNotPublished" // Initialized is Unknown: a DRA driver has not published its devices.

	ReasonNodePoolDrifted      = "NodePoolDrifted"      // Drifted: the pool's template changed.
	ReasonRequirementsDrifted  = "RequirementsDrifted"  // Drifted: the machine no longer satisfies the pool's requirements.
	ReasonInstanceTypeNotFound = "InstanceTypeNotFound" // Drifted: the instance type can no longer be had.
	// Drifted: the machine is older than expireAfter, and a RolloutPolicy has it replaced within budgets.
	ReasonExpired = "Expired"

	ReasonDraining                 = "Draining"                 // Drained is Unknown: pods are still leaving.
	ReasonAwaitingVolumeDetachment = "AwaitingVolumeDetachment" // VolumesDetached is Unknown: volumes are still attached.
	// VolumesDetached is False: time was up before all volumes were detached.
	ReasonTerminationGracePeriodElapsed = "TerminationGracePeriodElapsed"

	ReasonRebooting       = "Rebooting"       // Initialized is Unknown: the machine is being rebooted.
	ReasonRebootRequested = "RebootRequested" // Rebooting is True: pods leave the node before the provider is asked.
	ReasonRebootIssued    = "RebootIssued"    // Rebooting is True: the provider was asked.
	ReasonRebootSucceeded = "RebootSucceeded" // Rebooting is False: the machine has booted, and its Node is ready.
	// Rebooting is False: the machine was not rebooted, or did not boot in time; the message says why. For a day it is replaced instead.
	ReasonRebootFailed = "RebootFailed"

	ReasonConsistencyCheckFailed = "ConsistencyCheckFailed" // ConsistentStateFound is False: the message says what the Node lacks.
)

// GetConditions returns the pool's conditions.
func (p *NodePool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the pool's conditions.
func (p *NodePool) SetConditions(c []metav1.Condition) { p.Status.Conditions = c }

// ConditionRules says what makes a pool Ready.
func (p *NodePool) ConditionRules() condition.Rules {
	return condition.Rules{
		Root:       ConditionTypeReady,
		Dependents: []string{ConditionTypeValidationSucceeded, ConditionTypeNodeClassReady},
	}
}

// GetConditions returns the claim's conditions.
func (c *NodeClaim) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the claim's conditions.
func (c *NodeClaim) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// ConditionRules says what makes a claim Ready.
func (c *NodeClaim) ConditionRules() condition.Rules {
	return condition.Rules{
		Root:       ConditionTypeReady,
		Dependents: []string{ConditionTypeLaunched, ConditionTypeRegistered, ConditionTypeInitialized},
	}
}
