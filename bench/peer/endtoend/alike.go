package endtoend

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// alike fails when a Node has another room than the catalogue says its type has: both sides buy the same machines, or figures say nothing.
func alike(ctx context.Context, c *cluster, catalog *cloud.Catalog) error {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		n := &nodes[i]
		it := catalog.Type(n.Labels[corev1.LabelInstanceTypeStable])
		if it == nil {
			return fmt.Errorf("node %s is of a type that the catalogue does not sell", n.Name)
		}
		want := it.Allocatable(&it.Offerings[0])
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
			if got, should := n.Status.Allocatable[r], want[r]; got.Cmp(should) != 0 {
				return fmt.Errorf("node %s (%s) has %s of %s, the catalogue says %s", n.Name, it.Name, got.String(), r, should.String())
			}
		}
	}
	return nil
}
