// Package bug reports what cannot happen and did.
//
// In a test such a thing panics, so that it is found. In production it is counted and logged and the program goes on, because
// one broken invariant is no reason to stop caring for a cluster.
package bug

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
)

var count atomic.Int64

// Count is how many bugs were reported since the program started.
func Count() int64 { return count.Load() }

// Reportf reports something that cannot happen.
func Reportf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if testing.Testing() {
		panic("bug: " + text)
	}
	count.Add(1)
	slog.Error("this cannot happen; please report it", "bug", text)
}
