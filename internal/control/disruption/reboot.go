package disruption

import (
	"context"
	"errors"
	"time"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// askTime is how long the provider may take to answer MayReboot: the whole turn waits for it.
const askTime = 10 * time.Second

var errNotAsItWas = errors.New("the machine is being rebooted or deleted already")

// reboot requests a reboot of a broken machine, which package claim carries out. Before any pod is moved, the provider is asked whether it
// would do it: where it refuses, for lack of a permission for instance, the claim says so and the machine is replaced instead.
func (l *Loop) reboot(ctx context.Context, step *disrupt.Step) {
	c := step.Remove[0]
	member := steprecord.Of(c.Node.Claim)
	call, cancel := context.WithTimeout(ctx, askTime)
	err := l.settings.MayReboot(call, c.Node.Claim)
	cancel()
	switch {
	case errors.Is(err, cloud.ErrRebootRefused):
		err = l.rebootRefused(ctx, c, lifecycle.RebootEnd{Failure: lifecycle.RebootRefused, Detail: err.Error()})
	case err == nil:
		l.tell.starting(ctx, step)
		if err = l.requestReboot(ctx, member, c.Fault); err == nil {
			l.tell.started(step, l.store.Snapshot())
		}
	}
	if err != nil {
		telemetry.Log(ctx).Error("cannot reboot the machine of a broken node", "NodeClaim", member.Name, "error", err)
		l.memory = l.memory.Failed(step, time.Now())
	}
}

// rebootRefused writes into the status of a claim that its machine is not rebooted and why, with an event and a metric. The next look of
// repair replaces the machine.
func (l *Loop) rebootRefused(ctx context.Context, c *disrupt.Candidate, end lifecycle.RebootEnd) error {
	text := sentence.Reboot(end)
	l.tell.Events.Tell(telemetry.Refs(nil, c.Node.Claim), telemetry.RebootFailed, text)
	l.tell.Metrics.Reboots.WithLabelValues(end.Result()).Inc()
	return l.editClaim(ctx, steprecord.Of(c.Node.Claim), nil, func(claim *v1.NodeClaim) {
		condition.SetFalse(claim, v1.ConditionTypeRebooting, v1.ReasonRebootFailed, text, time.Now())
	})
}

// requestReboot writes on a claim that its machine is to be rebooted: annotations first, then conditions. It returns errNotAsItWas if the
// claim is gone, is being deleted, or has a reboot already.
func (l *Loop) requestReboot(ctx context.Context, m steprecord.Member, fault *lifecycle.Fault) error {
	now, err := time.Now(), errNotAsItWas
	written := l.editClaim(ctx, m, func(claim *v1.NodeClaim) bool {
		if claim.DeletionTimestamp != nil || condition.IsTrue(claim, v1.ConditionTypeRebooting) {
			return false
		}
		err = nil
		claim.Annotations = lifecycle.RequestReboot(claim, fault.Grace, now).Annotations
		return true
	}, func(claim *v1.NodeClaim) {
		lifecycle.RebootRequested(claim, sentence.Rebooting(fault.Condition), now)
	})
	return errors.Join(err, written)
}
