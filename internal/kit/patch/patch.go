// Package patch writes an object with an optimistic lock: only if it is still the version that the caller saw.
//
// Loops decide by a snapshot. If another program has written the object since, the API server refuses the patch. Otherwise it could
// undo a change that the loop has not seen.
package patch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Over returns the patch from the object seen to the object that is written. It fails with a conflict if the object has changed since.
func Over(seen client.Object) client.Patch {
	return client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{})
}

// Status writes the status of next over the version seen, and reports whether it did. A conflict, or an object that is gone, is not an
// error: the next snapshot has the change.
func Status(ctx context.Context, c client.StatusClient, next, seen client.Object) (written bool, err error) {
	err = c.Status().Patch(ctx, next, Over(seen))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
