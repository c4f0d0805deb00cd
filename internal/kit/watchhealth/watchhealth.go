// Package watchhealth knows when something that is followed was last heard, and says when it counts as failed.
//
// Quiet is healthy: a watch that stands, an event, a bookmark or a renewed watch are all signs of life. Errors
// alone for a minute, or nothing at all for longer than any watch lasts, are not.
package watchhealth

import (
	"fmt"
	"sync"
	"time"
)

const (
	// errorsFor is how long nothing but errors may be met.
	errorsFor = time.Minute
	// SilentFor is how long nothing at all may be heard. Watches are renewed more often, also when nothing happens.
	SilentFor = 11 * time.Minute
)

// An Ear is what is known of one thing that is followed. The zero Ear waits for nothing yet. It may be used concurrently.
type Ear struct {
	mu      sync.Mutex
	heard   time.Time // when the other side last showed that it tells us what happens, zero before anybody listens
	failing time.Time // when the first error after that was met, zero if none was
	err     error     // that error
}

// Hear notes a sign of life. The first one begins the waiting for others.
func (e *Ear) Hear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.failing, e.err = time.Now(), time.Time{}, nil
}

// Fail notes an error.
func (e *Ear) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.failing, e.err = time.Now(), err
	}
}

// Failed tells since when nothing has been heard and why that counts as a failure, "" if it does not.
func (e *Ear) Failed() (since time.Time, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.heard.IsZero():
	case e.err != nil && time.Since(e.failing) >= errorsFor:
		return e.heard, e.err.Error()
	case time.Since(e.heard) >= SilentFor:
		return e.heard, fmt.Sprintf("the API server has been silent for more than %s", SilentFor)
	}
	return time.Time{}, ""
}
