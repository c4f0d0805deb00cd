package claim

import (
	"context"
	"errors"
	"time"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/when"
)

const (
	// bootPoll is how often the cloud is asked for a machine whose node has not joined, and askCall how long it may take to answer: others wait for the
	// same workers.
	bootPoll = 30 * time.Second
	askCall  = 10 * time.Second
)

// booting gives a claim up whose machine has ended before its node joined: a volume that cannot be made, a key that may not be used and a spot machine
// that is taken back end it within minutes. Nothing will come of it, and its pods need not wait for as long as a node may take. What the cloud cannot tell is
// left to that time.
func (l *Loop) booting(ctx context.Context, v lifecycle.View, step lifecycle.Step) lifecycle.Step {
	from := lifecycle.AskFrom(v)
	if from.IsZero() || step.Kind == lifecycle.GiveUp {
		return step
	}
	mine, now := l.launches.of(v.Claim), time.Now()
	if next := when.Later(from, mine.asked.Add(bootPoll)); now.Before(next) {
		step.Until = when.Sooner(step.Until, next)
		return step
	}
	mine.asked = now
	call, cancel := context.WithTimeout(ctx, askCall)
	defer cancel()
	m, err := l.Cloud.Get(call, v.Claim.Status.ProviderID)
	if errors.Is(err, cloud.ErrNotFound) || err == nil && m.Deleting {
		return lifecycle.Step{Kind: lifecycle.GiveUp, Reason: lifecycle.GarbageCollected, Claim: v.Claim}
	}
	step.Until = when.Sooner(step.Until, now.Add(bootPoll))
	return step
}
