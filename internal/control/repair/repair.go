// Package repair is the node repair of Karpenter before 1.15, for the setting legacy-node-repair. Without the setting, broken nodes are
// replaced by package disruption, within budgets.
//
// A node is broken if it has had a condition of one of the provider's repair policies for longer than the policy tolerates. Its claim
// is deleted with a deadline that has passed, because pods on a broken machine neither leave nor answer. Provisioning plans for its
// pods as for those of every node that goes.
//
// Neither budgets nor do-not-disrupt hold a repair back. But if many nodes are broken at once, their machines are probably not the
// cause, and nothing is repaired. Before a claim is deleted, the API server is asked whether the node is still broken.
package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// blockedWait is how long a repair waits if too many nodes are broken.
	blockedWait = 5 * time.Minute
	// unfedWait is how long a repair waits if the snapshot is no longer updated.
	unfedWait = time.Minute
	// haltedWait is how long a repair waits if disruption is paused. The end of a pause does not wake this loop.
	haltedWait = 10 * time.Second
	// staleWait is how long a newer snapshot may take to arrive.
	staleWait = time.Second
	workers   = 10
)

// name is this loop's name in metrics and the journal.
const name = "node.health"

// Deps are what the loop works with.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client // asks the API server, not a cache
	Cloud   cloud.Provider
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Journal *journal.Journal // may be nil
}

// Loop looks for broken machines.
type Loop struct {
	Deps
	policies []cloud.RepairPolicy
}

// New returns a loop that has not started.
func New(d Deps) *Loop { return &Loop{d, d.Cloud.RepairPolicies()} }

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	return workqueue.Work[version]{Name: name, Metrics: l.Metrics, Workers: workers, Rows: l.rows, Step: l.look}.Run(ctx, l.Store)
}

// version is the rows that decide about a repair: if one of them changes, the node is looked at again.
type version struct {
	claim *v1.NodeClaim
	node  *corev1.Node
}

// rows yields our nodes with claims, as workqueue asks.
func (l *Loop) rows(snap *cluster.Snapshot) iter.Seq2[string, version] {
	return func(yield func(string, version) bool) {
		if !snap.Synced() {
			return
		}
		for row := range snap.Nodes() {
			if l.ours(row) && !yield(row.Claim.Name, version{row.Claim, row.Node}) {
				return
			}
		}
	}
}

// ours reports whether a row has a Node and a claim with a node class that our provider serves.
func (l *Loop) ours(row *cluster.Node) bool {
	return row.Claim != nil && row.Node != nil && cloud.Serves(l.Cloud, row.Claim.Spec.NodeClassRef)
}

// look repairs one node if it is broken, due and nothing holds the repair back. It returns when to look again if nothing changes, zero
// for never.
func (l *Loop) look(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	row := snap.ClaimNode(name)
	if row == nil || !l.ours(row) {
		return time.Time{}, nil
	}
	now := time.Now()
	ailment, ok := lifecycle.Ailing(row.Node, l.policies)
	switch {
	case !ok || row.Claim.DeletionTimestamp != nil && overdue(row.Claim, now):
		return time.Time{}, nil
	case now.Before(ailment.Due):
		return ailment.Due, nil
	case lifecycle.RepairForbidden(row.Node, row.Claim) != "":
		l.Events.Tell(telemetry.Refs(row.Node, row.Claim), telemetry.DisruptionBlocked, "the node is broken, but the "+
			lifecycle.RepairForbidden(row.Node, row.Claim)+" has the annotation "+v1.DoNotRepairAnnotationKey+"=true")
		return time.Time{}, nil
	case !snap.Fed():
		return now.Add(unfedWait), nil
	}
	if _, halted := paused.Node(l.Store.Snapshot(), row, now); halted {
		return now.Add(haltedWait), nil
	}
	if ailing, all := l.group(snap, poolOf(row)); lifecycle.TooManyAil(ailing, all) {
		l.reportBlocked(row, cluster.Pools.Get(snap, poolOf(row)), ailing, all)
		return now.Add(blockedWait), nil
	}
	err := l.confirm(ctx, row.Node, now)
	if err == nil {
		err = l.repair(ctx, row, ailment, now)
	}
	if errors.Is(err, errRecovered) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return now.Add(staleWait), nil // the snapshot is old
	}
	return time.Time{}, err
}

// overdue reports whether the claim's termination deadline has passed, so that its drain waits for nothing.
func overdue(claim *v1.NodeClaim, now time.Time) bool {
	deadline, err := lifecycle.Deadline(claim)
	return err == nil && !deadline.IsZero() && !deadline.After(now)
}

// poolOf returns the pool of a node, "" if it has none. The label of the claim counts, if there is a claim, because a node may change
// its own labels.
func poolOf(row *cluster.Node) string {
	if row.Claim != nil {
		return row.Claim.Labels[v1.NodePoolLabelKey]
	}
	return row.Node.Labels[v1.NodePoolLabelKey]
}

// group counts the nodes of a pool, or of the whole cluster if pool is "", and how many of them have a bad condition (ailing), even if
// only for a short time.
func (l *Loop) group(snap *cluster.Snapshot, pool string) (ailing, all int) {
	for row := range snap.Nodes() {
		if row.Node == nil || pool != "" && poolOf(row) != pool {
			continue
		}
		all++
		if _, ok := lifecycle.Ailing(row.Node, l.policies); ok {
			ailing++
		}
	}
	return ailing, all
}

var errRecovered = errors.New("the node is not what it was")

// confirm asks the API server whether the node is still broken.
func (l *Loop) confirm(ctx context.Context, known *corev1.Node, now time.Time) error {
	var node corev1.Node
	if err := l.Client.Get(ctx, client.ObjectKeyFromObject(known), &node); err != nil {
		return fmt.Errorf("ask for node %s: %w", known.Name, err)
	}
	if ailment, ok := lifecycle.Ailing(&node, l.policies); !ok || ailment.Due.After(now) {
		return errRecovered
	}
	return nil
}

// repair writes a deadline of now on the claim, so that its drain waits for nothing, and deletes it. A claim that is being deleted
// already gets only the deadline.
func (l *Loop) repair(ctx context.Context, row *cluster.Node, ailment lifecycle.Ailment, now time.Time) error {
	claim := &v1.NodeClaim{ObjectMeta: row.Claim.ObjectMeta}
	if !overdue(claim, now) {
		stamped := lifecycle.WithDeadline(claim, now)
		if err := l.Client.Patch(ctx, stamped, patch.Over(claim)); err != nil {
			return fmt.Errorf("write the deadline of claim %s: %w", claim.Name, err)
		}
		claim = stamped
	}
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if err := l.Client.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID,
		ResourceVersion: &claim.ResourceVersion}); err != nil {
		return fmt.Errorf("delete claim %s: %w", claim.Name, err)
	}
	l.reportRepair(ctx, row, claim, ailment, now)
	return nil
}

// reportRepair reports a repair: log, journal, metrics, and events on the node and its claim. stamped has the deadline, from which the
// metric tells how hard the drain is.
func (l *Loop) reportRepair(ctx context.Context, row *cluster.Node, stamped *v1.NodeClaim, ailment lifecycle.Ailment, now time.Time) {
	pods := movable.Count(row.Pods)
	telemetry.Log(ctx).Info("deleting nodeclaim", "NodeClaim", row.Claim.Name, "reason", string(lifecycle.BrokenNode), "pods", pods,
		"condition", ailment.Condition.Type, "status", ailment.Condition.Status)
	l.Journal.Add(journal.Record{
		Act: journal.Repaired, Loop: name, Reason: string(lifecycle.BrokenNode), Evictions: pods, About: about(row),
		Text: fmt.Sprintf("%s has been %s since %s", ailment.Condition.Type, ailment.Condition.Status,
			ailment.Condition.LastTransitionTime.UTC().Format(time.RFC3339)),
	})
	gone := *row.Claim
	gone.ObjectMeta = stamped.ObjectMeta
	l.Metrics.Disrupted(&gone, string(lifecycle.BrokenNode), "", pods)
	l.Metrics.Unhealthy(row.Node, row.Claim, ailment.Condition.Type, new(time.Duration))
	l.Events.Tell(telemetry.Refs(row.Node, row.Claim), telemetry.DisruptionTerminating,
		fmt.Sprintf("disrupting the node: Unhealthy, %s has been %s for %s (%s)",
			ailment.Condition.Type, ailment.Condition.Status,
			now.Sub(ailment.Condition.LastTransitionTime.Time).Round(time.Second), ailment.Condition.Message))
}

// reportBlocked publishes events that a broken node stays because too many nodes are broken.
func (l *Loop) reportBlocked(row *cluster.Node, pool *v1.NodePool, ailing, all int) {
	of, concerned := "the cluster", telemetry.Refs(row.Node, row.Claim)
	if own := poolOf(row); own != "" {
		of = "NodePool " + own
	}
	if pool != nil {
		concerned = append(concerned, telemetry.PoolRef(pool))
	}
	l.Events.Tell(concerned, telemetry.NodeRepairBlocked, fmt.Sprintf(
		"The node is broken and stays: %d of %d nodes of %s are, more than a fifth, so it is hardly the machines. "+
			"Looking again in %s.", ailing, all, of, blockedWait))
}

func about(row *cluster.Node) []journal.Object {
	return []journal.Object{{Kind: "NodeClaim", Name: row.Claim.Name}, {Kind: "Node", Name: row.Name},
		{Kind: "NodePool", Name: poolOf(row)}}
}
