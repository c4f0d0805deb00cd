package telemetry

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PodTimes remembers when pods were first seen waiting, first decided about, and given a place. It is lost at a restart: durations are
// measured only for pods that this process saw from the start.
type PodTimes struct {
	mu   sync.Mutex
	pods map[types.UID]PodTime
}

// A PodTime is what is remembered of one pod. A zero time means not yet.
type PodTime struct {
	Seen, Decided, Schedulable time.Time
}

// NewPodTimes returns an empty memory.
func NewPodTimes() *PodTimes { return &PodTimes{pods: map[types.UID]PodTime{}} }

// Seen notes that a pod waits. Only the first time counts.
func (t *PodTimes) Seen(uid types.UID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.pods[uid]; !known {
		t.pods[uid] = PodTime{Seen: now}
	}
}

// Decided notes a decision about a pod and returns how long the first one took. A pod that lost its place is no longer
// schedulable.
func (t *PodTimes) Decided(uid types.UID, now time.Time, placed bool) (waited time.Duration, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[uid]
	if p.Seen.IsZero() {
		p.Seen = now
	}
	if first = p.Decided.IsZero(); first {
		p.Decided = now
		waited = now.Sub(p.Seen)
	}
	switch {
	case !placed:
		p.Schedulable = time.Time{}
	case p.Schedulable.IsZero():
		p.Schedulable = now
	}
	t.pods[uid] = p
	return waited, first
}

// Get returns what is known of a pod.
func (t *PodTimes) Get(uid types.UID) (PodTime, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.pods[uid]
	return p, ok
}

// Forget drops a pod.
func (t *PodTimes) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}
