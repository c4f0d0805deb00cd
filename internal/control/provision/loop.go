package provision

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bindfail"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// name is this loop's name in logs and metrics.
const name = "provisioner"

// planner answers where pods go.
type planner interface {
	Plan(in engine.Question) *engine.Plan
	Memory() engine.Memory
}

// catalogs gives the pools that our provider serves, with their instance types.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
	Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books
}

// opener creates claims and records them and their pods in the store.
type opener interface {
	Open(ctx context.Context, seed, reason string, openings []engine.Opening) ([]*v1.NodeClaim, error)
}

// Deps are what the loop works with.
type Deps struct {
	Store    *cluster.Store
	Engine   planner
	Catalogs catalogs
	Opener   opener
	Metrics  *telemetry.Metrics
	Events   *telemetry.Events
	Times    *telemetry.PodTimes
	Journal  *journal.Journal // may be nil
	Verdicts *board.Board     // may be nil
	Desk     *Desk            // may be nil
}

// Settings of the loop.
type Settings struct {
	Idle, Max time.Duration // of the batch
	Engine    engine.Settings
	Stories   string // folder for scenarios in which pods are not bound although there is room for them; "" writes none
}

// Loop plans for pods that wait.
type Loop struct {
	Deps
	settings Settings
	memory   memory
	spurned  bindfail.Memory // which places the schedulers of pods did not use
	recorded time.Time       // when a scenario was last written
	watched  *telemetry.Loop
	aside    aside
	failures int  // turns in a row in which claims could not be created
	counted  bool // gauges show pods that wait
}

// New returns a loop that has not started.
func New(d Deps, s Settings) *Loop {
	return &Loop{Deps: d, settings: s, memory: memory{pods: map[types.UID]look{}}}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, name)
	l.watched = l.Metrics.Loop(name, 1)
	defer l.Metrics.End(l.watched)
	for ctx.Err() == nil {
		if err := l.batch(ctx); err != nil {
			l.watched.Wait(ctx, retryInterval, nil) // the pods are still due and may cause the panic again: do not spin
		}
	}
	return nil
}

// batch waits for a batch and plans for it. It returns an error only after a panic; other errors have been reported by the turn.
func (l *Loop) batch(ctx context.Context) (err error) {
	defer bug.Catch(&err, "gathering pods that wait")
	opened, last, ok := l.gather(ctx)
	if !ok {
		return nil
	}
	l.Metrics.BatchDuration.Observe(time.Since(opened).Seconds())
	err = l.watched.Turn(ctx, "planning for pods that wait", func(ctx context.Context) error { return l.turn(ctx, last) })
	if _, panicked := errors.AsType[*bug.Panic](err); panicked {
		return err
	}
	return nil // after other errors the turn has set when its pods are due again
}

// lookInterval is the least time between two looks: while thousands of pods come, every pod is a new snapshot.
const lookInterval = 100 * time.Millisecond

// gather waits until a batch is complete. It returns when the first and the last pod of the batch were seen, and ok false if ctx ended
// first.
func (l *Loop) gather(ctx context.Context) (first, last time.Time, ok bool) {
	w := newWindow(l.settings.Idle, l.settings.Max)
	for {
		snap := l.Store.Snapshot()
		now := time.Now()
		next := now.Add(time.Hour)
		if snap.Synced() {
			unbound, leaving := waiting(snap, now)
			l.acknowledge(unbound, now)
			if len(unbound)+len(leaving) == 0 {
				l.nothingWaits()
			}
			due, again := l.memory.due(snap, append(unbound, leaving...), now)
			for _, p := range due {
				w.add(string(p.UID), now)
			}
			next = ztime.Sooner(next, again)
		}
		if closes := w.closes(); !closes.IsZero() {
			if !now.Before(closes) {
				return w.first, w.last, true
			}
			next = closes
		}
		if !l.watched.Wait(ctx, next.Sub(now), snap.Stale()) {
			return first, last, false
		}
		woken := time.Now() // before its time if there was news
		if rest := lookInterval - woken.Sub(now); woken.Before(next) && rest > 0 && !sleep.For(ctx, rest) {
			return first, last, false
		}
	}
}

// acknowledge notes when pods were seen for the first time, for metrics.
func (l *Loop) acknowledge(pods []*cluster.Pod, now time.Time) {
	for _, p := range pods {
		if _, known := l.memory.pods[p.UID]; !known {
			l.Times.Seen(p.UID, now)
		}
	}
}
