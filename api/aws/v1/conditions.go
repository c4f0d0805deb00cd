package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
)

// Conditions of an EC2NodeClass. CapacityReservationsReady counts for Ready only while the feature gate ReservedCapacity is on.
const (
	ConditionTypeReady                     = condition.Ready             // Nodes can be launched.
	ConditionTypeAMIsReady                 = "AMIsReady"                 // Images were found.
	ConditionTypeCapacityReservationsReady = "CapacityReservationsReady" // Capacity reservations were looked up; there may be none.
	ConditionTypeInstanceProfileReady      = "InstanceProfileReady"      // The instance profile exists.
	ConditionTypePlacementGroupReady       = "PlacementGroupReady"       // The placement group was found, or none is asked for.
	ConditionTypeSecurityGroupsReady       = "SecurityGroupsReady"       // Security groups were found.
	ConditionTypeSubnetsReady              = "SubnetsReady"              // Subnets were found.
	ConditionTypeValidationSucceeded       = "ValidationSucceeded"       // AWS would accept what is launched.
)

// Reasons of EC2NodeClass conditions.
const (
	ReasonAMINotFound      = "AMINotFound"      // AMIsReady is False: no image matches.
	ReasonFormerAMIs       = "FormerAMIs"       // AMIsReady is True: no image matches any more, and those that did are used.
	ReasonUnsupportedAlias = "UnsupportedAlias" // AMIsReady is False: the alias does not exist for the cluster's Kubernetes version.

	ReasonPlacementGroupNotFound = "PlacementGroupNotFound" // PlacementGroupReady is False: there is no such group.
	// PlacementGroupReady is False: the group could not be looked up.
	ReasonPlacementGroupResolutionFailed = "PlacementGroupResolutionFailed"

	ReasonUnauthorized = "Unauthorized" // InstanceProfileReady is False: the controller lacks a permission; the message names it.
	ReasonRoleNotFound = "RoleNotFound" // InstanceProfileReady is False: there is no such role.

	// The condition is Unknown: AWS or the class gave an error, which the message tells; it is tried again.
	ReasonLookupFailed = "LookupFailed"

	ReasonSubnetsNotFound        = "SubnetsNotFound"        // SubnetsReady is False: no subnet matches.
	ReasonSecurityGroupsNotFound = "SecurityGroupsNotFound" // SecurityGroupsReady is False: no security group matches.

	ReasonClusterCIDRResolutionFailed = "ClusterCIDRResolutionFailed" // The cluster's service network is not known.
	ReasonInvalidKubeletConfiguration = "InvalidKubeletConfiguration" // The kubelet would refuse its configuration.
	// The family of AMIs cannot hand the configuration to the kubelet.
	ReasonUnsupportedKubeletConfiguration   = "UnsupportedKubeletConfiguration"
	ReasonKubeletExpressionsDisabled        = "KubeletExpressionsDisabled"        // Expressions need the feature gate NodeClassCEL.
	ReasonKubeletExpressionInvalid          = "KubeletExpressionInvalid"          // An expression does not compile.
	ReasonKubeletExpressionEvaluationFailed = "KubeletExpressionEvaluationFailed" // An expression fails for an instance type.
	// Images, profile, security groups or subnets are not ready.
	ReasonDependenciesNotReady                = "DependenciesNotReady"
	ReasonTagValidationFailed                 = "TagValidationFailed"                 // A tag key is restricted.
	ReasonCreateLaunchTemplateAuthCheckFailed = "CreateLaunchTemplateAuthCheckFailed" // The controller may not create launch templates.
	ReasonUserDataSizeLimitExceeded           = "UserDataSizeLimitExceeded"           // The user data is too long for EC2.
	ReasonCreateFleetAuthCheckFailed          = "CreateFleetAuthCheckFailed"          // The controller may not create fleets.
	ReasonRunInstancesAuthCheckFailed         = "RunInstancesAuthCheckFailed"         // The controller may not run instances.
	ReasonInstanceProfileNotFound             = "InstanceProfileNotFound"             // There is no such instance profile.
)

// Reasons of the Drifted condition of a NodeClaim that the provider gives.
const (
	DriftReasonNodeClass           = "NodeClassDrift"           // The node class changed in what goes into a machine.
	DriftReasonAMI                 = "AMIDrift"                 // The machine's image is no longer selected.
	DriftReasonSecurityGroup       = "SecurityGroupDrift"       // The machine has other security groups than are selected.
	DriftReasonSubnet              = "SubnetDrift"              // The machine's subnet is no longer selected.
	DriftReasonCapacityReservation = "CapacityReservationDrift" // The machine's capacity reservation is no longer selected.
	DriftReasonPlacementGroup      = "PlacementGroupDrift"      // The machine is not in the placement group that is asked for.
	DriftReasonRebalance           = "RebalanceRecommended"     // EC2 expects to take the spot machine back (replace-on-rebalance).
)

// GetConditions returns the class's conditions.
func (c *EC2NodeClass) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the class's conditions.
func (c *EC2NodeClass) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// ConditionRules says what makes a class Ready while the feature gate ReservedCapacity is on, which is the default. With the
// gate off, judge WithoutCapacityReservations instead.
func (c *EC2NodeClass) ConditionRules() condition.Rules {
	return condition.Rules{Root: ConditionTypeReady, Dependents: []string{
		ConditionTypeAMIsReady, ConditionTypeCapacityReservationsReady, ConditionTypePlacementGroupReady,
		ConditionTypeSubnetsReady, ConditionTypeSecurityGroupsReady, ConditionTypeInstanceProfileReady,
		ConditionTypeValidationSucceeded,
	}}
}

// WithoutCapacityReservations is the verdict on the class while the feature gate ReservedCapacity is off: Ready does not
// wait for CapacityReservationsReady.
func (c *EC2NodeClass) WithoutCapacityReservations() condition.Object {
	return withoutReservations{c}
}

type withoutReservations struct{ *EC2NodeClass }

func (w withoutReservations) ConditionRules() condition.Rules {
	rules := w.EC2NodeClass.ConditionRules()
	rules.Dependents = slices.DeleteFunc(rules.Dependents, func(t string) bool { return t == ConditionTypeCapacityReservationsReady })
	return rules
}
