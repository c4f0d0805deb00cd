// Controller is Karpenter itself, all its loops from its published module, over its KWOK provider: what it buys are
// Nodes without machines. Only the instance types are ours. It takes Karpenter's own environment variables, and
// SCARCE: a file that names pools of machines which have run out.
package main

import (
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"karpenter.sh/karpenter/bench/peer/scarce"
	"karpenter.sh/karpenter/bench/peer/sold"
)

func main() {
	catalog, err := sold.Machines()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, op := operator.NewOperator()
	client := op.GetClient()
	types := sold.Types(catalog)
	bare := scarce.New(kwok.NewCloudProvider(ctx, client, types), types, os.Getenv("SCARCE"))
	provider := overlay.Decorate(bare, client, op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, client, provider)
	loops := controllers.NewControllers(ctx, op.Manager, op.Clock, client, op.EventRecorder, provider, bare, cluster,
		op.InstanceTypeStore, op.PredictionStore)
	op.WithControllers(ctx, loops...).Start(ctx)
}
