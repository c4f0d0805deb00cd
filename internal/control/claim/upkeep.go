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

// How often what cannot be seen in the cluster is looked at again.
const (
	driftEvery       = 5 * time.Minute
	consistencyEvery = 10 * time.Minute
)

// kept is what was last looked at of a claim.
type kept struct {
	row        *cluster.Node // at the last look
	drift      driftInput    // of the last answer
	drifted    time.Time     // when it was given
	consistent time.Time     // when consistency was last checked
	typeKnown  time.Time     // when the instance type was last seen in the catalogue
}

// upkeepVersion is what decides about the conditions that disruption reads, and about expiry.
type upkeepVersion struct {
	row   *cluster.Node
	pool  *v1.NodePool
	class *cluster.NodeClass
	// rollouts are the generations of RolloutPolicies, which say when claims expire, and the pools that they have stopped.
	rollouts string
}

// rolloutsOf returns the generations of the RolloutPolicies with the pools that they have stopped, "" where there are none.
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

// keep looks at one claim: has it reached its greatest age, drifted, been quiet for long enough, and is its node what was launched?
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
	next := *row.Claim // shares all that is only replaced, never changed
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
		// what was found is not written down: look again
		mine.drift, mine.drifted, mine.consistent = before.drift, before.drifted, before.consistent
		errs = append(errs, err)
	}
	return retryStale(again, errors.Join(errs...))
}

// hydrate gives claims and nodes of older releases the label that names their node class.
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

// stampPodEvent writes when a pod last came or went.
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

// checkConsistency compares node and claim, now and then.
func (l *Loop) checkConsistency(ctx context.Context, mine *kept, row *cluster.Node, claim *v1.NodeClaim, now time.Time) time.Time {
	if mine.consistent.IsZero() {
		mine.consistent = now // the first look comes when the node has had time to start
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

// driftInput is what the cluster knows of what drift depends on. The rest is the cloud's and is asked for now and then.
type driftInput struct {
	launched       metav1.ConditionStatus
	claim          string // its hash
	pool           types.UID
	poolGeneration int64
	poolHash       string
	class          *cluster.NodeClass // a new one with every write: what a class resolves to stands in its status
	standsIn       bool               // it is made from the state that passed last, while the rollout of its pool is stopped
	aged           bool               // it is older than expireAfter, and its RolloutPolicy has it replaced within budgets
}

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

// hashes are the values of the annotations that are not ours alone: providers keep their own hashes beside the pool's.
func hashes(annotations map[string]string) string {
	of := map[string]string{}
	for k, v := range annotations {
		if strings.Contains(k, "hash") {
			of[k] = v
		}
	}
	return string(identity.Map(nil, of))
}

// checkDrift sets or clears the Drifted condition.
func (l *Loop) checkDrift(ctx context.Context, mine *kept, in driftInput, claim *v1.NodeClaim, pool *v1.NodePool,
	now time.Time) (time.Time, error) {
	if next := mine.drifted.Add(driftEvery); mine.drift == in && now.Before(next) {
		return next, nil
	}
	if drift.Stored(pool.Annotations).Version != drift.PoolHashVersion {
		// The hashes are being restamped, claim by claim and then the pool. What has drifted must stay so meanwhile; the
		// pool's new stamp brings the next look.
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
