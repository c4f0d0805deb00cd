package upstream_test

import (
	"time"

	karpoperator "sigs.k8s.io/karpenter/pkg/operator"

	"karpenter.sh/karpenter/clouds/upstream"
	"karpenter.sh/karpenter/clouds/upstream/example"
)

func Example() {
	ctx, op := karpoperator.NewOperator()
	upstream.Start(ctx, op, example.New(), upstream.WithConsistencyWindow(30*time.Second))
}
