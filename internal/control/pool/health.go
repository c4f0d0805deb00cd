package pool

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// awaiting is what the condition says while too little is known.
const awaiting = "no node has registered or failed to since pool and node class are what they are"

// checkHealth resets what is known of a pool's registrations, in memory and in its conditions, if the pool's or class's spec has changed.
func (l *Loop) checkHealth(pool *v1.NodePool, class *cluster.NodeClass, now time.Time) {
	if class == nil {
		return
	}
	c := condition.Get(pool, v1.ConditionTypeNodeRegistrationHealthy)
	if c != nil && c.ObservedGeneration == pool.Generation && pool.Status.NodeClassObservedGeneration == class.Generation {
		return
	}
	l.remember(pool, lifecycle.Health{})
	condition.Clear(pool, v1.ConditionTypeMachinesGetReady, now)
	condition.SetUnknown(pool, v1.ConditionTypeNodeRegistrationHealthy, v1.ReasonAwaitingReconciliation, awaiting, now)
	pool.Status.NodeClassObservedGeneration = class.Generation
}

// known returns what is known of a pool's registrations. After a restart it is derived from the pool's condition.
func (l *Loop) known(pool *v1.NodePool) lifecycle.Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.health[pool.UID]; ok {
		return h
	}
	return lifecycle.HealthOf(verdictOf(pool))
}

func (l *Loop) remember(pool *v1.NodePool, h lifecycle.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.health[pool.UID] = h
}

// forgetGone drops what is remembered of pools that no longer exist.
func (l *Loop) forgetGone(snap *cluster.Snapshot) {
	there := map[types.UID]bool{}
	for p := range cluster.Pools.All(snap) {
		there[p.UID] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.health, func(uid types.UID, _ lifecycle.Health) bool { return !there[uid] })
	maps.DeleteFunc(l.never, func(uid types.UID, name string) bool {
		n := snap.ClaimNode(name)
		return n == nil || n.Claim.UID != uid
	})
}

// verdictOf reads the verdict from the condition of a pool.
func verdictOf(pool *v1.NodePool) lifecycle.Verdict {
	switch {
	case condition.IsTrue(pool, v1.ConditionTypeNodeRegistrationHealthy):
		return lifecycle.Healthy
	case condition.IsFalse(pool, v1.ConditionTypeNodeRegistrationHealthy):
		return lifecycle.Unhealthy
	}
	return lifecycle.NothingKnown
}

// An outcome is about one claim: its node registered, or did not in time; or, if ready, its node got ready for pods, or did not in time.
type outcome struct {
	claim     *v1.NodeClaim
	succeeded bool
	ready     bool // it is about being ready
}

// outcomes is the queue of outcomes that have not been counted yet.
type outcomes struct {
	mu    sync.Mutex
	queue []outcome
	news  chan struct{} // holds a token while there may be something in queue
}

// Registered counts a claim whose node registered. It never blocks.
func (l *Loop) Registered(claim *v1.NodeClaim) {
	l.outcomes.add(outcome{claim: claim, succeeded: true})
}

// NotRegistered counts a claim whose node did not register in time. It never blocks.
func (l *Loop) NotRegistered(claim *v1.NodeClaim) { l.outcomes.add(outcome{claim: claim}) }

// Ready counts a claim whose node got ready for pods. It never blocks.
func (l *Loop) Ready(claim *v1.NodeClaim) {
	l.outcomes.add(outcome{claim: claim, succeeded: true, ready: true})
}

// NeverReady counts, once, a claim whose machine did not become a ready node in time. It never blocks.
func (l *Loop) NeverReady(claim *v1.NodeClaim) {
	l.mu.Lock()
	_, counted := l.never[claim.UID]
	l.never[claim.UID] = claim.Name
	l.mu.Unlock()
	if !counted {
		l.outcomes.add(outcome{claim: claim, ready: true})
	}
}

func (o *outcomes) add(one outcome) {
	o.mu.Lock()
	o.queue = append(o.queue, one)
	o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default:
	}
}

func (o *outcomes) take() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue = nil
	return queue
}

// countOutcomes takes outcomes off the queue until ctx ends, and writes the conditions of pools that they change.
func (l *Loop) countOutcomes(ctx context.Context) {
	const name = "nodepool.registrationhealth"
	ctx = telemetry.WithController(ctx, name)
	watched := l.Metrics.Loop(name, 1)
	defer l.Metrics.End(watched)
	for watched.Wait(ctx, time.Hour, l.outcomes.news) {
		for _, o := range l.outcomes.take() {
			what := "counting the outcome of NodeClaim " + o.claim.Name
			if err := watched.Turn(ctx, what, func(ctx context.Context) error {
				return l.countOutcome(ctx, o)
			}); err != nil && ctx.Err() == nil {
				telemetry.Log(ctx).Error("writing the registration health of a pool failed", "NodePool",
					o.claim.Labels[v1.NodePoolLabelKey], "error", err)
			}
		}
	}
}

// countOutcome counts one outcome, and writes the pool's condition if it changes. Claims of a pool that is gone, or was created anew
// under the same name, do not count.
func (l *Loop) countOutcome(ctx context.Context, o outcome) error {
	pool := cluster.Pools.Get(l.Store.Snapshot(), o.claim.Labels[v1.NodePoolLabelKey])
	if pool == nil || !owns(pool.UID, o.claim) {
		return nil
	}
	if o.ready {
		return l.judgeTemplate(ctx, pool.Name, o)
	}
	next := l.known(pool).With(o.succeeded)
	verdict := next.Verdict()
	if verdict == lifecycle.Healthy && !o.succeeded { // a failure alone does not make a pool healthy: the condition stays
		verdict = lifecycle.NothingKnown
	}
	err := l.publish(ctx, pool.Name, func(judged *v1.NodePool) bool { return setHealth(judged, verdict, o.claim, time.Now()) })
	l.remember(pool, next)
	return err
}

// judgeTemplate notes in a condition whether machines of the pool's template get ready, and publishes an event if the last ones did not.
func (l *Loop) judgeTemplate(ctx context.Context, name string, o outcome) error {
	var failed *v1.NodePool
	err := l.publish(ctx, name, func(pool *v1.NodePool) bool {
		if o.succeeded {
			return lifecycle.Works(pool, o.claim, time.Now())
		}
		if lifecycle.Outdone(l.Store.Snapshot(), pool, o.claim) || !lifecycle.Fails(pool, o.claim, time.Now(), sentence.Failing) {
			return false
		}
		failed = pool
		return true
	})
	if l.Events == nil || failed == nil || !lifecycle.TroubleOf(failed).Broken() {
		return err
	}
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PoolRef(failed), Reason: telemetry.MachinesNeverReady, Key: []string{string(failed.UID)},
		Message: condition.Get(failed, v1.ConditionTypeMachinesGetReady).Message,
	})
	return err
}

// owns reports whether a claim names a pool as its owner.
func owns(pool types.UID, claim *v1.NodeClaim) bool {
	for _, o := range claim.OwnerReferences {
		if o.UID == pool {
			return true
		}
	}
	return false
}

// publish calls set with a copy of the pool, and writes its conditions if set reports a change. Other programs write conditions too, so
// after a conflict it tries again with the newest pool in the store.
func (l *Loop) publish(ctx context.Context, name string, set func(*v1.NodePool) bool) error {
	for try := 0; ; try++ {
		pool := cluster.Pools.Get(l.Store.Snapshot(), name)
		if pool == nil {
			return nil
		}
		judged := pool.DeepCopy()
		if !set(judged) {
			return nil
		}
		err := l.writeStatus(ctx, pool, judged)
		if !apierrors.IsConflict(err) || try == 5 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond << try):
		}
	}
}

// setHealth sets the condition by the verdict and reports whether it changed. NothingKnown changes nothing. An Unhealthy condition says
// why the launch of the claim failed, if it did.
func setHealth(pool *v1.NodePool, v lifecycle.Verdict, claim *v1.NodeClaim, now time.Time) bool {
	switch {
	case v == lifecycle.Healthy && !condition.IsTrue(pool, v1.ConditionTypeNodeRegistrationHealthy):
		return condition.SetTrue(pool, v1.ConditionTypeNodeRegistrationHealthy, now)
	case v == lifecycle.Unhealthy && !condition.IsFalse(pool, v1.ConditionTypeNodeRegistrationHealthy):
		reason, message := v1.ReasonRegistrationFailed, "machines were launched, but their nodes did not join the cluster in time"
		if launched := condition.Get(claim, v1.ConditionTypeLaunched); launched != nil && launched.Status != metav1.ConditionTrue {
			reason, message = launched.Reason, launched.Message
		}
		return condition.SetFalse(pool, v1.ConditionTypeNodeRegistrationHealthy, reason, message, now)
	}
	return false
}
