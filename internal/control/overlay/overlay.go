// Package overlay writes on NodeOverlays whether they are in force, invalid, or in conflict with another. core/overlay decides that, and
// control/catalog applies overlays without waiting for the conditions that are written here.
package overlay

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/status"
	"karpenter.sh/karpenter/internal/core/overlay"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// lookInterval is how often overlays are looked at. Nothing is worked out again while nothing changed.
const lookInterval = time.Second

// judge returns the verdict on each overlay.
type judge interface {
	Verdicts(ctx context.Context, snap *cluster.Snapshot) ([]*v1alpha1.NodeOverlay, []overlay.Verdict)
}

// Loop writes conditions on NodeOverlays.
type Loop struct {
	store   *cluster.Store
	client  client.Client
	judge   judge
	metrics *telemetry.Metrics
}

// New returns a loop that has not started.
func New(store *cluster.Store, c client.Client, j judge, m *telemetry.Metrics) *Loop {
	return &Loop{store: store, client: c, judge: j, metrics: m}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.metrics.Repeat(ctx, telemetry.Chore{Name: "nodeoverlay.controller", What: "telling about node overlays",
		Failed: "telling about node overlays failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn writes the conditions that changed. What fails is tried again in the next turn.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	snap := l.store.Snapshot()
	if !snap.Synced() {
		return nil
	}
	overlays, verdicts := l.judge.Verdicts(ctx, snap)
	var errs []error
	for i, o := range overlays {
		errs = append(errs, l.tell(ctx, o, verdicts[i], now))
	}
	return errors.Join(errs...)
}

// tell writes the condition of one overlay, if it has changed.
func (l *Loop) tell(ctx context.Context, o *v1alpha1.NodeOverlay, v overlay.Verdict, now time.Time) error {
	told := o.DeepCopy()
	switch {
	case v.Invalid != nil:
		condition.SetFalse(told, v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ReasonRuntimeValidation, v.Invalid.Error(), now)
	case v.Conflict != nil:
		condition.SetFalse(told, v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ReasonConflict, v.Conflict.Message(), now)
	default:
		condition.SetTrue(told, v1alpha1.ConditionTypeValidationSucceeded, now)
	}
	return status.Write(ctx, l.store, l.client, cluster.Overlays.Put, told, o)
}
