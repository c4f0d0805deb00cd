// Package gc finds what a crash, a lost answer or an operator has left over: machines without a claim, Nodes without a machine,
// claims whose machine is gone.
//
// Orphans that are most of all machines are a mistake until an operator says otherwise: they are latched, in memory
// and with the cloud, and stay until their claim returns or a person decides.
//
// A machine that our picture of the cluster knows no claim of is looked for at the API server itself before it is stopped, because a
// picture that lags behind would cost a healthy machine.
package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// How often machines are looked for. After a start, and whenever a launch ended in doubt, it is often enough to find an
// orphan within a minute.
const (
	quickInterval = 10 * time.Second
	quickRuns     = 20
	slowInterval  = 2 * time.Minute
	keptInterval  = 30 * time.Second // an operator waits to see the outcome
	retryInterval = 30 * time.Second // after a round that failed, and may have left a machine
	claimsTurn    = 2 * time.Minute
	atOnce        = 20
	pageSize      = 500
	// doubtLife is how long machines are expected of claims that were in doubt: the cloud may be silent about a
	// launch for minutes, and then not show what came of it.
	doubtLife = 15 * time.Minute
)

// Names of the two loops in logs and metrics.
const (
	machinesName = "instance.garbagecollection"
	claimsName   = "nodeclaim.garbagecollection"
)

// Deps are what the loop works with. Client must ask the API server, not a cache.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client
	Cloud   cloud.Provider
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
}

// Loop collects garbage.
type Loop struct {
	Deps
	suspect chan struct{}
	awaited bool                 // the last list has a machine that may soon be known to be an orphan
	latched map[string]bool      // by provider id: orphans that the last round kept
	alone   map[string]time.Time // by provider id: since when machines of Provisioners are known to have no Node

	mu      sync.Mutex
	doubted map[string]time.Time // by name of a claim: when it was last in doubt whether it has a machine
}

// New returns a loop that has not started.
func New(d Deps) *Loop {
	return &Loop{Deps: d, suspect: make(chan struct{}, 1), doubted: map[string]time.Time{}}
}

// Suspect says that a machine may have been launched for a claim which does not know of it. It never waits.
func (l *Loop) Suspect(claim string) {
	l.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(l.doubted, func(_ string, at time.Time) bool { return now.Sub(at) > doubtLife })
	l.doubted[claim] = now
	l.mu.Unlock()
	select {
	case l.suspect <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, claimsName)
	if !l.synced(ctx) {
		return nil
	}
	var wait sync.WaitGroup
	wait.Go(func() { l.watchMachines(telemetry.WithController(ctx, machinesName)) })
	wait.Go(func() { l.watchClaims(ctx) })
	wait.Wait()
	return nil
}

// synced waits until the store knows the cluster.
func (l *Loop) synced(ctx context.Context) bool {
	for {
		snap := l.Store.Snapshot()
		if snap.Synced() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-snap.Stale():
		}
	}
}

func (l *Loop) watchMachines(ctx context.Context) {
	watched := l.Metrics.Loop(machinesName, 1)
	defer l.Metrics.End(watched)
	left := quickRuns
	last, failed := time.Now(), false // when the last round ended, and whether it failed
	for {
		wait := slowInterval
		if failed {
			wait = retryInterval
		}
		if len(l.latched) > 0 {
			wait = keptInterval
		}
		if left > 0 {
			wait = quickInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-l.suspect: // however often it comes, it does not put off the next round
			left = max(left, quickRuns/2)
		case <-time.After(time.Until(last.Add(wait))):
			left = max(left-1, 0)
			failed = !l.turn(ctx, watched, "looking for machines without claim", l.machines)
			if l.awaited {
				left = max(left, 1)
			}
			last = time.Now()
		}
	}
}

func (l *Loop) watchClaims(ctx context.Context) {
	watched := l.Metrics.Loop(claimsName, 1)
	defer l.Metrics.End(watched)
	for watched.Wait(ctx, claimsTurn, nil) {
		l.turn(ctx, watched, "looking for claims without machine", l.claims)
	}
}

// turn does one round and reports whether it succeeded. A panic costs the round and nothing else.
func (l *Loop) turn(ctx context.Context, watched *telemetry.Loop, what string, round func(context.Context) error) bool {
	err := watched.Turn(ctx, what, round)
	if err != nil && ctx.Err() == nil {
		telemetry.Log(ctx).Error(what+" failed", "error", err)
	}
	return err == nil
}

// machines stops machines without claims. The machines are listed first: a claim that is created afterwards has none of
// them.
func (l *Loop) machines(ctx context.Context) error {
	machines, err := l.Cloud.List(ctx)
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	l.awaited = slices.ContainsFunc(machines, func(m cloud.Machine) bool { return m.Awaited })
	seen := claimIndex{}
	for row := range l.Store.Snapshot().Nodes() {
		if row.Claim != nil {
			seen.add(row.Claim)
		}
	}
	suspects, untaken := l.inherit(ctx, seen.orphans(machines), seen)
	if len(suspects) == 0 && (untaken != nil || !slices.ContainsFunc(machines, func(m cloud.Machine) bool { return m.Latched })) {
		return untaken
	}
	known, err := l.known(ctx)
	if err != nil {
		return errors.Join(untaken, err)
	}
	orphans, err := l.judge(ctx, machines, known.orphans(suspects), known)
	return errors.Join(append(parallel.Of(orphans, atOnce, machineOf,
		func(m cloud.Machine) error { return l.stopOrphan(ctx, m) }), err, untaken)...)
}

// known returns the claims that the API server has, page by page: there may be thousands, with hundreds of instance types each.
func (l *Loop) known(ctx context.Context) (claimIndex, error) {
	known := claimIndex{}
	for next, more := "", true; more; more = next != "" {
		var list v1.NodeClaimList
		if err := l.Client.List(ctx, &list, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list claims: %w", err)
		}
		for i := range list.Items {
			c := &list.Items[i]
			known.add(&v1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: c.Name, DeletionTimestamp: c.DeletionTimestamp,
					Annotations: c.Annotations}, Status: v1.NodeClaimStatus{ProviderID: c.Status.ProviderID},
			})
		}
		next = list.Continue
	}
	return known, nil
}

// A claimIndex finds claims by what machines say of them.
type claimIndex map[claimKey]*v1.NodeClaim

type claimKey struct{ name, providerID, adopts string } // one of them

func (x claimIndex) add(c *v1.NodeClaim) {
	x[claimKey{name: c.Name}] = c
	if id := c.Status.ProviderID; id != "" {
		x[claimKey{providerID: id}] = c
	}
	if id := c.Annotations[v1.AdoptsAnnotationKey]; id != "" && c.Status.ProviderID == "" {
		x[claimKey{adopts: id}] = c
	}
}

// orphans are the machines that none of the claims answers for.
func (x claimIndex) orphans(machines []cloud.Machine) []cloud.Machine {
	var out []cloud.Machine
	for _, m := range machines {
		if lifecycle.Orphaned(m, x[claimKey{providerID: m.ProviderID}], x[claimKey{name: m.ClaimName}], time.Now()) {
			out = append(out, m)
		}
	}
	return out
}

// stopOrphan stops a machine without claim, and removes its Node, which nothing else will.
func (l *Loop) stopOrphan(ctx context.Context, m cloud.Machine) error {
	if err := l.Cloud.Terminate(ctx, m.ProviderID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("terminate machine %s: %w", m.ProviderID, err)
	}
	telemetry.Log(ctx).Info("garbage collected a machine without nodeclaim", "provider-id", m.ProviderID, "NodeClaim", m.ClaimName)
	l.Metrics.MachinesOrphaned.WithLabelValues("terminated").Inc()
	var errs []error
	for _, n := range l.Store.Snapshot().NodesWithProviderID(m.ProviderID) {
		errs = append(errs, l.deleteNode(ctx, n))
	}
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// claims deletes claims whose machine is gone. A claim whose Node is ready is never one of them, whatever the cloud says; and one
// that is not registered is left to the loop that looks after its life, because a new machine may not be listed yet.
func (l *Loop) claims(ctx context.Context) error {
	var candidates []*cluster.Node
	for row := range l.Store.Snapshot().Nodes() {
		if l.live(row) {
			candidates = append(candidates, row)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	machines, err := l.Cloud.List(ctx)
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	running := map[string]bool{}
	for _, m := range machines {
		running[m.ProviderID] = !m.Deleting
	}
	var lost []*cluster.Node
	for _, row := range candidates {
		if !running[row.Claim.Status.ProviderID] && !l.nodeReady(row) {
			lost = append(lost, row)
		}
	}
	return errors.Join(parallel.Of(lost, atOnce, claimOf, func(row *cluster.Node) error { return l.deleteLost(ctx, row) })...)
}

// live claims have had a Node, are of our provider, and are not being deleted.
func (l *Loop) live(row *cluster.Node) bool {
	c := row.Claim
	return c != nil && c.DeletionTimestamp == nil && c.Status.ProviderID != "" && cloud.Serves(l.Cloud, c.Spec.NodeClassRef) &&
		condition.IsTrue(c, v1.ConditionTypeRegistered)
}

// nodeReady reports whether the claim has one Node and that is ready.
func (l *Loop) nodeReady(row *cluster.Node) bool {
	nodes := l.Store.Snapshot().NodesWithProviderID(row.Claim.Status.ProviderID)
	return len(nodes) == 1 && lifecycle.ReadyStatus(nodes[0]) == corev1.ConditionTrue
}

func machineOf(m cloud.Machine) string { return "collecting machine " + m.ProviderID }

func claimOf(row *cluster.Node) string { return "collecting NodeClaim " + row.Claim.Name }

// deleteLost deletes a claim after the cloud has been asked for this very machine: a list may be incomplete.
func (l *Loop) deleteLost(ctx context.Context, row *cluster.Node) error {
	c := row.Claim
	m, err := l.Cloud.Get(ctx, c.Status.ProviderID)
	if err == nil && !m.Deleting {
		return nil
	}
	if err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("get machine %s: %w", c.Status.ProviderID, err)
	}
	if err := l.Client.Delete(ctx, c.DeepCopy(), client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}); err != nil {
		return ignoreGone(err) // if the claim has changed, the next round looks again
	}
	telemetry.Log(ctx).Info("garbage collected a nodeclaim without machine", "NodeClaim", c.Name, "provider-id",
		c.Status.ProviderID, "Node", row.Name)
	l.Metrics.Disrupted(c, string(lifecycle.GarbageCollected), "", movable.Count(row.Pods))
	return nil
}
