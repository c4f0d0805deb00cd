// Package gc finds what a crash, a lost answer or an operator has left over: machines without a claim (orphans), Nodes without a machine,
// claims whose machine is gone.
//
// If most of all machines are orphans, that is taken for a mistake: they are latched (marked as kept, in memory and at the cloud), and
// stay until their claims return or an operator decides.
//
// Before a machine without a claim in the snapshot is stopped, the API server is asked for its claim: a snapshot that lags behind must
// not cost a healthy machine.
//
// Files: gc.go has the two loops, for machines and for claims; orphans.go decides about orphans; inherit.go takes over machines that a
// Karpenter with Provisioners (before NodeClaims) launched.
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

// How often machines and claims are looked for. After a start, and after a launch whose answer was lost, rounds are quick, so that an
// orphan is found within a minute.
const (
	quickInterval = 10 * time.Second
	quickRuns     = 20 // quick rounds after a start
	slowInterval  = 2 * time.Minute
	keptInterval  = 30 * time.Second // while machines are latched: an operator waits to see the outcome
	retryInterval = 30 * time.Second // after a round that failed
	claimsTurn    = 2 * time.Minute  // between two rounds for claims
	atOnce        = 20               // machines or claims that a round works on at the same time
	pageSize      = 500
	// doubtLife is how long a claim that was in doubt may have a second machine: a cloud may take minutes to answer a launch, and longer
	// to list its machine.
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

// Suspect notes that a machine may have been launched for a claim that does not name it, and makes the next rounds quick. It never
// blocks.
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
	if !l.waitForSync(ctx) {
		return nil
	}
	var wait sync.WaitGroup
	wait.Go(func() { l.watchMachines(telemetry.WithController(ctx, machinesName)) })
	wait.Go(func() { l.watchClaims(ctx) })
	wait.Wait()
	return nil
}

// waitForSync waits until the store has read the whole cluster. It returns false if ctx ended first.
func (l *Loop) waitForSync(ctx context.Context) bool {
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

// watchMachines looks for orphans until ctx ends: quickly after a start, after Suspect and while machines are awaited, else slowly.
func (l *Loop) watchMachines(ctx context.Context) {
	watched := l.Metrics.Loop(machinesName, 1)
	defer l.Metrics.End(watched)
	left := quickRuns                 // quick rounds
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
		case <-l.suspect: // the next round counts from the last one, so repeated suspicions do not delay it
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

// watchClaims looks for claims whose machine is gone until ctx ends.
func (l *Loop) watchClaims(ctx context.Context) {
	watched := l.Metrics.Loop(claimsName, 1)
	defer l.Metrics.End(watched)
	for watched.Wait(ctx, claimsTurn, nil) {
		l.turn(ctx, watched, "looking for claims without machine", l.claims)
	}
}

// turn does one round and reports whether it succeeded. A panic ends only the round.
func (l *Loop) turn(ctx context.Context, watched *telemetry.Loop, what string, round func(context.Context) error) bool {
	err := watched.Turn(ctx, what, round)
	if err != nil && ctx.Err() == nil {
		telemetry.Log(ctx).Error(what+" failed", "error", err)
	}
	return err == nil
}

// machines is one round for machines: it takes over inherited ones, and latches or stops the orphans. Machines are listed before
// claims, so that a claim which is created in between cannot make its machine an orphan.
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

// known reads the claims from the API server, page by page, and keeps of each only what the index needs: there may be thousands, with
// hundreds of instance types each.
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

// A claimIndex finds claims by their name, by the machine that they have, and by the machine that they are to take over.
type claimIndex map[claimKey]*v1.NodeClaim

// A claimKey has one of its fields set, so that one map holds all three indexes.
type claimKey struct{ name, providerID, adopts string }

func (x claimIndex) add(c *v1.NodeClaim) {
	x[claimKey{name: c.Name}] = c
	if id := c.Status.ProviderID; id != "" {
		x[claimKey{providerID: id}] = c
	}
	if id := c.Annotations[v1.AdoptsAnnotationKey]; id != "" && c.Status.ProviderID == "" {
		x[claimKey{adopts: id}] = c
	}
}

// orphans returns the machines that belong to none of the claims.
func (x claimIndex) orphans(machines []cloud.Machine) []cloud.Machine {
	var out []cloud.Machine
	for _, m := range machines {
		if lifecycle.Orphaned(m, x[claimKey{providerID: m.ProviderID}], x[claimKey{name: m.ClaimName}], time.Now()) {
			out = append(out, m)
		}
	}
	return out
}

// stopOrphan stops a machine without a claim, and deletes its Nodes, which no other loop does.
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

// ignoreGone returns nil if the object is gone or has changed: the next round looks again.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// claims is one round for claims: it deletes claims whose machine the cloud does not have. A claim with a ready Node stays even then. A
// claim that is not registered is left to control/claim, because a new machine may not be listed yet.
func (l *Loop) claims(ctx context.Context) error {
	var candidates []*cluster.Node
	for row := range l.Store.Snapshot().Nodes() {
		if l.mayBeLost(row) {
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

// mayBeLost reports whether a claim is looked at for a missing machine: it is registered, belongs to our provider, and is not being
// deleted.
func (l *Loop) mayBeLost(row *cluster.Node) bool {
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

// deleteLost deletes a claim unless the cloud, asked for this machine alone, still has it: the list may have been incomplete.
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
