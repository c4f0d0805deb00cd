// Package watchhealth decides when a watch counts as failed.
//
// A quiet watch is healthy: a watch that is open, an event, a bookmark or a renewed watch are all signs of life. Only errors for a
// minute, or no sign of life for longer than any watch lasts, are a failure.
package watchhealth

import (
	"fmt"
	"sync"
	"time"
)

const (
	// errorsFor is how long there may be only errors.
	errorsFor = time.Minute
	// SilentFor is how long there may be no sign of life. Watches are renewed more often than that, even if nothing happens.
	SilentFor = 11 * time.Minute
)

// An Ear is the health of one watch. The zero Ear has not begun and has not failed. It may be used concurrently.
type Ear struct {
	mu      sync.Mutex
	heard   time.Time // the last sign of life, zero before the first one
	failing time.Time // when the first error after that came, zero if none did
	err     error     // that error
}

// Hear notes a sign of life. From the first call on, further signs of life are expected.
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

// Failed returns why the watch counts as failed, "" if it does not, and the last sign of life.
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
