// Karpenter-kwok runs our core over Karpenter's own KWOK provider, which makes Nodes without machines.
package main

import (
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpoperator "sigs.k8s.io/karpenter/pkg/operator"

	"karpenter.sh/karpenter/clouds/upstream"
)

func main() {
	ctx, op := karpoperator.NewOperator()
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		panic(err)
	}
	upstream.Start(ctx, op, kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes))
}
