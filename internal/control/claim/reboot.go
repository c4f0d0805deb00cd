package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/evict"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// occupied reports whether a reboot must still wait for pods to leave the node; false for nodes that are not to be rebooted.
func (l *Loop) occupied(row *cluster.Node) bool {
	return l.settings.Reboots && condition.IsTrue(row.Claim, v1.ConditionTypeRebooting) &&
		len(evict.Next(row.Pods, time.Time{}, time.Now()).Waiting) > 0
}

// reboot asks the provider to reboot the machine of a claim, and writes the answer on the claim. If the call fails without an answer, the
// error makes the queue repeat it. If only the write failed, the provider is not asked again. A provider that cannot reboot counts as a
// refusal.
func (l *Loop) reboot(ctx context.Context, v lifecycle.View) (time.Time, error) {
	mine, operation := l.launches.of(v.Claim), lifecycle.Operation(v.Claim)
	rebooter, ok := l.Cloud.(cloud.Rebooter)
	err := cloud.ErrRebootRefused
	switch {
	case mine.rebooted == operation: // the provider accepted this reboot already, but that could not be written
		err = nil
	case ok:
		call, cancel := context.WithTimeout(ctx, askCall)
		err = rebooter.Reboot(call, v.Claim, operation)
		cancel()
	}
	switch {
	case err == nil:
		mine.rebooted = operation
		telemetry.Log(ctx).Info("rebooting machine", "NodeClaim", v.Claim.Name, "provider-id", v.Claim.Status.ProviderID)
		return time.Time{}, l.write(ctx, v, lifecycle.Issued(v, time.Now()))
	case errors.Is(err, cloud.ErrRebootRefused), errors.Is(err, cloud.ErrNotFound):
		return time.Time{}, l.write(ctx, v, lifecycle.Refused(v, err.Error(), time.Now(), l.settings.Settings))
	}
	return time.Time{}, fmt.Errorf("reboot the machine of claim %s: %w", v.Claim.Name, err)
}

// reportReboot reports in metrics and the log how a reboot ended, and in an event if it failed.
func (l *Loop) reportReboot(ctx context.Context, claim *v1.NodeClaim, end *lifecycle.RebootEnd) {
	l.Metrics.Reboots.WithLabelValues(end.Result()).Inc()
	l.Metrics.RebootDuration.WithLabelValues(end.Result()).Observe(end.Took.Seconds())
	if end.Failure == "" {
		telemetry.Log(ctx).Info("rebooted machine", "NodeClaim", claim.Name, "took", end.Took)
		l.Metrics.RebootRecovery.WithLabelValues().Observe(end.Recovery.Seconds())
		return
	}
	text := sentence.Reboot(*end)
	telemetry.Log(ctx).Error("failed rebooting machine", "NodeClaim", claim.Name, "result", end.Result(), "error", text)
	l.Events.Tell(telemetry.Refs(nil, claim), telemetry.RebootFailed, text)
}
