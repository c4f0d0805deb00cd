package claim

import (
	"context"
	"errors"
	"time"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// bootPoll is how often the cloud is asked for a machine whose node has not joined, and askCall how long it may
	// take to answer: others wait for the same workers.
	bootPoll = 30 * time.Second
	askCall  = 10 * time.Second
)

// booting gives a claim up whose machine has ended before its node joined: a volume that cannot be made, a key that
// may not be used and a spot machine that is taken back end it within minutes. Nothing will come of it, and its
// pods need not wait for as long as a node may take. What the cloud cannot tell is left to that time.
func (l *Loop) booting(ctx context.Context, v lifecycle.View, step lifecycle.Step) lifecycle.Step {
	from := lifecycle.AskFrom(v)
	if from.IsZero() || step.Kind == lifecycle.GiveUp {
		return step
	}
	mine, now := l.launches.of(v.Claim), time.Now()
	if next := ztime.Later(from, mine.asked.Add(bootPoll)); now.Before(next) {
		step.Until = ztime.Sooner(step.Until, next)
		return step
	}
	mine.asked = now
	if l.hasEnded(ctx, v.Claim) {
		return lifecycle.Step{Kind: lifecycle.GiveUp, Reason: lifecycle.GarbageCollected, Claim: v.Claim}
	}
	step.Until = ztime.Sooner(step.Until, now.Add(bootPoll))
	return step
}

// hasEnded reports whether the cloud says that the machine of a claim is gone, or goes.
func (l *Loop) hasEnded(ctx context.Context, claim *v1.NodeClaim) bool {
	call, cancel := context.WithTimeout(ctx, askCall)
	defer cancel()
	m, err := l.Cloud.Get(call, claim.Status.ProviderID)
	return errors.Is(err, cloud.ErrNotFound) || err == nil && m.Deleting
}

// endsBooting counts a claim that was deleted because its machine has ended, before its node joined: an
// interruption queue tells that sooner than we ask. What ends every machine at boot would be answered by one after
// the other.
func (l *Loop) endsBooting(ctx context.Context, v lifecycle.View) {
	if !lifecycle.AskFrom(v).IsZero() && !condition.IsTrue(v.Claim, v1.ConditionTypeInstanceTerminating) && l.hasEnded(ctx, v.Claim) {
		l.countFailed(v.Claim, true)
	}
}

// countFailed counts, once, a claim that did not become a node; launched says that it had a machine.
func (l *Loop) countFailed(claim *v1.NodeClaim, launched bool) {
	mine := l.launches.of(claim)
	if mine.counted {
		return
	}
	mine.counted = true
	l.Health.NotRegistered(claim)
	if launched {
		l.Health.NeverReady(claim)
	}
}
