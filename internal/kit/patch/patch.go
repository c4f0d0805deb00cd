// Package patch writes what an object should be over what the caller saw, and only over that.
//
// Loops decide by a picture. A program that wrote the object since has seen more, so a patch that comes later is refused by the API server
// instead of taking something back that its author never looked at.
package patch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Over is the patch that changes an object from what was seen. It fails with a conflict if the object is no longer that.
func Over(seen client.Object) client.Patch {
	return client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{})
}

// Status writes the status of an object over the version that was seen, and reports whether it did. The faster
// writer is right: a conflict, or an object that is gone, is no error, because the next picture has what they made
// of it.
func Status(ctx context.Context, c client.StatusClient, next, seen client.Object) (written bool, err error) {
	err = c.Status().Patch(ctx, next, Over(seen))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
