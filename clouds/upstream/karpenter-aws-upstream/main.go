// Karpenter-aws-upstream runs our core over Karpenter's own AWS provider.
package main

import (
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/aws/karpenter-provider-aws/pkg/cloudprovider"
	"github.com/aws/karpenter-provider-aws/pkg/cloudprovider/registrationhooks"
	"github.com/aws/karpenter-provider-aws/pkg/controllers"
	"github.com/aws/karpenter-provider-aws/pkg/operator"
	"github.com/aws/karpenter-provider-aws/pkg/operator/options"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"karpenter.sh/karpenter/clouds/upstream"
)

func main() {
	ctx, op := operator.NewOperator(coreoperator.NewOperator())
	provider := cloudprovider.New(op.InstanceTypesProvider, op.InstanceProvider, op.EventRecorder, op.GetClient(), op.AMIProvider,
		op.SecurityGroupProvider, op.CapacityReservationProvider, op.PlacementGroupProvider, op.InstanceTypeStore, op.CABundle,
		cloudprovider.WithLegacyRepairPolicies(coreoptions.FromContext(ctx).LegacyNodeRepair),
		cloudprovider.WithRebootForRepair(options.FromContext(ctx).FeatureGates.RebootForRepair))
	v1.CapacityReservationsEnabled = coreoptions.FromContext(ctx).FeatureGates.ReservedCapacity
	op.WithControllers(ctx, controllers.NewControllers(ctx, op.Manager, op.Config, op.Clock, op.EC2API, op.GetClient(), op.EventRecorder,
		op.UnavailableOfferingsCache, op.SSMCache, op.ValidationCache, op.RecreationCache, provider, op.SubnetProvider,
		op.SecurityGroupProvider, op.InstanceProfileProvider, op.InstanceProvider, op.PricingProvider, op.AMIProvider,
		op.LaunchTemplateProvider, op.VersionProvider, op.InstanceTypesProvider, op.CapacityReservationProvider,
		op.PlacementGroupProvider, op.AMIResolver, op.ZonalShiftProvider, op.InstanceStatusProvider, op.CABundle, op.CELEnvironment)...)
	upstream.Start(ctx, op.Operator, provider,
		upstream.WithRegistrationHook(registrationhooks.NewPlacementGroupRegistrationHook(op.InstanceProvider)))
}
