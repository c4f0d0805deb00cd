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
	// bootPoll is how often the cloud is asked for a machine whose node has not joined. askCall is how long it may take to answer:
	// other claims wait for the same workers.
	bootPoll = 30 * time.Second
	askCall  = 10 * time.Second
)

// booting returns step, or a step that gives the claim up if its machine ended before its node joined. It asks the cloud about that every
// bootPoll, and sets step.Until to the next time. A bad volume or key or a spot interruption ends a machine within minutes: the pods need
// not wait for the registration timeout then. If the cloud cannot be asked, that timeout decides.
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

// hasEnded reports whether the machine of a claim is gone or being deleted, according to the cloud.
func (l *Loop) hasEnded(ctx context.Context, claim *v1.NodeClaim) bool {
	call, cancel := context.WithTimeout(ctx, askCall)
	defer cancel()
	m, err := l.Cloud.Get(call, claim.Status.ProviderID)
	return errors.Is(err, cloud.ErrNotFound) || err == nil && m.Deleting
}

// endsBooting counts a claim that is being deleted and whose machine has ended before its node joined. The interruption queue deletes
// such claims sooner than booting asks. Without this count, a template whose machines all end at boot is retried forever.
func (l *Loop) endsBooting(ctx context.Context, v lifecycle.View) {
	if !lifecycle.AskFrom(v).IsZero() && !condition.IsTrue(v.Claim, v1.ConditionTypeInstanceTerminating) && l.hasEnded(ctx, v.Claim) {
		l.countFailed(v.Claim, true)
	}
}

// countFailed counts, once, a claim that did not become a node. If hadMachine, a machine was launched and failed, and it also counts
// against the readiness of the pool's nodes.
func (l *Loop) countFailed(claim *v1.NodeClaim, hadMachine bool) {
	mine := l.launches.of(claim)
	if mine.counted {
		return
	}
	mine.counted = true
	l.Health.NotRegistered(claim)
	if hadMachine {
		l.Health.NeverReady(claim)
	}
}
