// Package status writes the status of an object if a loop has changed it.
package status

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/patch"
)

// Write writes the status of told if told differs from seen, and puts told into the store. If another program has changed the object
// meanwhile, it writes nothing: the next turn sees that change.
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
