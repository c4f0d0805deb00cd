// Package turns runs a step for each of many named objects, when one changed or when its time has come: a work queue.
//
// Steps of different names run at the same time, steps of one name never do. A step that fails is repeated with growing
// pauses, until it succeeds or Call is called for its name.
package turns

import (
	"context"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	firstWait = time.Second
	longest   = time.Minute
)

// Workers is how many steps run at the same time.
const Workers = 10

// A Turns knows when each name is due. The zero value is ready to use.
type Turns struct {
	mu   sync.Mutex
	all  map[string]*turn
	wake chan struct{}
}

// A turn is the state of one name.
type turn struct {
	due      time.Time // zero for never
	running  bool
	again    bool // called while it ran
	failures int
}

// Call makes a name due now. It never blocks.
func (t *Turns) Call(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.turnOf(name)
	one.failures = 0
	if one.running {
		one.again = true
	} else {
		one.due = time.Now()
	}
	t.signal()
}

func (t *Turns) turnOf(name string) *turn {
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	if t.all[name] == nil {
		t.all[name] = &turn{}
	}
	return t.all[name]
}

// signal wakes the loop. The caller holds the lock.
func (t *Turns) signal() {
	select {
	case t.waker() <- struct{}{}:
	default:
	}
}

func (t *Turns) waker() chan struct{} {
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return t.wake
}

// Run runs steps until ctx ends, and returns when the last step has ended. watched may be nil. step returns when to
// run again, 0 for never; it gets only names that were called.
func (t *Turns) Run(ctx context.Context, watched *telemetry.Loop, step func(ctx context.Context,
	name string) (time.Duration, error)) error {
	t.mu.Lock()
	wake := t.waker()
	t.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, Workers)
	for {
		names, wait := t.ready()
		for i, name := range names {
			watched.Added()
			watched.Waiting(len(names) - i)
			slots <- struct{}{}
			running.Go(func() {
				again, err := runStep(ctx, watched, name, step)
				if err != nil {
					watched.Retried()
				}
				t.finish(name, again, err)
				<-slots
			})
		}
		watched.Waiting(0)
		if !watched.Wait(ctx, wait, wake) {
			return nil
		}
	}
}

// runStep runs one step. A panic becomes its error.
func runStep(ctx context.Context, watched *telemetry.Loop, name string, step func(context.Context, string) (time.Duration,
	error)) (again time.Duration, err error) {
	turn, ctx := watched.Begin(ctx, "step of "+name)
	defer turn.End(&err)
	again, err = step(ctx, name)
	turn.Again = again > 0
	return again, err
}

// ready marks the names that are due as running, and returns how long until the next is due.
func (t *Turns) ready() (names []string, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	wait = time.Hour
	for name, one := range t.all {
		switch {
		case one.running || one.due.IsZero():
		case !one.due.After(now):
			one.running, one.due = true, time.Time{}
			names = append(names, name)
		default:
			wait = min(wait, one.due.Sub(now))
		}
	}
	return names, wait
}

// finish notes the outcome of a step: a failed one is repeated with growing pauses.
func (t *Turns) finish(name string, again time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.turnOf(name)
	one.running = false
	switch {
	case one.again:
		one.again, one.due = false, time.Now()
	case err != nil:
		wait := min(longest, firstWait<<min(one.failures, 10))
		one.failures++
		if again > 0 {
			wait = min(wait, again)
		}
		one.due = time.Now().Add(wait)
	case again > 0:
		one.failures = 0
		one.due = time.Now().Add(again)
	default:
		delete(t.all, name)
	}
	t.signal()
}
