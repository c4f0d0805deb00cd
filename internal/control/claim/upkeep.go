package claim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/identity"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// How often to check again what no change in the cluster would show.
const (
	driftEvery       = 5 * time.Minute
	consistencyEvery = 10 * time.Minute
)

// kept is what keep remembers of a claim from one look to the next.
type kept struct {
	row        *cluster.Node // at the last look
	drift      driftInput    // at the last check of drift
	drifted    time.Time     // when that check was
	consistent time.Time     // when consistency was last checked
	typeKnown  time.Time     // when the instance type was last seen in the catalogue
}

// upkeepVersion is all that the conditions for disruption and the expiry of a claim depend on. The queue calls keep again when it changes.
type upkeepVersion struct {
	row   *cluster.Node
	pool  *v1.NodePool
	class *cluster.NodeClass
	// rollouts is the result of rolloutsOf: policies influence when claims expire, and whether they have drifted.
	rollouts string
}

// rolloutsOf returns a text that changes when the spec of a RolloutPolicy does, or when one stops a pool or lets it go on. It is "" without
// policies.
func rolloutsOf(snap *cluster.Snapshot) string {
	out := ""
	for p := range cluster.Rollouts.All(snap) {
		out += fmt.Sprintf("%s/%d ", p.UID, p.Generation)
		for i := range p.Status.Pools {
			if e := &p.Status.Pools[i]; e.Tripped != nil {
				out += e.Name + " "
			}
		}
	}
	return out
}

// upkeepRows returns the claims that this provider serves and that are not being deleted, by name, with their versions.
func (l *Loop) upkeepRows(snap *cluster.Snapshot) iter.Seq2[string, upkeepVersion] {
	return func(yield func(string, upkeepVersion) bool) {
		if !snap.Synced() {
			return
		}
		rollouts := rolloutsOf(snap)
		for row := range snap.Nodes() {
			if !l.managed(row) || row.Claim.DeletionTimestamp != nil {
				continue
			}
			pool := cluster.Pools.Get(snap, row.Claim.Labels[v1.NodePoolLabelKey])
			v := upkeepVersion{row, pool, snap.NodeClass(row.Claim.Spec.NodeClassRef), rollouts}
			if !yield(row.Claim.Name, v) {
				return
			}
		}
	}
}

// keep looks after one claim. It deletes the claim if that has expired for good. Otherwise it writes when a pod last came or went, and the
// conditions ConsistentStateFound, Consolidatable and Drifted. It returns when to look again.
func (l *Loop) keep(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	row := snap.ClaimNode(name)
	if row == nil || row.Claim == nil || row.Claim.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	now := time.Now()
	soft, expiry, expires := rollout.Expiry(snap, row.Claim)
	if expires && !now.Before(expiry) {
		err := l.remove(ctx, row.Claim, lifecycle.Expired, movable.Count(row.Pods))
		if err == nil {
			l.reportExpired(row)
		}
		return retryStale(time.Time{}, err)
	}
	if err := l.hydrate(ctx, row); err != nil {
		return retryStale(time.Time{}, err)
	}
	again := expiry
	aged := expires && !now.Before(soft)
	if !aged {
		again = ztime.Sooner(again, soft)
	}
	mine := l.upkeep.of(row.Claim)
	if err := l.stampPodEvent(ctx, mine, row, now); err != nil {
		return retryStale(time.Time{}, err)
	}
	row = mine.row
	next := *row.Claim // a shallow copy: what follows replaces its parts and changes none
	claim := &next
	var errs []error
	before := *mine
	again = ztime.Sooner(again, l.checkConsistency(ctx, mine, row, claim, now))
	if pool := cluster.Pools.Get(snap, claim.Labels[v1.NodePoolLabelKey]); pool != nil {
		again = ztime.Sooner(again, lifecycle.Consolidatable(claim, pool, now))
		at, err := l.checkDrift(ctx, mine, driftInputOf(row.Claim, pool, snap, aged), claim, pool, now)
		again, errs = ztime.Sooner(again, at), append(errs, err)
	}
	if err := l.writeStatus(ctx, row.Claim, claim); err != nil {
		// the conditions were not written, so the checks must be repeated at the next look
		mine.drift, mine.drifted, mine.consistent = before.drift, before.drifted, before.consistent
		errs = append(errs, err)
	}
	return retryStale(again, errors.Join(errs...))
}

// hydrate gives claims and Nodes that an older release has created the label with the name of their node class.
func (l *Loop) hydrate(ctx context.Context, row *cluster.Node) error {
	ref := row.Claim.Spec.NodeClassRef
	key := v1.NodeClassLabelKey(ref.GroupKind())
	if row.Claim.Labels[key] == "" {
		claim := row.Claim.DeepCopy()
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, ref.Name)
		if err := l.Client.Patch(ctx, claim, client.MergeFrom(row.Claim)); err != nil {
			return fmt.Errorf("label claim %s: %w", row.Claim.Name, err)
		}
	}
	if row.Registered() && row.Node != nil && row.Node.Labels[key] == "" {
		node := row.Node.DeepCopy()
		metav1.SetMetaDataLabel(&node.ObjectMeta, key, ref.Name)
		if err := l.Client.Patch(ctx, node, client.MergeFrom(row.Node)); err != nil {
			return fmt.Errorf("label node %s: %w", row.Name, err)
		}
	}
	return nil
}

// stampPodEvent writes on the claim when a pod last came or went, if that is news. It sets mine.row to the row, with the claim as written,
// for the rest of keep and for comparison at the next look.
func (l *Loop) stampPodEvent(ctx context.Context, mine *kept, row *cluster.Node, now time.Time) error {
	at := lifecycle.PodEvent(mine.row, row, now)
	if !at.IsZero() {
		stamped := onlyStatus(row.Claim, &row.Claim.Status)
		stamped.Status.LastPodEventTime = metav1.NewTime(at.Truncate(time.Second))
		if err := l.Client.Status().Patch(ctx, stamped, client.MergeFrom(onlyStatus(row.Claim, &row.Claim.Status))); err != nil {
			return fmt.Errorf("write pod event of claim %s: %w", row.Claim.Name, err)
		}
		l.remember(stamped)
		again := *row
		again.Claim = stamped
		row = &again
	}
	mine.row = row
	return nil
}

// checkConsistency compares the Node with what was launched, once in consistencyEvery, and sets the condition on claim. It returns when to
// check again.
func (l *Loop) checkConsistency(ctx context.Context, mine *kept, row *cluster.Node, claim *v1.NodeClaim, now time.Time) time.Time {
	if mine.consistent.IsZero() {
		mine.consistent = now // so that the first check comes only after consistencyEvery, when the node has had time to start
	}
	next := mine.consistent.Add(consistencyEvery)
	if now.Before(next) {
		return next
	}
	if claim.Status.ProviderID == "" || row.Node == nil {
		return now.Add(consistencyEvery)
	}
	mine.consistent = now
	var issues []string
	for _, i := range lifecycle.Inconsistencies(claim, row.Node) {
		issues = append(issues, sentence.Inconsistency(i))
		l.reportInconsistent(ctx, claim, sentence.Inconsistency(i))
	}
	if len(issues) > 0 {
		condition.SetFalse(claim, v1.ConditionTypeConsistentStateFound, v1.ReasonConsistencyCheckFailed, strings.Join(issues, "; "), now)
	} else {
		condition.SetTrue(claim, v1.ConditionTypeConsistentStateFound, now)
	}
	return now.Add(consistencyEvery)
}

// driftInput is the part of what drift depends on that the snapshot shows. While it stays the same, drift is checked only once in
// driftEvery, because the provider has to be asked for the rest.
type driftInput struct {
	launched       metav1.ConditionStatus
	claim          string // its hash
	pool           types.UID
	poolGeneration int64
	poolHash       string
	class          *cluster.NodeClass // another pointer after every write to the class, also to its status
	standsIn       bool               // see rollout.StandsIn: such a claim has not drifted
	aged           bool               // it is older than expireAfter, and a RolloutPolicy lets budgets decide when it is replaced
}

// driftInputOf reads the driftInput of a claim.
func driftInputOf(claim *v1.NodeClaim, pool *v1.NodePool, snap *cluster.Snapshot, aged bool) driftInput {
	in := driftInput{
		claim: hashes(claim.Annotations), pool: pool.UID, poolGeneration: pool.Generation, poolHash: hashes(pool.Annotations),
		class: snap.NodeClass(claim.Spec.NodeClassRef), standsIn: rollout.StandsIn(snap, claim, pool), aged: aged,
	}
	if c := condition.Get(claim, v1.ConditionTypeLaunched); c != nil {
		in.launched = c.Status
	}
	return in
}

// hashes returns a text made of all annotations with "hash" in their key: that of the pool, and those that providers keep beside it.
func hashes(annotations map[string]string) string {
	of := map[string]string{}
	for k, v := range annotations {
		if strings.Contains(k, "hash") {
			of[k] = v
		}
	}
	return string(identity.Map(nil, of))
}

// checkDrift sets or clears the condition Drifted on claim, and returns when to check again. It does nothing while the last result is still
// good, or while the hash of the pool is of another version. A claim whose machine was not launched has not drifted. A claim past its age
// counts as drifted (Expired) if nothing else makes it so.
func (l *Loop) checkDrift(ctx context.Context, mine *kept, in driftInput, claim *v1.NodeClaim, pool *v1.NodePool,
	now time.Time) (time.Time, error) {
	if next := mine.drifted.Add(driftEvery); mine.drift == in && now.Before(next) {
		return next, nil
	}
	if drift.Stored(pool.Annotations).Version != drift.PoolHashVersion {
		// After an upgrade package pool writes new hashes, first to the claims and then to the pool. Until then they cannot be compared,
		// so the condition stays unchanged. The new hash of the pool brings the next look.
		return time.Time{}, nil
	}
	var reason string
	if in.launched == metav1.ConditionTrue {
		var err error
		if in.standsIn {
			reason = ""
		} else if reason, err = l.driftReason(ctx, mine, claim, pool, now); err != nil {
			return time.Time{}, err
		}
		if reason == "" && in.aged {
			reason = v1.ReasonExpired
		}
	}
	mine.drift, mine.drifted = in, now
	if reason == "" {
		condition.Clear(claim, v1.ConditionTypeDrifted, now)
	} else {
		condition.Set(claim, metav1.Condition{
			Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: reason, Message: reason,
		}, now)
	}
	return now.Add(driftEvery), nil
}
