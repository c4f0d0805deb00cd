package buffer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// statusInterval is how often a status is written if only its texts have changed.
const statusInterval = 5 * time.Second

// tell writes the status of every active buffer whose status has changed.
func (l *Loop) tell(ctx context.Context, snap *cluster.Snapshot, now time.Time) error {
	var errs []error
	for b := range cluster.Buffers.All(snap) {
		if r := l.known[keyOf(b)]; r != nil && r.uid == b.UID && b.Active() {
			errs = append(errs, l.write(ctx, snap, b, r, now))
		}
	}
	return errors.Join(errs...)
}

// write writes the status of one buffer if it has changed, at most every statusInterval if only texts have. It publishes an event for a
// buffer without room.
func (l *Loop) write(ctx context.Context, snap *cluster.Snapshot, b *autoscalingv1beta1.CapacityBuffer, r *resolved, now time.Time) error {
	told := l.status(snap.SparesOf(b.Namespace, b.Name), b, r, now)
	if equality.Semantic.DeepEqual(b.Status, told.Status) || sameButText(b, told) && now.Before(r.toldAt.Add(statusInterval)) {
		return nil
	}
	switch written, err := patch.Status(ctx, l.Client, told, b); {
	case err != nil:
		return fmt.Errorf("write status of CapacityBuffer %s: %w", keyOf(b), err)
	case !written:
		return nil
	}
	r.toldAt = now
	l.Store.Update(func(d *cluster.Draft) { cluster.Buffers.Put(d, told) })
	l.complain(told, r)
	return nil
}

// status returns a copy of a buffer with the status that it should have. Without a flaw it is resolved, and says how many of its pods
// have room once room has been looked for.
func (l *Loop) status(spares *cluster.Spares, b *autoscalingv1beta1.CapacityBuffer, r *resolved,
	now time.Time) *autoscalingv1beta1.CapacityBuffer {
	told := b.DeepCopy()
	flaw := r.flaw
	if why, left := l.aside.Has(keyOf(b)); left && flaw == nil {
		flaw = &buffer.Flaw{Code: buffer.Unreadable, Value: why}
	}
	if flaw != nil {
		condition.SetFalse(told, autoscalingv1beta1.ConditionTypeReadyForProvisioning, flaw.Reason(), sentence.BufferFlaw(flaw), now)
		condition.SetFalse(told, autoscalingv1beta1.ConditionTypeProvisioning,
			autoscalingv1beta1.ReasonNotReadyForProvisioning, "no room is kept: the buffer is not resolved", now)
		told.Status.Replicas, told.Status.PodTemplateRef, told.Status.PodTemplateGeneration = nil, nil, nil
		return told
	}
	s := &told.Status
	n := 0
	if spares != nil {
		n = len(spares.Pods)
	}
	strategy := autoscalingv1beta1.ActiveCapacityStrategy
	s.Replicas, s.ProvisioningStrategy, s.PodTemplateRef, s.PodTemplateGeneration = new(int32(n)), &strategy, b.Spec.PodTemplateRef, nil
	if b.Spec.PodTemplateRef != nil {
		s.PodTemplateGeneration = new(r.from.Generation)
	}
	condition.Set(told, metav1.Condition{
		Type: autoscalingv1beta1.ConditionTypeReadyForProvisioning, Status: metav1.ConditionTrue,
		Reason: autoscalingv1beta1.ReasonResolved, Message: sentence.BufferNote(r.note),
	}, now)
	if spares == nil || !spares.Placed {
		return told
	}
	fits, reason := r.tally.Verdict()
	status := metav1.ConditionFalse
	if fits {
		status = metav1.ConditionTrue
	}
	condition.Set(told, metav1.Condition{
		Type: autoscalingv1beta1.ConditionTypeProvisioning, Status: status, Reason: reason, Message: sentence.BufferRoom(r.tally, r.note),
	}, now)
	return told
}

// sameButText reports whether two statuses of a buffer differ in texts only.
func sameButText(a, b *autoscalingv1beta1.CapacityBuffer) bool {
	x, y := a.Status.DeepCopy(), b.Status.DeepCopy()
	for _, list := range [][]metav1.Condition{x.Conditions, y.Conditions} {
		for i := range list {
			list[i].Message = ""
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

// complain publishes an event for a buffer that is not resolved or has pods without room, with the reason.
func (l *Loop) complain(told *autoscalingv1beta1.CapacityBuffer, r *resolved) {
	var message string
	switch c := meta.FindStatusCondition(told.Status.Conditions, autoscalingv1beta1.ConditionTypeReadyForProvisioning); {
	case c != nil && c.Status == metav1.ConditionFalse:
		message = c.Message
	case r.tally.None > 0 && r.tally.Why != "":
		message = fmt.Sprintf("there is no room for %d pod(s): %s", r.tally.None, r.tally.Why)
	default:
		return
	}
	l.Events.Publish(telemetry.Event{
		Object: telemetry.BufferRef(keyOf(told), told.UID), Reason: telemetry.BufferWithoutRoom,
		Key: []string{string(told.UID), message}, Message: message,
	})
}
