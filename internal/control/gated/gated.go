// Package gated tells the owners of objects that what they ask for needs a feature gate which is off. Without it such an object
// would be accepted and ignored, without a visible reason why nothing happens.
//
// CapacityBuffers are shared with other autoscalers. A buffer that another program has written a condition on, or that is too
// young for that to be known, is left alone.
package gated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// lookInterval is how often objects are looked for. They are few, and the author of one can wait a minute for the answer.
	lookInterval = time.Minute
	// otherWriterTime is how long another autoscaler has to say that a buffer is its own.
	otherWriterTime = 2 * time.Minute
	pageSize        = 200
)

// Gates are the feature gates that objects may need.
type Gates struct{ NodeOverlay, CapacityBuffer bool }

// Loop writes conditions on objects whose gate is off.
type Loop struct {
	client  client.Client
	gates   Gates
	metrics *telemetry.Metrics
}

// New returns a loop that has not started. The client must ask the API server, not a cache.
func New(c client.Client, g Gates, m *telemetry.Metrics) *Loop {
	return &Loop{client: c, gates: g, metrics: m}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	l.metrics.Repeat(ctx, telemetry.Chore{Name: "gated", What: "telling about feature gates that are off",
		Failed: "telling about feature gates that are off failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn writes conditions on the objects of each gate that is off, as far as they are missing. What fails is tried again in the next turn.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	var errs []error
	if !l.gates.NodeOverlay {
		errs = append(errs, ignoreMissing(l.overlays(ctx, now)))
	}
	if !l.gates.CapacityBuffer {
		errs = append(errs, ignoreMissing(l.buffers(ctx, now)))
	}
	return errors.Join(errs...)
}

// ignoreMissing returns nil if the kind is not installed: then there are no objects.
func ignoreMissing(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// overlays writes the condition on every NodeOverlay.
func (l *Loop) overlays(ctx context.Context, now time.Time) error {
	for next, more := "", true; more; more = next != "" {
		list := &v1alpha1.NodeOverlayList{}
		if err := l.client.List(ctx, list, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list node overlays: %w", err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			told := o.DeepCopy()
			condition.SetFalse(told, v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ReasonFeatureGateDisabled,
				"the feature gate NodeOverlay is off: this overlay changes no prices and no capacities", now)
			if err := l.write(ctx, o, told); err != nil {
				return err
			}
		}
		next = list.Continue
	}
	return nil
}

// buffers writes the conditions on every CapacityBuffer that no other autoscaler looks after.
func (l *Loop) buffers(ctx context.Context, now time.Time) error {
	for next, more := "", true; more; more = next != "" {
		list := &bufferv1beta1.CapacityBufferList{}
		if err := l.client.List(ctx, list, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list capacity buffers: %w", err)
		}
		for i := range list.Items {
			b := &list.Items[i]
			if !unclaimed(b, now) {
				continue
			}
			told := b.DeepCopy()
			condition.SetFalse(told, bufferv1beta1.ConditionTypeReadyForProvisioning, bufferv1beta1.ReasonFeatureGateDisabled,
				"the feature gate CapacityBuffer is off: Karpenter keeps no room for this buffer", now)
			if condition.Get(b, bufferv1beta1.ConditionTypeProvisioning) != nil { // from when the gate was on
				condition.SetFalse(told, bufferv1beta1.ConditionTypeProvisioning, bufferv1beta1.ReasonNotReadyForProvisioning,
					"no room is kept: the feature gate CapacityBuffer is off", now)
				told.Status.Replicas, told.Status.PodTemplateRef, told.Status.PodTemplateGeneration = nil, nil, nil
			}
			if err := l.write(ctx, b, told); err != nil {
				return err
			}
		}
		next = list.Continue
	}
	return nil
}

// unclaimed reports whether a buffer is Karpenter's to look after: its strategy is that of Karpenter, all its conditions
// are Karpenter's, and it is old enough for another autoscaler to have written one.
func unclaimed(b *bufferv1beta1.CapacityBuffer, now time.Time) bool {
	if s := b.Spec.ProvisioningStrategy; s != nil && *s != bufferv1beta1.ActiveCapacityStrategy {
		return false
	}
	for _, c := range b.Status.Conditions {
		if !slices.Contains(ours, c.Reason) {
			return false
		}
	}
	return now.Sub(b.CreationTimestamp.Time) >= otherWriterTime
}

// ours are the reasons that Karpenter gives for the conditions of a buffer, also those of a time when the gate was on.
var ours = []string{
	bufferv1beta1.ReasonFeatureGateDisabled,
	bufferv1beta1.ReasonResolved, bufferv1beta1.ReasonScalableRefNotFound, bufferv1beta1.ReasonPodTemplateNotFound,
	bufferv1beta1.ReasonResolutionFailed,
	bufferv1beta1.ReasonFitsExistingCapacity, bufferv1beta1.ReasonRequiresNewCapacity,
	bufferv1beta1.ReasonNotReadyForProvisioning, bufferv1beta1.ReasonBufferEmpty,
}

// write patches the status if the conditions changed. A conflict, or an object that is gone, is not an error (patch.Status).
func (l *Loop) write(ctx context.Context, old, told conditioned) error {
	if equality.Semantic.DeepEqual(old.GetConditions(), told.GetConditions()) {
		return nil
	}
	if _, err := patch.Status(ctx, l.client, told, old); err != nil {
		return fmt.Errorf("write status of %s: %w", old.GetName(), err)
	}
	return nil
}

type conditioned interface {
	client.Object
	condition.Object
}
