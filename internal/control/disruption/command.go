package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"karpenter.sh/karpenter/internal/telemetry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/movable"
)

const (
	leastTimeout  = 10 * time.Minute
	mostTimeout   = time.Hour
	timeoutByNode = 80 * time.Millisecond
)

// A command is a step that has been started.
type command struct {
	record
	step        *disrupt.Step   // nil after a restart
	initialized map[string]bool // replacements that have been seen initialised; what happens to them later does not matter
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ordered lists the commands, oldest first.
func (l *Loop) ordered() []*command {
	return slices.SortedFunc(maps.Values(l.commands), func(a, b *command) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// timeout grows with the number of nodes that are being replaced, as the API server has more to do.
func (l *Loop) timeout(more int) time.Duration {
	for _, c := range l.commands {
		more += len(c.Candidates)
	}
	return min(mostTimeout, max(leastTimeout, time.Duration(more)*timeoutByNode))
}

// start carries out the first half of a step: mark what goes, open what comes.
func (l *Loop) start(ctx context.Context, step *disrupt.Step) {
	now := time.Now()
	c := &command{step: step, initialized: map[string]bool{}}
	c.record = record{
		ID: fmt.Sprintf("%s-%d", strings.ToLower(string(step.Reason)), now.UnixNano()), Reason: step.Reason, Method: step.Method,
		Created: now.UTC(), Deadline: now.UTC().Add(l.timeout(len(step.Remove))),
	}
	for _, r := range step.Remove {
		c.Candidates = append(c.Candidates, r.Node.Claim.Name)
	}
	c.Replacements = l.opener.Names(c.ID, step.Open)
	l.commands[c.ID] = c
	l.tell.starting(ctx, step)

	failed := l.mark(ctx, c)
	if len(failed) > 0 && (len(step.Open) > 0 || len(failed) == len(c.Candidates)) {
		l.fail(ctx, c, "could not mark the nodes")
		return
	}
	c.Candidates = slices.DeleteFunc(c.Candidates, func(name string) bool { return failed[name] })
	if len(step.Open) > 0 {
		annotations := map[string]string{v1.DisruptionCommandAnnotationKey: c.as(replacement)}
		if _, err := l.opener.Open(ctx, c.ID, strings.ToLower(string(step.Reason)), step.Open, annotations); err != nil {
			telemetry.Log(ctx).Error("cannot open replacements", "command", c.ID, "error", err)
			l.fail(ctx, c, "could not open the replacements")
			return
		}
	}
	// The nodes stop being room only now: before, the provisioner would have opened replacements of its own.
	l.store.Update(func(d *cluster.Draft) {
		for _, name := range c.Candidates {
			d.MarkForRemoval(name)
		}
		for _, p := range step.Place {
			d.Plan(p.Pod.PodKey, p.Node, now)
			d.Nominate(p.Node, now.Add(l.settings.Nomination))
		}
	})
	l.depart(step, c.Replacements, now)
	l.tell.started(step)
}

// mark writes the record, the reason and the taint on every candidate, and returns the claims for which that failed.
func (l *Loop) mark(ctx context.Context, c *command) map[string]bool {
	failed := map[string]bool{}
	errs := parallel(c.Candidates, func(name string) error {
		return errors.Join(l.editClaim(ctx, name, func(claim *v1.NodeClaim) {
			if claim.Annotations == nil {
				claim.Annotations = map[string]string{}
			}
			claim.Annotations[v1.DisruptionCommandAnnotationKey] = c.as(candidate)
		}, func(claim *v1.NodeClaim) {
			condition.Set(claim, reasonCondition(c.Reason), time.Now())
		}), l.editNode(ctx, name, addTaint))
	})
	for i, err := range errs {
		if err != nil {
			telemetry.Log(ctx).Error("cannot mark for disruption", "NodeClaim", c.Candidates[i], "error", err)
			failed[c.Candidates[i]] = true
		}
	}
	return failed
}

// advance looks after a command that is under way.
func (l *Loop) advance(ctx context.Context, snap *cluster.Snapshot, c *command) {
	if l.gone(snap, c) {
		l.finish(ctx, snap, c)
		return
	}
	waiting := false
	for _, name := range c.Replacements {
		n := snap.ClaimNode(name)
		switch {
		case c.initialized[name]:
		case n == nil || n.Claim.DeletionTimestamp != nil:
			l.fail(ctx, c, "replacement "+name+" is gone")
			return
		case condition.IsTrue(n.Claim, v1.ConditionTypeInitialized):
			c.initialized[name] = true
		default:
			waiting = true
			l.tell.waiting(n.Claim)
		}
	}
	if !waiting {
		l.remove(ctx, snap, c)
		return
	}
	if time.Now().After(c.Deadline) {
		l.fail(ctx, c, "the replacements were not ready in time")
	}
}

// gone tells whether every candidate is deleted or being deleted.
func (l *Loop) gone(snap *cluster.Snapshot, c *command) bool {
	return !slices.ContainsFunc(c.Candidates, func(name string) bool {
		n := snap.ClaimNode(name)
		return n != nil && n.Claim.DeletionTimestamp == nil
	})
}

// remove deletes the candidates; draining is the affair of their finalizers.
func (l *Loop) remove(ctx context.Context, snap *cluster.Snapshot, c *command) {
	errs := parallel(c.Candidates, func(name string) error {
		n := snap.ClaimNode(name)
		if n == nil || n.Claim.DeletionTimestamp != nil {
			return nil
		}
		err := l.client.Delete(ctx, &v1.NodeClaim{ObjectMeta: n.Claim.ObjectMeta}, client.Preconditions{UID: &n.Claim.UID})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			l.tell.removed(n, c.Reason, snap.Pool(n.Pool()), reschedulable(n))
		}
		return err
	})
	for i, err := range errs {
		if err != nil { // the next turn tries again
			telemetry.Log(ctx).Error("cannot delete claim", "NodeClaim", c.Candidates[i], "error", err)
		}
	}
	if errors.Join(errs...) == nil {
		l.finish(ctx, snap, c)
	}
}

func reschedulable(n *cluster.Node) int {
	count := 0
	for _, p := range n.Pods {
		if movable.Reschedulable(p) {
			count++
		}
	}
	return count
}

// finish forgets a command that has done its work.
func (l *Loop) finish(ctx context.Context, snap *cluster.Snapshot, c *command) {
	if err := l.forget(ctx, snap, c.Replacements); err != nil {
		telemetry.Log(ctx).Error("cannot take the record off the replacements", "command", c.ID, "error", err)
		return // the next turn tries again
	}
	telemetry.Log(ctx).Debug("command succeeded", "command", c.ID)
	delete(l.commands, c.ID)
}

func (l *Loop) forget(ctx context.Context, snap *cluster.Snapshot, claims []string) error {
	return errors.Join(parallel(claims, func(name string) error {
		n := snap.ClaimNode(name)
		if n == nil || n.Claim.Annotations[v1.DisruptionCommandAnnotationKey] == "" {
			return nil
		}
		return l.editClaim(ctx, name, dropRecord, nil)
	})...)
}

// fail takes a command back: candidates work again, replacements that nothing uses go away.
func (l *Loop) fail(ctx context.Context, c *command, why string) {
	telemetry.Log(ctx).Error("failed terminating nodes while executing a disruption command", "command", c.ID, "candidates", c.Candidates, "error", why)
	snap := l.store.Snapshot()
	errs := parallel(c.Candidates, func(name string) error { return l.release(ctx, name) })
	for _, name := range c.Replacements {
		errs = append(errs, l.giveBack(ctx, snap, name))
	}
	if err := errors.Join(errs...); err != nil {
		// What stays behind is found by the sweep and by adopt.
		telemetry.Log(ctx).Error("cannot take a disruption command back in full", "command", c.ID, "error", err)
	}
	l.store.Update(func(d *cluster.Draft) {
		for _, name := range c.Candidates {
			d.Unmark(name)
		}
		if c.step != nil {
			for _, r := range c.step.Remove {
				for _, p := range r.Pods {
					d.Unplan(p.PodKey)
				}
			}
		}
	})
	l.tell.failed(c)
	if c.step != nil {
		l.planner.Failed(c.step, time.Now())
	}
	delete(l.commands, c.ID)
}

// giveBack deletes a replacement that runs nothing yet; one that is in use stays, as any other node.
func (l *Loop) giveBack(ctx context.Context, snap *cluster.Snapshot, name string) error {
	n := snap.ClaimNode(name)
	if n == nil || n.Claim.DeletionTimestamp != nil {
		return nil
	}
	if reschedulable(n) > 0 {
		return l.editClaim(ctx, name, dropRecord, nil)
	}
	return client.IgnoreNotFound(l.client.Delete(ctx, &v1.NodeClaim{ObjectMeta: n.Claim.ObjectMeta}, client.Preconditions{UID: &n.Claim.UID}))
}

// release takes taint, reason and record off a candidate that stays.
func (l *Loop) release(ctx context.Context, claim string) error {
	return errors.Join(
		l.editNode(ctx, claim, dropTaint),
		l.editClaim(ctx, claim, dropRecord, func(claim *v1.NodeClaim) { condition.Clear(claim, v1.ConditionTypeDisruptionReason, time.Now()) }))
}

// adopt takes over commands that another process started, from the records on their claims.
func (l *Loop) adopt(ctx context.Context, snap *cluster.Snapshot) {
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		r, ok, err := recordOn(n.Claim)
		if err != nil {
			telemetry.Log(ctx).Error("ignoring a disruption record", "NodeClaim", n.Claim.Name, "error", err)
		}
		if !ok || l.commands[r.ID] != nil || n.Claim.DeletionTimestamp != nil && r.Role == candidate {
			continue
		}
		l.commands[r.ID] = &command{record: r, initialized: map[string]bool{}}
		l.store.Update(func(d *cluster.Draft) {
			for _, name := range r.Candidates {
				d.MarkForRemoval(name)
			}
		})
		telemetry.Log(ctx).Info("resuming a disruption command", "command", r.ID, "candidates", r.Candidates, "replacements", r.Replacements)
	}
}

// sweep releases nodes that carry our mark but take part in no command: what a failed start or rollback left behind. A
// taint that somebody else put on a node, without our reason on its claim, is theirs and stays.
func (l *Loop) sweep(ctx context.Context, snap *cluster.Snapshot) {
	busy := map[string]bool{}
	for _, c := range l.commands {
		for _, name := range c.Candidates {
			busy[name] = true
		}
	}
	for n := range snap.Nodes() {
		if n.Claim == nil || busy[n.Claim.Name] || n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil || n.Node != nil && n.Node.DeletionTimestamp != nil {
			continue
		}
		if !condition.IsTrue(n.Claim, v1.ConditionTypeDisruptionReason) {
			continue
		}
		if err := l.release(ctx, n.Claim.Name); err != nil {
			telemetry.Log(ctx).Error("cannot release a node that is not being disrupted", "Node", n.Name, "error", err)
		}
	}
}

// editClaim changes metadata and status of a claim, each with one patch; either may be nil.
func (l *Loop) editClaim(ctx context.Context, name string, meta, status func(*v1.NodeClaim)) error {
	var claim v1.NodeClaim
	if err := l.client.Get(ctx, types.NamespacedName{Name: name}, &claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if meta != nil {
		before := claim.DeepCopy()
		meta(&claim)
		if err := l.client.Patch(ctx, &claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("patch claim %s: %w", name, err)
		}
	}
	if status != nil {
		before := claim.DeepCopy()
		status(&claim)
		if err := l.client.Status().Patch(ctx, &claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("patch status of claim %s: %w", name, err)
		}
	}
	l.store.Update(func(d *cluster.Draft) { d.PutClaim(&claim) })
	return nil
}

// editNode changes the Node of a claim, if it has one.
func (l *Loop) editNode(ctx context.Context, claim string, edit func(*corev1.Node) bool) error {
	n := l.store.Snapshot().ClaimNode(claim)
	if n == nil || n.Node == nil {
		return nil
	}
	var node corev1.Node
	if err := l.client.Get(ctx, types.NamespacedName{Name: n.Node.Name}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := node.DeepCopy()
	if !edit(&node) {
		return nil
	}
	if err := l.client.Patch(ctx, &node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}

func isDisrupted(t corev1.Taint) bool {
	return t.Key == v1.DisruptedTaintKey && t.Effect == corev1.TaintEffectNoSchedule
}

func addTaint(n *corev1.Node) bool {
	if slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
		return false
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1.DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule})
	return true
}

func dropTaint(n *corev1.Node) bool {
	if n.DeletionTimestamp != nil || !slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
		return false
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isDisrupted)
	return true
}

func dropRecord(claim *v1.NodeClaim) { delete(claim.Annotations, v1.DisruptionCommandAnnotationKey) }

// parallel calls do for every name, a few dozen at a time, and returns the errors in the order of the names.
func parallel(names []string, do func(string) error) []error {
	errs := make([]error, len(names))
	slots := make(chan struct{}, 32)
	for i, name := range names {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			errs[i] = do(name)
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	return errs
}
