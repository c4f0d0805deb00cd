package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Steps of pools that want to be asked are written down as DisruptionPlans. What a plan says is never carried out:
// a plan that was approved is confirmed like a step that waited, and what comes of that is compared with what was
// approved. So a plan is worth as much as the right to write its spec, and no more.

// lostWait is how long a plan may be without its step: it is written with a second call.
const lostWait = time.Minute

// asked writes a step down if a pool of it wants to be asked, and reports whether it did.
func (l *Loop) asked(ctx context.Context, step *disrupt.Step, now time.Time) bool {
	pools := approval.Pools(l.store.Snapshot(), step)
	if len(pools) == 0 {
		return false
	}
	plan := approval.PlanOf(approval.StepOf(step), now)
	plan.Status.Rule = approval.Approve(pools, plan.Status.Step)
	status := plan.Status
	err := l.client.Create(ctx, plan) // the server takes no status with it
	if err == nil {
		lock := plan.DeepCopy()
		lock.Status = v1alpha1.DisruptionPlanStatus{}
		plan.Status = status
		// Who decided before there was anything to decide about has made another version of the plan, and is not heard.
		if err = l.client.Status().Patch(ctx, plan, patch.Over(lock)); err != nil {
			err = fmt.Errorf("say what is planned: %w", err)
		}
	}
	if err != nil { // the planner proposes it again, and a plan that says nothing goes
		telemetry.Log(ctx).Error("cannot ask whether a step may be carried out", "command", sentence.Step(step), "error", err)
		l.memory = l.memory.Failed(step, now)
		return true
	}
	l.store.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(plan) })
	telemetry.Log(ctx).Info("a step waits for approval", "DisruptionPlan", plan.Name, "command", sentence.Step(step),
		"rule", plan.Status.Rule)
	if plan.Status.Rule == "" {
		for _, p := range pools {
			l.tell.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(p),
				Reason: telemetry.DisruptionAwaitsApproval, Key: []string{plan.Name},
				Message: fmt.Sprintf("DisruptionPlan %s: %s, %s, moves %s; karpenter approve %[1]s",
					plan.Name, sentence.Step(step), sentence.Saves(step.Saves().Dollars()), sentence.Count(plan.Status.Step.Pods, "pod"))})
		}
	}
	return true
}

// tendPlans brings plans to their end, and those that were approved to their confirmation.
func (l *Loop) tendPlans(ctx context.Context, snap *cluster.Snapshot, now time.Time) {
	for plan := range snap.DisruptionPlans() {
		var err error
		switch step, there := l.restore(snap, plan); {
		case plan.Status.Step == nil:
			err = l.dropPlan(ctx, plan, plan.CreationTimestamp.Add(lostWait), now)
		case !plan.Holds():
			err = l.dropPlan(ctx, plan, plan.Status.ExpiresAt.Add(approval.Kept), now)
		case !plan.Open():
			err = l.dropPlan(ctx, plan, plan.Status.ExpiresAt.Time, now)
		case !approval.Genuine(plan):
			err = l.close(ctx, plan, v1alpha1.DisruptionSuperseded, "its contents were changed")
		case plan.Spec.Decision == v1alpha1.DisruptionDenied:
			err = l.close(ctx, plan, v1alpha1.DisruptionRefused, plan.Spec.Note)
		case !there:
			err = l.close(ctx, plan, v1alpha1.DisruptionSuperseded, "a node of it is gone or going")
		case !now.Before(plan.Status.ExpiresAt.Time):
			err = l.close(ctx, plan, v1alpha1.DisruptionExpired, "it was not approved in time")
		case len(approval.Pools(snap, step)) == 0:
			err = l.close(ctx, plan, v1alpha1.DisruptionSuperseded, "its pools no longer want to be asked")
		case plan.Status.Rule != approval.Approve(approval.Pools(snap, step), plan.Status.Step):
			err = l.rule(ctx, plan, approval.Approve(approval.Pools(snap, step), plan.Status.Step))
		case plan.Approved() && !l.halted(step):
			l.pending[plan.Name] = &disrupt.Waiting{Step: step, Due: now, Plan: plan}
		}
		if client.IgnoreNotFound(err) != nil { // the next turn tries again
			telemetry.Log(ctx).Error("cannot look after a DisruptionPlan", "DisruptionPlan", plan.Name, "error", err)
		}
	}
}

func (l *Loop) restore(snap *cluster.Snapshot, plan *v1alpha1.DisruptionPlan) (*disrupt.Step, bool) {
	if plan.Status.Step == nil {
		return nil, false
	}
	return approval.Restore(snap, plan)
}

// dropPlan deletes a plan when its time has come.
func (l *Loop) dropPlan(ctx context.Context, plan *v1alpha1.DisruptionPlan, at, now time.Time) error {
	if now.Before(at) {
		return nil
	}
	return l.client.Delete(ctx, &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: plan.Name}},
		client.Preconditions{UID: &plan.UID})
}

// rule writes which rule approves a plan: a pool may have got other rules, or none, since it was made.
func (l *Loop) rule(ctx context.Context, plan *v1alpha1.DisruptionPlan, rule string) error {
	ruled := plan.DeepCopy()
	ruled.Status.Rule = rule
	if err := l.client.Status().Patch(ctx, ruled, patch.Over(plan)); err != nil {
		return err
	}
	l.store.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(ruled) })
	telemetry.Log(ctx).Info("other rules approve a plan than before", "DisruptionPlan", plan.Name, "rule", rule)
	return nil
}

// close writes what has become of a plan. It fails where the plan has changed, or gone, since it was looked at.
func (l *Loop) close(ctx context.Context, plan *v1alpha1.DisruptionPlan, phase v1alpha1.DisruptionPhase, message string) error {
	closed := plan.DeepCopy()
	closed.Status.Phase, closed.Status.Message = phase, message
	if err := l.client.Status().Patch(ctx, closed, patch.Over(plan)); err != nil {
		return err
	}
	l.store.Update(func(d *cluster.Draft) { d.PutDisruptionPlan(closed) })
	telemetry.Log(ctx).Info("a plan is done with", "DisruptionPlan", plan.Name, "phase", phase, "message", message)
	return nil
}

// refused closes a plan that was approved and cannot be carried out. What budgets hold back is tried again until the plan expires.
func (l *Loop) refused(ctx context.Context, plan *v1alpha1.DisruptionPlan, why disrupt.Refusal) {
	if why.Code == disrupt.Budget {
		return
	}
	if err := l.close(ctx, plan, v1alpha1.DisruptionSuperseded, "it was confirmed once more and does not hold: "+
		sentence.Refusal(why)); client.IgnoreNotFound(err) != nil {
		telemetry.Log(ctx).Error("cannot close a DisruptionPlan", "DisruptionPlan", plan.Name, "error", err)
	}
}

// permitted is the gate: it reports whether a step may be started. One of which a pool wants to be asked needs a
// plan that was approved in time, that says the same, and that was not changed or carried out meanwhile: it is
// marked as carried out before anything is done. What only rules approve they must approve as it would be done now.
func (l *Loop) permitted(ctx context.Context, step *disrupt.Step, plan *v1alpha1.DisruptionPlan) bool {
	if plan == nil {
		return !l.asked(ctx, step, time.Now())
	}
	var fresh v1alpha1.DisruptionPlan
	err := l.client.Get(ctx, types.NamespacedName{Name: plan.Name}, &fresh)
	switch {
	case apierrors.IsNotFound(err):
		return false
	case err != nil:
		telemetry.Log(ctx).Error("cannot read a DisruptionPlan", "DisruptionPlan", plan.Name, "error", err)
		return false
	case fresh.UID != plan.UID || !fresh.Approved() || !approval.Genuine(&fresh) || !time.Now().Before(fresh.Status.ExpiresAt.Time):
		return false
	}
	phase, message := v1alpha1.DisruptionCarriedOut, ""
	d, now := approval.None, approval.StepOf(step)
	if fresh.Spec.Decision != v1alpha1.DisruptionApproved && approval.Approve(approval.Pools(l.store.Snapshot(), step), now) == "" {
		d = approval.Ruled
	} else {
		d = approval.Compare(fresh.Status.Step, now)
	}
	if d != approval.None {
		phase, message = v1alpha1.DisruptionSuperseded, sentence.Difference(d)
	}
	if err := l.close(ctx, &fresh, phase, message); err != nil {
		telemetry.Log(ctx).Error("cannot mark a DisruptionPlan", "DisruptionPlan", plan.Name, "phase", phase, "error", err)
		return false
	}
	return phase == v1alpha1.DisruptionCarriedOut
}

// unapproved reports whether a node may not go by a command because its pool wants to be asked, and was not.
func unapproved(snap *cluster.Snapshot, n *cluster.Node, c steprecord.Record) bool {
	if c.Plan != "" {
		return false
	}
	for _, name := range []string{n.Pool(), n.Labels()[v1.NodePoolLabelKey]} {
		if p := cluster.Pools.Get(snap, name); p != nil && p.AsksApproval() {
			return true
		}
	}
	return false
}

// approved reports whether the plan that a record names was carried out, and the record says what the plan does:
// the same nodes for the same reason, and as many in their place. A user who may change a claim can write a record,
// which is not to turn a yes to a replacement into one to a removal. A record that names no plan is another affair.
func approved(snap *cluster.Snapshot, r steprecord.Record) bool {
	if r.Plan == "" {
		return true
	}
	plan := snap.DisruptionPlan(r.Plan)
	if plan == nil || plan.Status.Phase != v1alpha1.DisruptionCarriedOut || !approval.Genuine(plan) {
		return false
	}
	step := plan.Status.Step
	if r.Reason != step.Reason || len(r.Candidates) != len(step.Remove) || len(r.Replacements) != len(step.Open) {
		return false
	}
	for _, n := range step.Remove {
		if !slices.Contains(r.Candidates, steprecord.Member{Name: n.NodeClaim, UID: n.UID}) {
			return false
		}
	}
	return true
}
