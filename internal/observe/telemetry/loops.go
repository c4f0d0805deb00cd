package telemetry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/kit/bug"
)

const (
	// turnLimit is when a turn is cancelled. It is shorter than the silence after which the liveness check fails, so that a turn that
	// is only slow fails and is tried again.
	turnLimit = 8 * time.Minute
	// beatEvery is how often a loop that waits shows that it works.
	beatEvery = time.Minute
)

// A Loop watches one loop: its turns are counted and timed, a panic fails only the turn, and the liveness check fails if there are no
// turns any more. A nil Loop measures nothing, but catches panics too.
type Loop struct {
	name                             string
	adds, retries, panics, timeouts  prometheus.Counter
	succeeded, again, failed, errors prometheus.Counter
	metrics                          *Metrics // its histograms are made at the first turn, because many loops never take one
	workers                          int

	mu      sync.Mutex
	beat    time.Time // when it last began a turn or waited for one
	waiting int       // turns that are due
	running map[*Turn]struct{}
}

// loops are all loops that run in this program.
type loops struct {
	mu  sync.Mutex
	all map[*Loop]struct{}
}

// Loop begins to watch a loop, which may take as many turns at the same time as it has workers. End ends that.
func (m *Metrics) Loop(name string, workers int) *Loop {
	if m == nil {
		return nil
	}
	l := &Loop{
		name: name, workers: workers, beat: time.Now(), running: map[*Turn]struct{}{},
		adds: m.WorkqueueAdds.WithLabelValues(name, name), retries: m.WorkqueueRetries.WithLabelValues(name, name),
		panics: m.ReconcilePanics.WithLabelValues(name), timeouts: m.ReconcileTimeouts.WithLabelValues(name),
		succeeded: m.ReconcileTotal.WithLabelValues(name, "success"), again: m.ReconcileTotal.WithLabelValues(name, "requeue_after"),
		failed: m.ReconcileTotal.WithLabelValues(name, "error"), errors: m.ReconcileErrors.WithLabelValues(name),
		metrics: m,
	}
	m.ReconcileTerminalErrors.WithLabelValues(name) // makes the series, with the value 0
	m.loops.mu.Lock()
	defer m.loops.mu.Unlock()
	m.loops.all[l] = struct{}{}
	return l
}

// End stops watching over a loop that ended.
func (m *Metrics) End(l *Loop) {
	if m == nil {
		return
	}
	m.loops.mu.Lock()
	defer m.loops.mu.Unlock()
	delete(m.loops.all, l)
}

// Loops names the loops that run, sorted.
func (m *Metrics) Loops() []string {
	m.loops.mu.Lock()
	defer m.loops.mu.Unlock()
	var names []string
	for l := range m.loops.all {
		names = append(names, l.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Silent returns the names of the loops that have neither begun a turn nor waited for one for limit, sorted.
func (m *Metrics) Silent(limit time.Duration) []string {
	m.loops.mu.Lock()
	defer m.loops.mu.Unlock()
	silent := map[string]bool{}
	for l := range m.loops.all {
		if l.since() >= limit {
			silent[l.name] = true
		}
	}
	return slices.Sorted(maps.Keys(silent))
}

// since returns how long ago the last beat was.
func (l *Loop) since() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.beat)
}

// Beat notes that the loop works.
func (l *Loop) Beat() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beat = time.Now()
}

// Waiting notes how many turns are due and have not begun.
func (l *Loop) Waiting(n int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = n
}

// Added counts a turn that became due.
func (l *Loop) Added() {
	if l != nil {
		l.adds.Inc()
	}
}

// Waited notes how long a turn was due before it began.
func (l *Loop) Waited(d time.Duration) {
	if l != nil {
		l.metrics.WorkqueueWait.WithLabelValues(l.name, l.name).Observe(d.Seconds())
	}
}

// Retried counts a turn that will be repeated because it failed.
func (l *Loop) Retried() {
	if l != nil {
		l.retries.Inc()
	}
}

// Panicked counts a panic, even if it did not end the turn.
func (l *Loop) Panicked() {
	if l != nil {
		l.panics.Inc()
	}
}

// Wait waits until there is news, at most for the time most, and beats meanwhile. It returns false, at once, when ctx ends. news may be
// nil.
func (l *Loop) Wait(ctx context.Context, most time.Duration, news <-chan struct{}) bool {
	until := time.Now().Add(most)
	timer := time.NewTimer(min(most, beatEvery))
	defer timer.Stop()
	for {
		l.Beat()
		select {
		case <-ctx.Done():
			return false
		case <-news:
			return true
		case <-timer.C:
		}
		left := time.Until(until)
		if left <= 0 {
			return true
		}
		timer.Reset(min(left, beatEvery))
	}
}

// A Chore is the work of a simple loop, which is done again and again.
type Chore struct {
	Name   string        // of the loop
	What   string        // what is done, for the report of a panic: "telling about node overlays"
	Failed string        // the log line if it fails
	Every  time.Duration // the time between two turns
	Turn   func(ctx context.Context, now time.Time) error
}

// Repeat does a chore until ctx ends. A failure is logged, and the next turn tries again.
func (m *Metrics) Repeat(ctx context.Context, c Chore) {
	ctx = WithController(ctx, c.Name)
	watched := m.Loop(c.Name, 1)
	defer m.End(watched)
	for {
		err := watched.Turn(ctx, c.What, func(ctx context.Context) error { return c.Turn(ctx, time.Now()) })
		if err != nil && ctx.Err() == nil {
			Log(ctx).Error(c.Failed, "error", err)
		}
		if !watched.Wait(ctx, c.Every, nil) {
			return
		}
	}
}

// A Turn is one turn of a loop: a step for one object, or for all.
type Turn struct {
	// Again says that the turn asked for another turn at a later time.
	Again bool

	loop   *Loop
	what   string
	began  time.Time
	ended  func() error // returns why the turn's context ended, nil if it has not
	cancel context.CancelFunc
}

// Turn takes a turn, with counts and times. A panic of do becomes an error; what describes what is done, for the report of that.
func (l *Loop) Turn(ctx context.Context, what string, do func(context.Context) error) (err error) {
	l.Added()
	l.Waited(0)
	t, ctx := l.Begin(ctx, what)
	defer func() {
		if err != nil {
			l.Retried()
		}
	}()
	defer t.End(&err)
	return do(ctx)
}

// Begin begins a turn. Its End must be deferred. The context ends with the turn, or after turnLimit.
func (l *Loop) Begin(ctx context.Context, what string) (*Turn, context.Context) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	t := &Turn{loop: l, what: what, began: time.Now(), ended: ctx.Err, cancel: cancel}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.beat = t.began
		l.running[t] = struct{}{}
	}
	return t, ctx
}

// End ends a turn with the error *err. A panic becomes that error. A turn that failed because the program stops is not counted.
func (t *Turn) End(err *error) {
	if value := recover(); value != nil {
		t.loop.Panicked()
		defer t.end(err) // deferred, because in tests Recovered panics again
		*err = bug.Recovered(value, t.what)
		return
	}
	t.end(err)
}

// end counts and times the turn.
func (t *Turn) end(err *error) {
	ended := t.ended()
	t.cancel()
	l := t.loop
	if l == nil {
		return
	}
	l.mu.Lock()
	delete(l.running, t)
	l.mu.Unlock()
	switch {
	case *err != nil && errors.Is(ended, context.Canceled):
		return
	case *err != nil:
		l.failed.Inc()
		l.errors.Inc()
		if errors.Is(ended, context.DeadlineExceeded) {
			l.timeouts.Inc()
		}
	case t.Again:
		l.again.Inc()
	default:
		l.succeeded.Inc()
	}
	took := time.Since(t.began).Seconds()
	l.metrics.ReconcileTime.WithLabelValues(l.name).Observe(took)
	l.metrics.WorkqueueWork.WithLabelValues(l.name, l.name).Observe(took)
}
