// Package workqueue runs a step for each of many objects, when the object changed or when its time has come.
//
// Loops that look after single objects are built on it. The version of an object consists of row pointers, so that a change is found by
// one comparison. Steps of different keys run at the same time, steps of one key never do. A step that fails is repeated with
// exponential backoff; a step that panics fails only for its own key.
package workqueue

import (
	"container/heap"
	"context"
	"iter"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A Source gives snapshots.
type Source interface{ Snapshot() *cluster.Snapshot }

// A Work is what to do. V is the version of an object: whatever differs when a step must be taken.
type Work[V comparable] struct {
	// Name of the loop in logs and metrics.
	Name    string
	Metrics *telemetry.Metrics // may be nil
	// Workers is how many steps may run at the same time.
	Workers int
	// Rows yields every key with its version.
	Rows func(*cluster.Snapshot) iter.Seq2[string, V]
	// Step does what one key needs. Its snapshot is at least as new as the version for which it is called. It returns when to look
	// again if nothing changes; zero means never.
	Step func(ctx context.Context, snap *cluster.Snapshot, key string) (again time.Time, err error)
	// Forget is called when a key is no longer there. It may be nil.
	Forget func(key string)
	// A failed step is repeated after MinWait, then after twice that, up to MaxWait; a second to a minute by default.
	MinWait, MaxWait time.Duration
}

// Run works until ctx ends, and returns when the last step has.
func (w Work[V]) Run(ctx context.Context, source Source) error {
	r := run[V]{Work: w, source: source, states: map[string]*state[V]{}, done: make(chan result),
		watched: w.Metrics.Loop(w.Name, w.Workers)}
	defer w.Metrics.End(r.watched)
	if r.MinWait <= 0 {
		r.MinWait = time.Second
	}
	if r.MaxWait <= 0 {
		r.MaxWait = time.Minute
	}
	ctx = telemetry.WithController(ctx, r.Name)
	r.loop(ctx)
	for r.running > 0 {
		<-r.done
		r.running--
	}
	return nil
}

// A run is the state of a Work that runs. Only the goroutine of loop uses it; steps send their results to done.
type run[V comparable] struct {
	Work[V]
	watched *telemetry.Loop
	source  Source
	states  map[string]*state[V]
	ready   []string // to be started as soon as a worker is free
	due     dueHeap  // times at which keys are looked at again; entries of keys that are due at another time by now are ignored
	running int      // steps
	done    chan result
	round   uint64 // number of scans
}

// A state is what is known of one key.
type state[V comparable] struct {
	version  V
	round    uint64 // in which it was last seen
	running  bool
	called   time.Time // when it was put into ready
	queued   bool      // it is in ready
	changed  bool      // its version changed while its step was running
	due      time.Time // when it is looked at again, zero for never
	failures int
}

type result struct {
	key   string
	again time.Time
	err   error
}

// loop starts steps and handles their results until ctx ends. Steps may still run when it returns.
func (r *run[V]) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	snap := r.source.Snapshot()
	r.look(snap)
	for {
		r.wakeDue(time.Now())
		r.start(ctx)
		r.watched.Waiting(len(r.ready))
		if r.running < r.Workers {
			r.watched.Beat() // with all workers busy, only the end of a step shows the liveness check that the loop works
		}
		timer.Reset(r.untilDue())
		select {
		case <-ctx.Done():
			return
		case <-snap.Stale():
			snap = r.source.Snapshot()
			r.look(snap)
		case res := <-r.done:
			r.finish(ctx, res)
		case <-timer.C:
		}
	}
}

// look scans a snapshot. If the scan panics, the next scan finds the same changes.
func (r *run[V]) look(snap *cluster.Snapshot) {
	var err error // a bug, which is reported where it is caught
	defer bug.Catch(&err, "looking for news for "+r.Name)
	r.scan(snap)
}

// scan puts keys that are new or changed into ready, and forgets keys that are gone.
func (r *run[V]) scan(snap *cluster.Snapshot) {
	r.round++
	for key, version := range r.Rows(snap) {
		s := r.states[key]
		if s == nil {
			s = &state[V]{}
			r.states[key] = s
		} else if s.version == version {
			s.round = r.round
			continue
		}
		s.version, s.round, s.failures = version, r.round, 0
		r.call(key, s)
	}
	for key, s := range r.states {
		if s.round != r.round && !s.running {
			r.forget(key)
		}
	}
}

func (r *run[V]) forget(key string) {
	delete(r.states, key)
	if r.Forget != nil {
		r.Forget(key)
	}
}

// call puts a key into ready, unless it is there already. If its step is running, finish calls again.
func (r *run[V]) call(key string, s *state[V]) {
	switch {
	case s.running:
		s.changed = true
	case !s.queued:
		s.queued, s.called = true, time.Now()
		r.ready = append(r.ready, key)
		r.watched.Added()
	}
}

// wakeDue puts the keys into ready whose time has come.
func (r *run[V]) wakeDue(now time.Time) {
	for len(r.due) > 0 && !r.due[0].at.After(now) {
		d := heap.Pop(&r.due).(dueKey)
		if s := r.states[d.key]; s != nil && s.due.Equal(d.at) {
			s.due = time.Time{}
			r.call(d.key, s)
		}
	}
}

// longestWait is how long the loop waits at most, so that the liveness check sees that it works.
const longestWait = time.Minute

// untilDue returns how long to wait for the next key that is due.
func (r *run[V]) untilDue() time.Duration {
	if len(r.due) == 0 {
		return longestWait
	}
	return min(longestWait, time.Until(r.due[0].at))
}

// start starts steps for ready keys while workers are free.
func (r *run[V]) start(ctx context.Context) {
	if r.running >= r.Workers || len(r.ready) == 0 {
		return
	}
	snap := r.source.Snapshot()
	for r.running < r.Workers && len(r.ready) > 0 {
		key := r.ready[0]
		r.ready = r.ready[1:]
		s := r.states[key]
		if s == nil {
			continue
		}
		s.queued, s.running, s.changed, s.due = false, true, false, time.Time{}
		r.watched.Waited(time.Since(s.called))
		r.running++
		go func() { r.done <- r.step(ctx, snap, key) }()
	}
}

// step runs the step of one key and logs its error.
func (r *run[V]) step(ctx context.Context, snap *cluster.Snapshot, key string) result {
	again, err := r.turn(ctx, snap, key)
	if err != nil && ctx.Err() == nil {
		telemetry.Log(ctx).Error("step failed, trying again", "name", key, "error", err)
	}
	return result{key, again, err}
}

// turn calls Step inside of a watched turn, which counts it and turns a panic into an error.
func (r *run[V]) turn(ctx context.Context, snap *cluster.Snapshot, key string) (again time.Time, err error) {
	turn, ctx := r.watched.Begin(ctx, "step of "+key)
	defer turn.End(&err)
	again, err = r.Step(telemetry.With(ctx, "name", key), snap, key)
	turn.Again = !again.IsZero()
	return again, err
}

// finish handles the result of a step: it calls the key again if it has changed meanwhile, plans a retry after an error, or the next look
// that the step asked for.
func (r *run[V]) finish(ctx context.Context, res result) {
	r.running--
	s := r.states[res.key]
	s.running = false
	if s.round != r.round {
		r.forget(res.key)
		return
	}
	switch {
	case s.changed:
		r.call(res.key, s)
	case res.err != nil:
		r.watched.Retried()
		r.wake(res.key, s, time.Now().Add(r.backoff(s)))
	case !res.again.IsZero():
		s.failures = 0
		r.wake(res.key, s, res.again)
	default:
		s.failures = 0
	}
}

// backoff returns the wait after a failure, twice as long each time, and counts the failure.
func (r *run[V]) backoff(s *state[V]) time.Duration {
	wait := r.MinWait << min(s.failures, 20)
	if wait <= 0 || wait > r.MaxWait {
		wait = r.MaxWait
	}
	s.failures++
	return wait
}

// wake makes a key due at a time.
func (r *run[V]) wake(key string, s *state[V], at time.Time) {
	s.due = at
	heap.Push(&r.due, dueKey{key, at})
}

type dueKey struct {
	key string
	at  time.Time
}

type dueHeap []dueKey

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueKey)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
