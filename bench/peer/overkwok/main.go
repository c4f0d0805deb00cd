// Overkwok is our core over the provider of ../controller, so that the two cores can be compared on one provider.
package main

import (
	"fmt"
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator"

	"karpenter.sh/karpenter/bench/peer/scarce"
	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/clouds/upstream"
)

func main() {
	catalog, err := sold.Machines()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, op := operator.NewOperator()
	types := sold.Types(catalog)
	upstream.Start(ctx, op, scarce.New(kwok.NewCloudProvider(ctx, op.GetClient(), types), types, os.Getenv("SCARCE")))
}
