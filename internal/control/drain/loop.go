// Package drain empties Nodes that are being deleted and then lets them go: taint, pods, volumes, machine, finalizer, in this
// order.
//
// core/evict decides which pods leave next. It makes no difference whether a user deletes a Node or its NodeClaim: the deletion of one
// causes that of the other, and the Node is gone before the claim.
//
// The same pods are evicted from nodes whose machine is to be rebooted (vacate), but these Nodes are not deleted.
package drain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/core/evict"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Times of a drain.
const (
	staleWait  = time.Second     // how long to wait for a newer snapshot after a conflict
	volumePoll = time.Second     // how often attached volumes are looked at
	placePoll  = time.Second     // how often to check whether the new nodes of pods are ready
	unseenPoll = time.Second     // how often the API server is asked for pods that our picture lacks
	stopPoll   = 5 * time.Second // how often the cloud is asked whether a machine is gone
	// leastDrainTime is how long a node is drained at least, so that pods which were bound a moment ago are seen.
	leastDrainTime = 5 * time.Second
)

// name is this loop's name in metrics and the journal.
const name = "node.termination"

// Deps are what the loop works with.
type Deps struct {
	Store  *cluster.Store
	Client client.Client // for claims and nodes
	// Evictions is a client of its own for pods, so that evictions do not hold up everything else.
	Evictions client.Client
	Cloud     cloud.Provider
	Metrics   *telemetry.Metrics
	Events    *telemetry.Events
	Journal   *journal.Journal // may be nil
	// Definition watches the definition of NodeClaims. While that is gone, no node is drained. It may be nil.
	Definition *definition.Watch
}

// Settings of the loop. The zero value is the documented behaviour.
type Settings struct {
	Workers int // nodes at the same time; default 100
}

// definitionPoll is how often to check for a node whether the definition of NodeClaims is back.
const definitionPoll = 10 * time.Second

// Loop drains nodes.
type Loop struct {
	Deps
	settings Settings

	mu    sync.Mutex
	nodes map[string]*queue // evictions under way, by node
}

// New returns a loop that has not started.
func New(d Deps, s Settings) *Loop {
	if s.Workers <= 0 {
		s.Workers = 100
	}
	return &Loop{Deps: d, settings: s, nodes: map[string]*queue{}}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	return workqueue.Work[*cluster.Node]{
		Name: name, Metrics: l.Metrics, Workers: l.settings.Workers,
		Rows: l.rows, Step: l.step, Forget: l.forget,
		MinWait: 100 * time.Millisecond, MaxWait: 10 * time.Second,
	}.Run(ctx, l.Store)
}

// rows returns the nodes of this provider that are being deleted, or emptied for a reboot, by name.
func (l *Loop) rows(snap *cluster.Snapshot) iter.Seq2[string, *cluster.Node] {
	return func(yield func(string, *cluster.Node) bool) {
		if !snap.Synced() {
			return
		}
		for row := range snap.Nodes() {
			if (l.leaving(row) || l.vacates(row)) && !yield(row.Name, row) {
				return
			}
		}
	}
}

// leaving reports whether a node of this provider is being deleted and still has Karpenter's finalizer. A node without claim is recognized
// by the label of its node class.
func (l *Loop) leaving(row *cluster.Node) bool {
	n := row.Node
	if n == nil || n.DeletionTimestamp == nil || !slices.Contains(n.Finalizers, v1.TerminationFinalizer) {
		return false
	}
	for _, kind := range l.Cloud.NodeClassKinds() {
		if _, ok := n.Labels[v1.NodeClassLabelKey(kind.GroupKind())]; ok {
			return true
		}
	}
	return row.Claim != nil && cloud.Serves(l.Cloud, row.Claim.Spec.NodeClassRef)
}

// vacates reports whether pods have to leave a node of this provider because its machine is to be rebooted.
func (l *Loop) vacates(row *cluster.Node) bool {
	return lifecycle.Vacates(row.Claim, row.Node) && cloud.Serves(l.Cloud, row.Claim.Spec.NodeClassRef)
}

// queue returns the evictions under way of a node, with an empty queue for a new node.
func (l *Loop) queue(node string) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.nodes[node]
	if q == nil {
		q = &queue{pods: map[podID]*try{}}
		l.nodes[node] = q
	}
	return q
}

// forget drops the queue of a node that is gone.
func (l *Loop) forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
}

// step does what can be done now to drain a node, and returns when to look again. A conflict is no error: it only means that the snapshot
// was old.
func (l *Loop) step(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	row := snap.Node(name)
	switch {
	case row == nil:
		return time.Time{}, nil
	case !l.leaving(row):
		return l.vacate(ctx, row), nil
	}
	again, err := l.drain(ctx, snap, row)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return time.Now().Add(staleWait), nil
	}
	return again, err
}

// drain prepares a node that is being deleted: it deletes the claim too, reads the deadline and puts the taint on the Node. Then stages
// goes on. If the Node is not ready and its machine is gone, the Node is released at once.
//
// While the definition of NodeClaims is gone nothing is drained: its deletion deletes all claims, and with them all Nodes. A machine that
// the cloud takes back is drained even then.
func (l *Loop) drain(ctx context.Context, snap *cluster.Snapshot, row *cluster.Node) (time.Time, error) {
	claim := row.Claim
	if !evict.Taken(claim, time.Now()) && l.Definition.Gone(ctx) {
		l.Events.Tell(telemetry.Refs(row.Node, claim), telemetry.FailedDraining, definition.Held)
		return time.Now().Add(definitionPoll), nil
	}
	if claim != nil && claim.DeletionTimestamp == nil {
		if err := l.Client.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID}); err != nil {
			return time.Time{}, fmt.Errorf("delete claim %s: %w", claim.Name, err)
		}
	}
	if lifecycle.ReadyStatus(row.Node) != corev1.ConditionTrue && row.ProviderID != "" {
		_, err := l.Cloud.Get(ctx, row.ProviderID)
		if errors.Is(err, cloud.ErrNotFound) { // no kubelet is left to end any pod
			return time.Time{}, l.release(ctx, row)
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("get machine %s: %w", row.ProviderID, err)
		}
	}
	deadline, err := deadlineOf(claim)
	if err != nil {
		return time.Time{}, err
	}
	l.reportDeadline(row.Node, deadline)
	if err := l.close(ctx, row.Node); err != nil {
		return time.Time{}, err
	}
	return l.stages(ctx, snap, row, deadline)
}

// stages runs the stages of a drain in order: pods, volumes, machine. The first stage that has to wait ends the step. The conditions that
// stages have set on the copy of the claim are written together. After the last stage the Node is released.
func (l *Loop) stages(ctx context.Context, snap *cluster.Snapshot, row *cluster.Node, deadline time.Time) (time.Time, error) {
	now := time.Now()
	w := work{Loop: l, row: row, deadline: deadline, now: now}
	if row.Claim != nil {
		w.claim = row.Claim.DeepCopy()
	}
	again, waiting, err := w.pods(ctx, snap)
	if !waiting && err == nil {
		again, waiting = w.volumes(snap)
	}
	if !waiting && err == nil {
		again, waiting, err = w.machine(ctx)
	}
	if err := errors.Join(err, w.write(ctx)); err != nil || waiting {
		return again, err
	}
	return time.Time{}, l.release(ctx, row)
}

// vacate evicts the pods of a node that is to be rebooted, and returns when to look again. Pods for which
// evict.Next does not wait stay on the node.
func (l *Loop) vacate(ctx context.Context, row *cluster.Node) time.Time {
	if !l.vacates(row) {
		return time.Time{}
	}
	plan := evict.Next(row.Pods, time.Time{}, time.Now())
	return l.queue(row.Name).run(ctx, l, job{row: row, claim: row.Claim, plan: plan})
}

// deadlineOf returns the time by which a node must be drained; zero without claim or deadline.
func deadlineOf(claim *v1.NodeClaim) (time.Time, error) {
	if claim == nil {
		return time.Time{}, nil
	}
	deadline, err := lifecycle.Deadline(claim)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s: %w", v1.NodeClaimTerminationTimestampAnnotationKey, err)
	}
	return deadline, nil
}

// work is one node during a step of its drain. Conditions are set on its copy of the claim, and stages writes them at the end.
type work struct {
	*Loop
	row      *cluster.Node
	claim    *v1.NodeClaim // our copy; nil for a node without claim
	deadline time.Time
	now      time.Time
	drained  bool // the node became drained in this step, so unseen has already asked for its pods
}

// pods is the first stage: it evicts pods until none is left that has to leave. While it waits it returns waiting and when to look again.
//
// First it waits for new nodes to which the pods are to go. When the node is empty it waits for leastDrainTime and then asks the API server
// whether pods were missed (unseen). Only then the claim's condition Drained becomes true.
func (w *work) pods(ctx context.Context, snap *cluster.Snapshot) (again time.Time, waiting bool, err error) {
	if until := evict.HeldUntil(snap, w.row, w.now); !until.IsZero() {
		w.condition(v1.ConditionTypeDrained, v1.ReasonDraining,
			"pods stay until their new nodes are ready, at the latest until "+until.Format(time.RFC3339))
		return ztime.Sooner(until, w.now.Add(placePoll)), true, nil
	}
	plan := evict.Next(w.row.Pods, w.deadline, w.now)
	if len(plan.Waiting) > 0 {
		w.condition(v1.ConditionTypeDrained, v1.ReasonDraining, fmt.Sprintf("%d pods are left", len(plan.Waiting)))
		w.reportDraining(w.row.Node, plan, time.Now())
		w.reportProtections(plan.Waiting, w.now)
		return w.queue(w.row.Name).run(ctx, w.Loop, job{row: w.row, claim: w.claim, plan: plan, deadline: w.deadline}), true, nil
	}
	if w.claim == nil || condition.IsTrue(w.claim, v1.ConditionTypeDrained) {
		return time.Time{}, false, nil
	}
	w.condition(v1.ConditionTypeDrained, v1.ReasonDraining, "the node is empty; pods that were bound a moment ago may still appear")
	begun := condition.Get(w.claim, v1.ConditionTypeDrained).LastTransitionTime
	if at := begun.Add(leastDrainTime); w.now.Before(at) {
		return at, true, nil
	}
	if again, waiting, err = w.unseen(ctx); waiting {
		return again, true, err
	}
	w.drained = condition.SetTrue(w.claim, v1.ConditionTypeDrained, w.now)
	return time.Time{}, false, nil
}

// unseen asks the API server itself for the pods of the node, because the snapshot may lack some, and evicts those too. If the API server
// does not answer, the drain waits, unless the cloud takes the machine back. After the deadline unseen does not ask.
func (w *work) unseen(ctx context.Context) (again time.Time, waiting bool, err error) {
	if w.overdue() {
		return time.Time{}, false, nil
	}
	pods, err := w.bound(ctx, w.row.Node)
	switch {
	case err != nil && evict.Taken(w.claim, w.now):
		telemetry.Log(ctx).Error("the cloud takes the machine back; which pods are left on it is not known", "Node",
			w.row.Name, "error", err)
		return time.Time{}, false, nil
	case err != nil:
		w.occupied("it cannot be found out which pods are left: " + err.Error())
		w.Events.Tell(telemetry.Refs(w.row.Node, nil), telemetry.FailedDraining,
			"It cannot be found out which pods are left: "+err.Error())
		return time.Time{}, true, err
	}
	plan := evict.Next(pods, w.deadline, w.now)
	if len(plan.Waiting) == 0 {
		return time.Time{}, false, nil
	}
	w.occupied(fmt.Sprintf("%d pods are left that were not seen before", len(plan.Waiting)))
	w.reportDraining(w.row.Node, plan, time.Now())
	w.queue(w.row.Name).run(ctx, w.Loop, job{row: w.row, claim: w.claim, plan: plan, deadline: w.deadline})
	return w.now.Add(unseenPoll), true, nil // no event says when they are gone
}

// occupied sets the condition Drained of the claim back to Unknown.
func (w *work) occupied(why string) {
	if w.claim != nil {
		condition.SetUnknown(w.claim, v1.ConditionTypeDrained, v1.ReasonDraining, why, w.now)
	}
}

// overdue reports whether the deadline of the drain has passed.
func (w *work) overdue() bool { return !w.deadline.IsZero() && !w.now.Before(w.deadline) }

// condition sets a condition of the claim to Unknown, unless it is True already.
func (w *work) condition(conditionType, reason, message string) {
	if w.claim != nil && !condition.IsTrue(w.claim, conditionType) {
		condition.SetUnknown(w.claim, conditionType, reason, message, w.now)
	}
}

// volumes is the second stage: it waits until the volumes of pods are detached from the machine, or until the deadline.
func (w *work) volumes(snap *cluster.Snapshot) (again time.Time, waiting bool) {
	left := evict.Attached(snap, w.row, w.now)
	switch {
	case len(left) > 0 && !w.overdue():
		w.condition(v1.ConditionTypeVolumesDetached, v1.ReasonAwaitingVolumeDetachment, fmt.Sprintf("%d volumes are attached", len(left)))
		w.reportVolumes(w.row.Node, left)
		return w.now.Add(volumePoll), true
	case w.claim == nil:
	case len(left) > 0:
		condition.SetFalse(w.claim, v1.ConditionTypeVolumesDetached, v1.ReasonTerminationGracePeriodElapsed,
			fmt.Sprintf("%d volumes are still attached at the deadline", len(left)), w.now)
	default:
		condition.SetTrue(w.claim, v1.ConditionTypeVolumesDetached, w.now)
	}
	return time.Time{}, false
}

// machine is the last stage: it asks the cloud to stop the machine until that is gone. The machine of a node without claim is left to
// garbage collection, unless an operator has decided by an annotation that it is stopped with the node.
func (w *work) machine(ctx context.Context) (again time.Time, waiting bool, err error) {
	id := w.toStop()
	if id == "" {
		return time.Time{}, false, nil
	}
	if !w.drained && (w.claim == nil || !condition.IsTrue(w.claim, v1.ConditionTypeInstanceTerminating)) {
		if again, waiting, err = w.unseen(ctx); waiting {
			return again, true, err
		}
	}
	err = w.Cloud.Terminate(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, true, fmt.Errorf("terminate machine %s: %w", id, err)
	}
	if w.claim != nil {
		condition.SetTrue(w.claim, v1.ConditionTypeInstanceTerminating, w.now)
	}
	return w.now.Add(stopPoll), true, nil
}

// toStop returns the provider id of the machine to stop, "" for none.
func (w *work) toStop() string {
	switch {
	case w.claim != nil:
		return w.claim.Status.ProviderID
	case w.row.Node.Annotations[v1.OrphanAnnotationKey] == v1.OrphanTerminate:
		return w.row.ProviderID
	}
	return ""
}
