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

// Some pools need a user's approval for voluntary steps (NodePool.AsksApproval). The loop does not start such a step. It writes it as a
// DisruptionPlan, and a user or an approval rule of the pool decides.
//
// The loop never carries out the contents of a plan, because they may be forged or outdated. It confirms the step again in the newest
// snapshot, as it does with every step that waits, and starts the result only if that does not differ from what was approved. So a user
// who may write plans can approve a step, but cannot invent one.

// lostWait is how long a plan may have no step in its status, which asked writes with a second call. Then tendPlans deletes the plan.
const lostWait = time.Minute

// asked creates a DisruptionPlan for a step if a pool of it needs a user's approval. It returns false if none does: the step may start.
// It returns true even if the plan cannot be written: the step must not start then, and its nodes are left alone for a while.
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
		// The patch fails if the plan has changed since it was created: a user may have approved it before it had contents. Such an
		// approval must not count.
		if err = l.client.Status().Patch(ctx, plan, patch.Over(lock)); err != nil {
			err = fmt.Errorf("say what is planned: %w", err)
		}
	}
	if err != nil { // the planner proposes the step again later; tendPlans deletes a plan that was created without contents
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

// tendPlans looks after all plans once in each turn. It queues the steps of approved plans to be confirmed now. It closes plans that were
// changed, denied, not approved in time or are no longer needed, and updates which rules approve the others. It deletes finished plans
// when users have had time to read them, and denied ones when they expire: until then their nodes are left alone.
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

// restore returns the step of a plan, and false if the plan has none or a node or pool of it is gone.
func (l *Loop) restore(snap *cluster.Snapshot, plan *v1alpha1.DisruptionPlan) (*disrupt.Step, bool) {
	if plan.Status.Step == nil {
		return nil, false
	}
	return approval.Restore(snap, plan)
}

// dropPlan deletes a plan if the time at has come. It deletes only the object with this UID, not a later plan of the same name.
func (l *Loop) dropPlan(ctx context.Context, plan *v1alpha1.DisruptionPlan, at, now time.Time) error {
	if now.Before(at) {
		return nil
	}
	return l.client.Delete(ctx, &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: plan.Name}},
		client.Preconditions{UID: &plan.UID})
}

// rule writes into the status of a plan which rules approve it, "" for none. The pools may have other rules now than when the plan was
// created.
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

// close writes the final phase of a plan and a message for users. It fails if the plan has changed, or is gone, since it was read.
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

// refused closes an approved plan that Confirm refused. If only disruption budgets forbid the step, the plan stays open, and every turn
// tries it again until it expires.
func (l *Loop) refused(ctx context.Context, plan *v1alpha1.DisruptionPlan, why disrupt.Refusal) {
	if why.Code == disrupt.Budget {
		return
	}
	if err := l.close(ctx, plan, v1alpha1.DisruptionSuperseded, "it was confirmed once more and does not hold: "+
		sentence.Refusal(why)); client.IgnoreNotFound(err) != nil {
		telemetry.Log(ctx).Error("cannot close a DisruptionPlan", "DisruptionPlan", plan.Name, "error", err)
	}
}

// permitted reports whether a step may start. start calls it for every step.
//
// Without a plan the step may start if none of its pools needs approval; otherwise a plan is created for it (asked). With a plan it may
// start if the plan, read anew from the API server, is open, approved, unchanged and not expired, and the step does not differ from what
// was approved. If only rules approved it, they must also approve the step as it would be done now. The plan is marked as carried out
// before anything is done, so no plan is carried out twice. If the step differs, the plan is closed as superseded.
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

// unapproved reports whether a node must stay because its pool needs a user's approval and the record of the command names no plan.
// The user may have set that on the pool after the command was started.
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

// approved reports whether a record found on claims agrees with the plan that it names: the plan was marked as carried out, and has the
// same nodes, the same reason and as many replacements. Any user who may change a claim can write a record. Without this check, such a
// user could turn the approval of a replacement into a removal without one. For a record that names no plan, see unapproved.
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
