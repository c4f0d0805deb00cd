// Package pool keeps the status of NodePools: the sum of their resources, whether they are valid and have a usable node class, and whether
// their nodes register. It also writes the hash of their template, by which drift is recognized.
//
// Pools of node classes in other API groups than the provider's are never touched.
package pool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// staleWait is how long to wait for a newer snapshot after an API call showed that ours is old.
const staleWait = time.Second

// Deps are what the loop works with.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client
	Cloud   cloud.Provider
	Known   *label.Vocabulary // what the core and the provider know about labels
	Metrics *telemetry.Metrics
	Events  *telemetry.Events // may be nil
	Gates   Gates
}

// Gates are the feature gates that decide whether a pool may do what it asks for.
type Gates struct{ StaticCapacity bool }

// Loop looks after all pools.
type Loop struct {
	Deps
	outcomes outcomes

	mu     sync.Mutex
	health map[types.UID]lifecycle.Health
	never  map[types.UID]string // names of claims that were counted as never ready
}

// New returns a loop that has not started.
func New(d Deps) *Loop {
	return &Loop{Deps: d, outcomes: outcomes{news: make(chan struct{}, 1)}, health: map[types.UID]lifecycle.Health{},
		never: map[types.UID]string{}}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	var err error
	wait.Go(func() {
		err = workqueue.Work[version]{
			Name: "nodepool.readiness", Metrics: l.Metrics, Workers: 10, Rows: l.rows, Step: l.step,
		}.Run(ctx, l.Store)
	})
	wait.Go(func() { l.count(ctx) })
	wait.Go(func() { l.countOutcomes(ctx) })
	wait.Wait()
	return err
}

// version is all that a pool's conditions and hash depend on. The queue calls step again when it changes.
type version struct {
	pool   *v1.NodePool
	class  *cluster.NodeClass
	unread string // see unread
	halt   string // why the pool is paused, "" if it is not
}

// rows returns the pools whose node class is in the provider's API group, by name, with their versions.
func (l *Loop) rows(snap *cluster.Snapshot) iter.Seq2[string, version] {
	return func(yield func(string, version) bool) {
		if !snap.Synced() {
			return
		}
		now := time.Now()
		for p := range cluster.Pools.All(snap) {
			if !cloud.ServesGroup(l.Cloud, p.Spec.Template.Spec.NodeClassRef) {
				continue
			}
			v := version{pool: p, class: snap.NodeClass(p.Spec.Template.Spec.NodeClassRef), unread: unread(snap)}
			if h, halted := paused.Of(snap, p.Name, now); halted {
				v.halt = sentence.Halt(h)
			}
			if !yield(p.Name, v) {
				return
			}
		}
	}
}

// managed reports whether the provider serves the kind of node class that a pool names.
func (l *Loop) managed(p *v1.NodePool) bool {
	return cloud.Serves(l.Cloud, p.Spec.Template.Spec.NodeClassRef)
}

// step brings hash and conditions of one pool up to date. It returns when to look again: at the end of a pause, or after sayAgain if the
// pool is not ready. A pool whose kind of node class is not served gets conditions but no hash.
func (l *Loop) step(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	pool := cluster.Pools.Get(snap, name)
	if pool == nil || !cloud.ServesGroup(l.Cloud, pool.Spec.Template.Spec.NodeClassRef) {
		return time.Time{}, nil
	}
	var err error
	if l.managed(pool) {
		pool, err = l.stamp(ctx, snap, pool)
	}
	ready := false
	now := time.Now()
	stands, _ := paused.Of(snap, name, now)
	if err == nil {
		ready, err = l.judge(ctx, snap, pool, now)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return time.Now().Add(staleWait), nil
	}
	if err != nil || ready {
		return stands.Until, err // when the pause ends; zero without a pause
	}
	return now.Add(sayAgain), nil
}

// sayAgain is how often the event that a pool is not ready is published again, so that an operator finds it.
const sayAgain = 10 * time.Minute

// stamp writes the hash of the pool's template on the pool, and returns the pool as written. If the stored hash was made by another version
// of the algorithm, the claims get new hashes first. So a crash in between only repeats that.
func (l *Loop) stamp(ctx context.Context, snap *cluster.Snapshot, pool *v1.NodePool) (*v1.NodePool, error) {
	present := drift.PoolStamp(pool)
	if drift.Stored(pool.Annotations) == present {
		return pool, nil
	}
	read := func(c *v1.NodeClaim) drift.Stamp { return drift.Stored(c.Annotations) }
	for _, r := range drift.Migrate(drift.Stored(pool.Annotations), present, claimsOf(snap, pool.Name), read) {
		if err := l.annotate(ctx, r.Claim, r.Stamp); err != nil {
			return nil, fmt.Errorf("restamp claim %s: %w", r.Claim.Name, err)
		}
	}
	stamped := pool.DeepCopy()
	if err := l.annotate(ctx, stamped, present); err != nil {
		return nil, fmt.Errorf("stamp pool %s: %w", pool.Name, err)
	}
	l.Store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, stamped) })
	return stamped, nil
}

// claimsOf returns the claims with the label of a pool.
func claimsOf(snap *cluster.Snapshot, pool string) []*v1.NodeClaim {
	var out []*v1.NodeClaim
	for row := range snap.Nodes() {
		if row.Claim != nil && row.Claim.Labels[v1.NodePoolLabelKey] == pool {
			out = append(out, row.Claim)
		}
	}
	return out
}

// annotate writes a stamp into the annotations of a pool or claim. It needs no optimistic lock, because nothing else changes these two
// annotations. A pool that is passed gets the written object; a claim that is passed stays unchanged.
func (l *Loop) annotate(ctx context.Context, o client.Object, s drift.Stamp) error {
	old := o.DeepCopyObject().(client.Object)
	next := o
	if _, isClaim := o.(*v1.NodeClaim); isClaim { // a row of the store, which must not change
		next = o.DeepCopyObject().(client.Object)
	}
	annotations := map[string]string{}
	for k, v := range next.GetAnnotations() {
		annotations[k] = v
	}
	annotations[v1.NodePoolHashAnnotationKey], annotations[v1.NodePoolHashVersionAnnotationKey] = s.Hash, s.Version
	next.SetAnnotations(annotations)
	return l.Client.Patch(ctx, next, client.MergeFrom(old))
}

// judge works out all conditions of a pool and writes the status if it has changed. It returns ready unless the condition Ready is False:
// Unknown counts as ready here.
func (l *Loop) judge(ctx context.Context, snap *cluster.Snapshot, pool *v1.NodePool, now time.Time) (ready bool, err error) {
	judged, class := pool.DeepCopy(), snap.NodeClass(pool.Spec.Template.Spec.NodeClassRef)
	condition.Init(judged)
	l.validate(judged, now)
	if l.managed(pool) {
		checkClass(judged, class, now)
	} else {
		condition.SetFalse(judged, v1.ConditionTypeNodeClassReady, v1.ReasonNodeClassNotFound, l.noSuchKind(pool), now)
	}
	l.checkHealth(judged, class, now)
	checkFeeds(judged, unread(snap), now)
	checkHalt(judged, snap, now)
	checkApproval(judged, now)
	checkAnnotations(judged, now)
	checkSpot(judged, now)
	l.tell(judged)
	ready = !condition.IsFalse(judged, v1.ConditionTypeReady)
	if equality.Semantic.DeepEqual(judged.Status, pool.Status) {
		return ready, nil
	}
	return ready, l.writeStatus(ctx, pool, judged)
}

// noSuchKind returns the message for a pool that names a kind of node class that the provider does not serve, with the kinds there are.
func (l *Loop) noSuchKind(pool *v1.NodePool) string {
	ref := pool.Spec.Template.Spec.NodeClassRef
	var kinds []string
	for _, kind := range l.Cloud.NodeClassKinds() {
		if kind.Group == ref.Group {
			kinds = append(kinds, kind.Kind)
		}
	}
	return fmt.Sprintf("there is no kind %q of node classes in the group %s; there is %s", ref.Kind, ref.Group, strings.Join(kinds, ", "))
}

// tell publishes an event for each reason why a pool gets no nodes. A class whose readiness is not known yet is no such reason.
func (l *Loop) tell(pool *v1.NodePool) {
	if l.Events == nil || !condition.IsFalse(pool, v1.ConditionTypeReady) {
		return
	}
	for _, kind := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
		if c := condition.Get(pool, kind); c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason != v1.ReasonNodeClassReadinessUnknown {
			l.Events.Publish(telemetry.Event{
				Object: telemetry.PoolRef(pool), Reason: telemetry.NodePoolNotReady, Key: []string{string(pool.UID),
					kind, c.Message}, Message: c.Reason + ": " + c.Message,
			})
		}
	}
}

// writeStatus writes the status of a pool over the version old, and updates the store.
func (l *Loop) writeStatus(ctx context.Context, old, pool *v1.NodePool) error {
	if err := l.Client.Status().Patch(ctx, pool, patch.Over(old)); err != nil {
		return fmt.Errorf("write status of pool %s: %w", pool.Name, err)
	}
	l.Store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, pool) })
	return nil
}

// validate sets the condition ValidationSucceeded. It is also False if the pool needs a feature gate that is off, because nothing else
// would tell the user why nothing is launched.
func (l *Loop) validate(pool *v1.NodePool, now time.Time) {
	err := pool.Validate(l.Known)
	switch {
	case err != nil:
		condition.SetFalse(pool, v1.ConditionTypeValidationSucceeded, v1.ReasonNodePoolValidationFailed, err.Error(), now)
	case pool.IsStatic() && !l.Gates.StaticCapacity:
		condition.SetFalse(pool, v1.ConditionTypeValidationSucceeded, v1.ReasonFeatureGateDisabled,
			"spec.replicas is set, but the feature gate StaticCapacity is off: nothing is launched for this pool", now)
	default:
		condition.SetTrue(pool, v1.ConditionTypeValidationSucceeded, now)
	}
}

// unread returns a text about kinds of objects that can no longer be read from the API server and what does not happen because of that, ""
// if all can be read.
func unread(snap *cluster.Snapshot) string {
	stopped := "no node is disrupted voluntarily: "
	if snap.Fed() {
		stopped = "nothing is planned for pods that use resource claims: "
	}
	var out []string
	for f := range snap.FailedFeeds() {
		out = append(out, fmt.Sprintf("%s has not been read since %s: %s", f.Kind, f.Since.UTC().Format(time.RFC3339), f.Why))
	}
	if len(out) == 0 {
		return ""
	}
	return stopped + strings.Join(out, "; ")
}

// checkFeeds sets the condition ClusterStateCurrent to False if unread is not "", and removes it otherwise.
func checkFeeds(pool *v1.NodePool, unread string, now time.Time) {
	if unread == "" {
		condition.Clear(pool, v1.ConditionTypeClusterStateCurrent, now)
		return
	}
	condition.SetFalse(pool, v1.ConditionTypeClusterStateCurrent, v1.ReasonFeedFailed, unread, now)
}

// checkHalt sets the condition DisruptionPaused while the pool or the whole cluster is paused, and removes it otherwise. The reason tells
// whether a user, a breaker or a rollout has paused it.
func checkHalt(pool *v1.NodePool, snap *cluster.Snapshot, now time.Time) {
	h, halted := paused.Of(snap, pool.Name, now)
	if !halted {
		condition.Clear(pool, v1.ConditionTypeDisruptionPaused, now)
		return
	}
	c := metav1.Condition{Type: v1.ConditionTypeDisruptionPaused, Status: metav1.ConditionTrue,
		Reason: v1.ReasonPoolPaused, Message: "no node is disrupted voluntarily: " + sentence.Halt(h)}
	switch {
	case h.Pool == "":
		c.Reason = v1.ReasonClusterPaused
	case pool.Annotations[v1.PausedByAnnotationKey] == v1.PausedByBreaker:
		c.Reason = v1.ReasonBreakerTripped
	case pool.Annotations[v1.PausedByAnnotationKey] == v1.PausedByRollout:
		c.Reason = v1.ReasonRolloutTripped
	}
	condition.Set(pool, c, now)
}

// checkApproval sets the condition DisruptionByApproval while voluntary steps of the pool need a user's approval, and removes it otherwise.
// The message names the rules that approve steps, or what is wrong with the annotations.
func checkApproval(pool *v1.NodePool, now time.Time) {
	if !pool.AsksApproval() {
		condition.Clear(pool, v1.ConditionTypeDisruptionByApproval, now)
		return
	}
	c := metav1.Condition{Type: v1.ConditionTypeDisruptionByApproval, Status: metav1.ConditionTrue,
		Reason: v1.ReasonApprovalManual, Message: "each voluntary step waits for approval of its DisruptionPlan"}
	rules, unread := approval.Rules(pool)
	value := pool.Annotations[v1.ApprovalAnnotationKey]
	switch {
	case unread != nil:
		c.Reason, c.Message = v1.ReasonApprovalNotUnderstood,
			fmt.Sprintf("%s; %s is not understood, so no rule counts: %s", c.Message, v1.AutoApproveAnnotationKey, sentence.Unread(unread))
	case value != v1.ApprovalManual:
		c.Reason, c.Message = v1.ReasonApprovalNotUnderstood,
			fmt.Sprintf("%s; %s says %q, which is neither %s nor %s", c.Message, v1.ApprovalAnnotationKey, value,
				v1.ApprovalManual, v1.ApprovalAutomatic)
	case len(rules) > 0:
		c.Message += "; approved without anybody: " + pool.Annotations[v1.AutoApproveAnnotationKey]
	}
	condition.Set(pool, c, now)
}

// checkAnnotations sets the condition ReservedKeysIgnored if the template has annotations that Karpenter reserves, and removes it
// otherwise.
func checkAnnotations(pool *v1.NodePool, now time.Time) {
	reserved := pool.Spec.Template.ReservedAnnotations()
	if len(reserved) == 0 {
		condition.Clear(pool, v1.ConditionTypeReservedKeysIgnored, now)
		return
	}
	message := "Karpenter keeps these annotations of spec.template.metadata for itself, so nodes do not get them: " +
		strings.Join(reserved, ", ")
	condition.Set(pool, metav1.Condition{Type: v1.ConditionTypeReservedKeysIgnored, Status: metav1.ConditionTrue,
		Reason: v1.ConditionTypeReservedKeysIgnored, Message: message}, now)
}

// checkSpot sets the condition SpotAnnotationsIgnored if annotations about spot cannot be read and are therefore ignored, and removes it
// otherwise.
func checkSpot(pool *v1.NodePool, now time.Time) {
	err := errors.Join(pool.SpotAnnotationErrors()...)
	if err == nil {
		condition.Clear(pool, v1.ConditionTypeSpotAnnotationsIgnored, now)
		return
	}
	condition.Set(pool, metav1.Condition{Type: v1.ConditionTypeSpotAnnotationsIgnored, Status: metav1.ConditionTrue,
		Reason: v1.ConditionTypeSpotAnnotationsIgnored, Message: strings.ReplaceAll(err.Error(), "\n", "; ")}, now)
}

// checkClass sets the condition NodeClassReady from the state of the pool's node class, nil if there is none.
func checkClass(pool *v1.NodePool, class *cluster.NodeClass, now time.Time) {
	ref := pool.Spec.Template.Spec.NodeClassRef
	refuse := func(reason, message string) {
		condition.SetFalse(pool, v1.ConditionTypeNodeClassReady, reason, message, now)
	}
	switch {
	case class == nil:
		refuse(v1.ReasonNodeClassNotFound, fmt.Sprintf("there is no %s named %q", ref.Kind, ref.Name))
	case class.Deleting:
		refuse(v1.ReasonNodeClassTerminating, fmt.Sprintf("%s %q is being deleted", ref.Kind, ref.Name))
	case class.Ready == nil || class.Ready.Status == "Unknown":
		refuse(v1.ReasonNodeClassReadinessUnknown, fmt.Sprintf("%s %q does not say yet whether it is ready", ref.Kind, ref.Name))
	case class.Ready.Status == "False":
		refuse(class.Ready.Reason, whyNotReady(class))
	default:
		condition.SetTrue(pool, v1.ConditionTypeNodeClassReady, now)
	}
}

// whyNotReady returns the message of the condition Ready of a class, followed by the messages of its other conditions that are False, which
// name what to correct.
func whyNotReady(class *cluster.NodeClass) string {
	said := []string{}
	for _, c := range class.Conditions {
		if c.Type != class.Ready.Type && c.Status == metav1.ConditionFalse && c.Message != "" && c.Message != c.Type &&
			!slices.Contains(said, c.Message) {
			said = append(said, c.Message)
		}
	}
	if len(said) == 0 {
		return class.Ready.Message
	}
	return class.Ready.Message + ": " + strings.Join(said, "; ")
}
