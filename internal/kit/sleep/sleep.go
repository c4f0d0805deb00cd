// Package sleep waits without outliving its context.
package sleep

import (
	"context"
	"time"
)

// For waits for d. It returns false, at once, when ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
