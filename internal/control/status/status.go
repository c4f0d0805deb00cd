// Package status writes what a loop says about an object, where it says something new.
package status

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/patch"
)

// Write writes the status of told where it differs from that of seen, and puts told into the store. It does not
// touch an object that another program changed meanwhile: the next turn sees that change.
func Write[V client.Object](ctx context.Context, store *cluster.Store, c client.StatusClient, put func(*cluster.Draft, V),
	told, seen V) error {
	if equality.Semantic.DeepEqual(told, seen) {
		return nil
	}
	written, err := patch.Status(ctx, c, told, seen)
	if err != nil {
		return fmt.Errorf("write status of %s: %w", seen.GetName(), err)
	}
	if written {
		store.Update(func(d *cluster.Draft) { put(d, told) })
	}
	return nil
}
