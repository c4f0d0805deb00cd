package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/surge"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// Replacements have this long to initialize, see timeout.
	leastTimeout  = 10 * time.Minute
	mostTimeout   = time.Hour
	timeoutByNode = 80 * time.Millisecond

	// lastLook is how long an empty node carries the taint before it is looked at for the last time: kube-scheduler may have chosen it
	// for a pod before it saw the taint.
	lastLook = 3 * time.Second
)

// A command is a step that has been started.
type command struct {
	steprecord.Record
	step *disrupt.Step // nil after a restart
	// initialized are the replacements that have been seen initialised; what happens to them later does not matter
	initialized map[string]bool
	removed     map[string]bool                        // candidates that were deleted
	restarts    map[types.NamespacedName]surge.Restart // of Deployments
	begun       time.Time                              // by this process
}

func newCommand(r steprecord.Record) *command {
	return &command{Record: r, initialized: map[string]bool{}, removed: map[string]bool{},
		restarts: map[types.NamespacedName]surge.Restart{}, begun: time.Now()}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ordered lists the commands, oldest first.
func (l *Loop) ordered() []*command {
	return slices.SortedFunc(maps.Values(l.commands), func(a, b *command) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// timeout returns how long a new command for so many more nodes may wait for its replacements. It grows with the number of nodes in all
// commands, because the API server has more to do.
func (l *Loop) timeout(more int) time.Duration {
	for _, c := range l.commands {
		more += len(c.Candidates)
	}
	return min(mostTimeout, max(leastTimeout, time.Duration(more)*timeoutByNode))
}

// idOf names a command. Many may start at once, but a claim takes part in one of them only.
func idOf(step *disrupt.Step, now time.Time) string {
	return fmt.Sprintf("%s-%d-%s", metricReason(step.Reason), now.UnixNano(), step.Remove[0].Node.Claim.Name)
}

// start begins a step: it marks the nodes that go and creates their replacements. advance does the rest in later turns. plan is the
// approved plan of the step, nil if there is none. A step that is paused or lacks approval is not started. A reboot has no command.
func (l *Loop) start(ctx context.Context, step *disrupt.Step, plan *v1alpha1.DisruptionPlan) {
	if l.halted(step) || !l.permitted(ctx, step, plan) {
		return
	}
	if step.Reboot {
		l.reboot(ctx, step)
		return
	}
	now := time.Now()
	c := newCommand(steprecord.Record{
		ID: idOf(step, now), Reason: step.Reason, Method: step.Method,
		Created: now.UTC(), Deadline: now.UTC().Add(l.timeout(len(step.Remove))),
	})
	c.step = step
	if plan != nil {
		c.Plan = plan.Name
	}
	for _, r := range step.Remove {
		c.Candidates = append(c.Candidates, steprecord.Of(r.Node.Claim))
	}
	c.Replacements = l.opener.Names(c.ID, step.Open)
	l.commands[c.ID] = c
	seen := l.store.Snapshot()
	l.tell.starting(ctx, step)

	if err := l.mark(ctx, c); err != nil {
		l.fail(ctx, c, fmt.Errorf("mark the nodes: %w", err))
		return
	}
	if err := l.open(ctx, c); err != nil {
		l.fail(ctx, c, fmt.Errorf("open the replacements: %w", err))
		return
	}
	// Only now, with the replacements created, does the picture show the nodes as marked for removal and plan a place for each of their
	// pods. Otherwise the provisioner would see pods without a place and open machines for them as well.
	l.store.Update(func(d *cluster.Draft) { step.Begin(d, c.Replacements, now) })
	l.tell.started(step, seen)
}

// mark writes the record and the reason of the command on the claim of every candidate, and the taint on its Node. It fails if a claim has
// the record of another command.
func (l *Loop) mark(ctx context.Context, c *command) error {
	return errors.Join(lookAfter(c.Candidates, nameOf, func(m steprecord.Member) error {
		taken := ""
		err := l.editClaim(ctx, m, func(claim *v1.NodeClaim) bool {
			if other, ok, _ := steprecord.Read(claim); ok && other.ID != c.ID {
				taken = other.ID
				return false
			}
			if claim.Annotations == nil {
				claim.Annotations = map[string]string{}
			}
			claim.Annotations[v1.DisruptionCommandAnnotationKey] = c.As(steprecord.Candidate)
			return true
		}, func(claim *v1.NodeClaim) {
			condition.Set(claim, reasonCondition(c.Reason), time.Now())
		})
		switch {
		case err != nil:
			return err
		case taken != "":
			return fmt.Errorf("claim %s takes part in the command %s", m.Name, taken)
		}
		return l.editNode(ctx, m.Name, addTaint)
	})...)
}

// open creates the replacements of a command, and stores the names that the claims really got. A claim that could not be created
// keeps its planned name.
func (l *Loop) open(ctx context.Context, c *command) error {
	if len(c.step.Open) == 0 {
		return nil
	}
	r := engine.Replacement{Open: c.step.Open, Of: map[types.UID]bool{}}
	for _, m := range c.Candidates {
		r.Of[m.UID] = true
	}
	annotations := map[string]string{v1.DisruptionCommandAnnotationKey: c.As(steprecord.Replacement)}
	claims, err := l.opener.Replace(ctx, c.ID, metricReason(c.Reason), r, annotations)
	for i, claim := range claims {
		if claim != nil {
			c.Replacements[i] = claim.Name // another claim may have had the name
		}
	}
	return err
}

// advance takes a command one step further, if it can: it deletes the candidates once all replacements have initialized, and forgets the
// command once all candidates are gone. It takes the command back if it is paused, a node is no longer empty or no longer broken, a record
// or replacement is gone, or the replacements are not ready by the deadline. After the first deletion it is never taken back whole.
func (l *Loop) advance(ctx context.Context, snap *cluster.Snapshot, c *command) {
	if l.gone(snap, c) {
		l.finish(ctx, snap, c)
		return
	}
	if l.halt(ctx, c) {
		return
	}
	if len(c.removed) > 0 { // there is no way back
		l.remove(ctx, snap, c)
		return
	}
	for _, m := range c.Candidates {
		if n := m.Staying(snap); n != nil && !c.On(n.Claim, steprecord.Candidate) {
			l.fail(ctx, c, fmt.Errorf("claim %s does not carry the record any more", m.Name))
			return
		}
	}
	if c.Method == disrupt.Emptiness {
		if time.Since(c.begun) < lastLook {
			return
		}
		if name := occupied(snap, c); name != "" {
			telemetry.Log(ctx).Info("a node is no longer empty and stays", "command", c.ID, "NodeClaim", name)
			l.takeBack(ctx, c)
			return
		}
	}
	if name := l.recovered(snap, c); name != "" {
		telemetry.Log(ctx).Info("a broken node has recovered and stays", "command", c.ID, "NodeClaim", name)
		l.takeBack(ctx, c)
		return
	}
	waiting := false
	for _, name := range c.Replacements {
		n := snap.ClaimNode(name)
		switch {
		case c.initialized[name]:
		case n == nil || n.Claim.DeletionTimestamp != nil || !c.On(n.Claim, steprecord.Replacement):
			l.fail(ctx, c, fmt.Errorf("replacement %s is gone", name))
			return
		case condition.IsTrue(n.Claim, v1.ConditionTypeInitialized):
			c.initialized[name] = true
		default:
			waiting = true
			l.tell.waiting(n.Claim)
		}
	}
	if !waiting {
		if l.restartHeldPods(ctx, snap, c) {
			l.remove(ctx, snap, c)
		}
		return
	}
	if time.Now().After(c.Deadline) {
		l.tell.neverReady(snap, c)
		l.fail(ctx, c, errors.New("the replacements were not ready in time"))
	}
}

// occupied names a candidate that was empty and no longer is, "" if there is none.
func occupied(snap *cluster.Snapshot, c *command) string {
	for _, m := range c.Candidates {
		if n := m.Staying(snap); n != nil && !disrupt.Vacated(n) {
			return m.Name
		}
	}
	return ""
}

// recovered names a candidate that was broken and no longer is, "" if there is none.
func (l *Loop) recovered(snap *cluster.Snapshot, c *command) string {
	if c.Reason != v1.DisruptionReasonUnhealthy {
		return ""
	}
	for _, m := range c.Candidates {
		if n := m.Staying(snap); n != nil && n.Node != nil && l.settings.Repairs.Of(n.Node, n.Claim, time.Now()) == nil {
			return m.Name
		}
	}
	return ""
}

// gone reports whether every candidate is deleted or being deleted.
func (l *Loop) gone(snap *cluster.Snapshot, c *command) bool {
	return !slices.ContainsFunc(c.Candidates, func(m steprecord.Member) bool { return m.Staying(snap) != nil })
}

// remove deletes the claims of the candidates that are left; their finalizers drain the nodes. What fails is logged and tried again in the
// next turn.
func (l *Loop) remove(ctx context.Context, snap *cluster.Snapshot, c *command) {
	var left []*cluster.Node
	for _, m := range c.Candidates {
		if n := m.Staying(snap); n != nil && !c.removed[m.Name] {
			left = append(left, n)
		}
	}
	errs := lookAfter(left, func(n *cluster.Node) string { return n.Name }, func(n *cluster.Node) error { return l.letGo(ctx, n, c) })
	for i, err := range errs {
		n := left[i]
		if errors.Is(err, errHalted) {
			continue // the next turn takes it back
		}
		if err != nil { // the next turn tries again
			telemetry.Log(ctx).Error("cannot delete claim", "NodeClaim", n.Claim.Name, "error", err)
			continue
		}
		c.removed[n.Claim.Name] = true
		l.tell.repaired(n, l.settings.Repairs, c.Reason)
		l.tell.removed(n, c.Reason, cluster.Pools.Get(snap, n.Pool()), movable.Count(n.Pods))
	}
}

// delete deletes a claim only in the version that was read. A newer claim of the same name, or a changed one, gives an error. A claim that
// is gone gives none.
func (l *Loop) delete(ctx context.Context, claim *v1.NodeClaim) error {
	seen := client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}
	return client.IgnoreNotFound(l.client.Delete(ctx, &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}}, seen))
}

// finish ends a command that succeeded: it takes the record off its replacements, which are ordinary nodes from now on, and forgets it.
func (l *Loop) finish(ctx context.Context, snap *cluster.Snapshot, c *command) {
	errs := lookAfter(c.Replacements, itself, func(name string) error {
		n := snap.ClaimNode(name)
		if n == nil || !c.On(n.Claim, steprecord.Replacement) {
			return nil
		}
		return l.editClaim(ctx, steprecord.Of(n.Claim), dropRecord, nil)
	})
	if err := errors.Join(errs...); err != nil {
		telemetry.Log(ctx).Error("cannot take the record off the replacements", "command", c.ID, "error", err)
		return // the next turn tries again
	}
	telemetry.Log(ctx).Debug("command succeeded", "command", c.ID)
	delete(l.commands, c.ID)
}

// fail takes a command back, reports why, and leaves its nodes alone for a while. A command adopted after a restart has no step, so its
// nodes are not left alone.
func (l *Loop) fail(ctx context.Context, c *command, why error) {
	telemetry.Log(ctx).Error("failed terminating nodes while executing a disruption command", "command", c.ID,
		"candidates", c.Candidates, "error", why)
	l.takeBack(ctx, c)
	l.tell.failed(l.store.Snapshot(), c, why)
	if c.step != nil {
		l.memory = l.memory.Failed(c.step, time.Now())
	}
}

// takeBack rolls a command back and forgets it, even if a call fails: it releases the candidates and deletes the replacements that run no
// pods.
func (l *Loop) takeBack(ctx context.Context, c *command) {
	snap := l.store.Snapshot()
	errs := lookAfter(c.Replacements, itself, func(name string) error { return l.dropReplacement(ctx, snap, c, name) })
	if err := errors.Join(append(errs, l.free(ctx, snap, c, c.Candidates))...); err != nil {
		// sweep and adopt find what stays behind
		telemetry.Log(ctx).Error("cannot take a disruption command back in full", "command", c.ID, "error", err)
	}
	delete(l.commands, c.ID)
}

// free releases candidates of a command (see release) and unmarks them in the picture, so that pods are planned onto them again.
func (l *Loop) free(ctx context.Context, snap *cluster.Snapshot, c *command, candidates []steprecord.Member) error {
	errs := lookAfter(candidates, nameOf, func(m steprecord.Member) error { return l.release(ctx, snap, m, c.ID) })
	l.store.Update(func(d *cluster.Draft) {
		for _, m := range candidates {
			if m.Node(snap) != nil {
				d.Unmark(m.Name)
			}
		}
	})
	return errors.Join(errs...)
}

// dropReplacement deletes a replacement on which no pod runs that needs another node (DaemonSets do not count). Otherwise the replacement
// stays as an ordinary node and loses the record. A claim in c.Replacements that does not carry this command's record is left alone.
func (l *Loop) dropReplacement(ctx context.Context, snap *cluster.Snapshot, c *command, name string) error {
	n := snap.ClaimNode(name)
	if n == nil || n.Claim.DeletionTimestamp != nil || !c.On(n.Claim, steprecord.Replacement) {
		return nil
	}
	if movable.Count(n.Pods) > 0 {
		return l.editClaim(ctx, steprecord.Of(n.Claim), dropRecord, nil)
	}
	return l.delete(ctx, n.Claim)
}

// release takes taint, reason and record off a candidate that stays, unless it takes part in another command.
func (l *Loop) release(ctx context.Context, snap *cluster.Snapshot, m steprecord.Member, command string) error {
	n := m.Node(snap)
	if n == nil {
		return nil
	}
	if r, ok, _ := steprecord.Read(n.Claim); ok && r.ID != command {
		return nil
	}
	if err := l.editNode(ctx, m.Name, dropTaint); err != nil {
		return errors.Join(err, l.editClaim(ctx, m, dropRecord, nil)) // by the reason the sweep finds what still carries the taint
	}
	return l.editClaim(ctx, m, dropRecord, func(claim *v1.NodeClaim) {
		condition.Clear(claim,
			v1.ConditionTypeDisruptionReason, time.Now())
	})
}

// sweep releases nodes that a failed start or rollback left behind: their claim has our disruption reason but no record of a command. A
// taint on a node whose claim has no such reason belongs to another program and stays. Nodes that are being rebooted are left out.
func (l *Loop) sweep(ctx context.Context, snap *cluster.Snapshot) {
	for n := range snap.Nodes() {
		if n.Claim == nil || n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil || n.Node != nil && n.Node.DeletionTimestamp != nil ||
			n.Claim.Annotations[v1.DisruptionCommandAnnotationKey] != "" || !condition.IsTrue(n.Claim, v1.ConditionTypeDisruptionReason) ||
			condition.IsTrue(n.Claim, v1.ConditionTypeRebooting) {
			continue
		}
		if err := l.release(ctx, snap, steprecord.Of(n.Claim), ""); err != nil {
			telemetry.Log(ctx).Error("cannot release a node that is not being disrupted", "Node", n.Name, "error", err)
		}
	}
}

// editClaim reads a claim from the API server and changes its metadata and its status, each with one patch. meta and status make the
// changes; either may be nil. If meta returns false, or the claim is gone or has another UID, nothing is written. The picture is updated
// as well.
func (l *Loop) editClaim(ctx context.Context, m steprecord.Member, meta func(*v1.NodeClaim) bool, status func(*v1.NodeClaim)) error {
	var claim v1.NodeClaim
	if err := l.client.Get(ctx, types.NamespacedName{Name: m.Name}, &claim); err != nil || claim.UID != m.UID {
		return client.IgnoreNotFound(err)
	}
	if before := claim.DeepCopy(); meta != nil {
		if !meta(&claim) {
			return nil
		}
		if err := l.client.Patch(ctx, &claim, patch.Over(before)); err != nil {
			return fmt.Errorf("patch claim %s: %w", m.Name, err)
		}
	}
	if before := claim.DeepCopy(); status != nil {
		status(&claim)
		if err := l.client.Status().Patch(ctx, &claim, patch.Over(before)); err != nil {
			return fmt.Errorf("patch status of claim %s: %w", m.Name, err)
		}
	}
	l.store.Update(func(d *cluster.Draft) { d.PutClaim(&claim) })
	return nil
}

// editNode reads the Node of a claim from the API server and patches it with what edit changes. It writes nothing if the claim has no Node
// or edit returns false.
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
	if err := l.client.Patch(ctx, &node, patch.Over(before)); err != nil {
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}

// isDisrupted reports whether a taint is Karpenter's own on nodes that are being removed.
func isDisrupted(t corev1.Taint) bool {
	return t.Key == v1.DisruptedTaintKey && t.Effect == corev1.TaintEffectNoSchedule
}

// addTaint adds that taint, and returns false if the node has it already.
func addTaint(n *corev1.Node) bool {
	if slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
		return false
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1.DisruptedTaintKey, Effect: corev1.TaintEffectNoSchedule})
	return true
}

// dropTaint removes it, and returns false if there is nothing to remove. A Node that is being deleted keeps it.
func dropTaint(n *corev1.Node) bool {
	if n.DeletionTimestamp != nil || !slices.ContainsFunc(n.Spec.Taints, isDisrupted) {
		return false
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isDisrupted)
	return true
}

func dropRecord(claim *v1.NodeClaim) bool {
	delete(claim.Annotations, v1.DisruptionCommandAnnotationKey)
	return true
}

// editsAtOnce is how many objects of a command are edited at the same time.
const editsAtOnce = 32

// lookAfter calls do for each element, up to editsAtOnce at a time, and returns one error per element, nil for success. name returns how
// the report of a panic names an element.
func lookAfter[T any](list []T, name func(T) string, do func(T) error) []error {
	return parallel.Of(list, editsAtOnce, func(one T) string { return "looking after " + name(one) }, do)
}

func itself(name string) string { return name }

func nameOf(m steprecord.Member) string { return m.Name }
