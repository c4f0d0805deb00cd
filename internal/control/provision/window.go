package provision

import (
	"time"

	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A window decides when a batch is complete: idle after its last new element, at the latest max after its first. An element that comes
// again is not new.
type window struct {
	idle, max   time.Duration
	first, last time.Time
	seen        map[string]struct{}
}

func newWindow(idle, most time.Duration) *window {
	return &window{idle: idle, max: most, seen: map[string]struct{}{}}
}

// add notes an element that asks for a plan.
func (w *window) add(element string, now time.Time) {
	if _, known := w.seen[element]; known {
		return
	}
	if len(w.seen) == 0 {
		w.first = now
	}
	w.seen[element] = struct{}{}
	w.last = now
}

// closes returns when the batch is complete if no new element comes, zero while it is empty.
func (w *window) closes() time.Time {
	if len(w.seen) == 0 {
		return time.Time{}
	}
	return ztime.Sooner(w.last.Add(w.idle), w.first.Add(w.max))
}
