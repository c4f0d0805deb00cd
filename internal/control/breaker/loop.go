// Package breaker stops voluntary disruption of all NodePools when too many new machines or moved pods do not get ready.
//
// It pauses the NodePools by the annotation that "karpenter pause" writes, with the time at which the pause ends by itself. So
// conditions, metrics, explanations and "karpenter resume" work as they do for a pause of a user, and the pause survives a restart.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/breaker"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// lookInterval is how often the loop looks.
const lookInterval = 5 * time.Second

// Settings are the tunables of the loop.
type Settings struct {
	Percent int           // the part of new machines or moved pods that may fail
	Window  time.Duration // how long a machine counts as new, and a pod as moved
	Pause   time.Duration // how long the breaker stops disruption
	Ready   time.Duration // how long a machine or pod may take to get ready
}

// Deps are what the loop needs.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
}

// Loop is the breaker of the cluster.
type Loop struct {
	Deps
	settings Settings
	memory   breaker.Memory
	stopped  bool      // the breaker stopped some pool when the loop last looked
	lifted   time.Time // when the last stop ended, if this process saw that
}

// New returns a loop that has not started.
func New(d Deps, s Settings) *Loop { return &Loop{Deps: d, settings: s} }

// Run works until ctx ends. Only the leader may run it.
func (l *Loop) Run(ctx context.Context) error {
	l.Metrics.Repeat(ctx, telemetry.Chore{Name: "breaker", What: "judging new machines and moved pods",
		Failed: "stopping disruption failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn starts a stop if too much of what is new fails. While a stop lasts, it writes the stop on pools that do not have it yet.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	snap := l.Store.Snapshot()
	if !snap.Synced() || !snap.Fed() {
		return nil
	}
	standing, last := currentStop(snap, now)
	if l.stopped && standing == nil {
		l.lifted = now
	}
	l.stopped = standing != nil
	if l.lifted.After(last) {
		last = l.lifted
	}
	l.memory.Look(snap, breaker.Limits{Since: last, Window: l.settings.Window, Ready: l.settings.Ready}, now)
	if standing != nil {
		return l.pausePools(ctx, snap, standing, now)
	}
	e := l.memory.Evidence()
	cause, trips := e.Trips(l.settings.Percent)
	if !trips {
		return nil
	}
	told := "the breaker stopped it: " + sentence.Evidence(e)
	telemetry.Log(ctx).Error("too much of what is new does not get ready; stopping voluntary disruption", "evidence", told,
		"machines", e.Machines, "failed-machines", e.BadMachines, "pods", e.Pods, "failed-pods", e.BadPods)
	l.Metrics.DisruptionBreakerTrips.WithLabelValues(string(cause)).Inc()
	l.stopped = true
	return l.pausePools(ctx, snap, &stop{at: now.UTC().Truncate(time.Second), until: now.Add(l.settings.Pause).UTC().Truncate(time.Second),
		reason: told}, now)
}

// A stop is what the breaker writes on pools.
type stop struct {
	at, until time.Time
	reason    string
}

// currentStop reads from the annotations of pools the stop that lasts now, nil if there is none. last is when the last stop began, or
// ended by itself: failures before that moment no longer count.
func currentStop(snap *cluster.Snapshot, now time.Time) (standing *stop, last time.Time) {
	for p := range cluster.Pools.All(snap) {
		at, err := time.Parse(time.RFC3339, p.Annotations[v1.BreakerTrippedAnnotationKey])
		if err != nil {
			continue
		}
		if at.After(last) {
			last = at
		}
		if p.Annotations[v1.PausedByAnnotationKey] != v1.PausedByBreaker {
			continue
		}
		if h, halted := paused.Read(p.Annotations, now); halted {
			if standing == nil || at.After(standing.at) {
				standing = &stop{at: at, until: h.Until, reason: h.Reason}
			}
		} else if ended, err := time.Parse(time.RFC3339, p.Annotations[v1.PausedAnnotationKey]); err == nil && ended.After(last) {
			last = ended
		}
	}
	return standing, last
}

// pausePools writes a stop on each pool that does not have it yet, and publishes an event for each. turn calls it again while the stop
// lasts, for new pools and for patches that failed. It leaves a pool alone that a user has paused, or has resumed since.
func (l *Loop) pausePools(ctx context.Context, snap *cluster.Snapshot, s *stop, now time.Time) error {
	var errs []error
	for p := range cluster.Pools.All(snap) {
		if at, err := time.Parse(time.RFC3339, p.Annotations[v1.BreakerTrippedAnnotationKey]); err == nil && !at.Before(s.at) {
			continue // the pool has had the stop; if it is not paused now, a user has resumed it
		}
		if _, halted := paused.Read(p.Annotations, now); halted {
			continue
		}
		next := p.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[v1.PausedAnnotationKey] = s.until.Format(time.RFC3339)
		next.Annotations[v1.PausedReasonAnnotationKey] = s.reason
		next.Annotations[v1.PausedByAnnotationKey] = v1.PausedByBreaker
		next.Annotations[v1.BreakerTrippedAnnotationKey] = s.at.Format(time.RFC3339)
		err := l.Client.Patch(ctx, next, patch.Over(p))
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err): // the next turn tries again
		case err != nil:
			errs = append(errs, fmt.Errorf("pause NodePool %s: %w", p.Name, err))
		default:
			l.Store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, next) })
			l.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(p), Reason: telemetry.DisruptionStopped,
				Key: []string{string(p.UID), s.at.String()}, Message: s.reason})
		}
	}
	return errors.Join(errs...)
}
