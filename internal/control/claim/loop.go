// Package claim carries a NodeClaim through its life: it launches the machine, joins it with its Node, keeps the conditions
// that disruption reads, and ends it when the claim is deleted.
//
// core/lifecycle and core/drift decide what a claim needs; this package does it. Claims of node classes that this provider does not serve
// are never touched.
//
// There are two queues of claims (Run): live, from launch to deletion, is in loop.go and the files that it calls; keep, which looks after
// running nodes, is in upkeep.go. act.go has the writes of both.
package claim

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// lifeName is the name of the loop that brings claims to life, in metrics and the journal.
const lifeName = "nodeclaim.lifecycle"

// Deps are what the loop works with.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client
	Cloud   cloud.Provider
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Journal *journal.Journal // may be nil
	// Known is what the core and the provider know about labels.
	Known *label.Vocabulary
	// Health counts which claims of a pool registered and got ready.
	Health Health
	// Hint is called just before a node loses the last taint that keeps pods from it. It may be nil.
	Hint func(ctx context.Context, node string)
	// Suspect is called when a machine may have been launched for a claim without its provider id being on the claim. It may be nil.
	Suspect func(claim string)
	// Corrected applies the NodeOverlays that are in force to the catalogue of a pool. It may be nil.
	Corrected func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog
	// Definition watches the definition of NodeClaims. While that is gone, no node is drained. It may be nil.
	Definition *definition.Watch
}

// Settings of the loop. The zero value is the documented behaviour.
type Settings struct {
	lifecycle.Settings
	Workers int // steps at the same time; default 1000
	// Devices says that ResourceSlices are watched. Then a node is initialised only once the drivers that its claim asks for have
	// published their devices.
	Devices bool
	// RegistrationHook asks the provider whether a Node may be registered: it returns what the provider still does, "" if nothing, and
	// when to ask again. It may be nil.
	RegistrationHook func(ctx context.Context, claim *v1.NodeClaim) (pending string, again time.Duration)
	// Settled reports whether it is certain that no machine is left of a deleted claim whose status names none; if it finds one, it
	// stops it. It may be nil.
	Settled func(ctx context.Context, claim *v1.NodeClaim) (bool, error)
}

// Health counts registrations by pool.
type Health interface {
	Registered(claim *v1.NodeClaim)
	NotRegistered(claim *v1.NodeClaim)
	// Ready is called for machines that were initialised, NeverReady for those that were not in their time. Both may be called more than
	// once for the same machine.
	Ready(claim *v1.NodeClaim)
	NeverReady(claim *v1.NodeClaim)
}

// Loop looks after all claims.
type Loop struct {
	Deps
	settings Settings
	launches notes[launch]
	upkeep   notes[kept]
}

// New returns a loop that has not started.
func New(d Deps, s Settings) *Loop {
	if s.Workers <= 0 {
		s.Workers = 1000
	}
	if s.Words == nil {
		s.Words, s.RebootWords = sentence.Lack, sentence.Reboot
	}
	return &Loop{Deps: d, settings: s}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	var errs [2]error
	wait.Go(func() {
		errs[0] = workqueue.Work[version]{
			Workers: l.settings.Workers, Rows: l.rows, Step: l.live, Forget: l.launches.forget, Name: lifeName, Metrics: l.Metrics,
		}.Run(ctx, l.Store)
	})
	wait.Go(func() {
		errs[1] = workqueue.Work[upkeepVersion]{
			Workers: min(l.settings.Workers, 100), Rows: l.upkeepRows, Step: l.keep, Forget: l.upkeep.forget,
			Name: "nodeclaim.disruption", Metrics: l.Metrics,
		}.Run(ctx, l.Store)
	})
	wait.Wait()
	return errors.Join(errs[:]...)
}

// version is all that the next step of a claim depends on. The queue calls live again when it changes.
type version struct {
	claim *v1.NodeClaim
	node  *corev1.Node
	nodes int // with the claim's provider id; more than one is a mistake
	// unpublished names the drivers that have not published their devices yet, separated by commas.
	unpublished string
	occupied    bool // see Loop.occupied
}

// rows returns the claims that this provider serves, by name, with their versions; none while the snapshot is incomplete.
func (l *Loop) rows(snap *cluster.Snapshot) iter.Seq2[string, version] {
	return func(yield func(string, version) bool) {
		if !snap.Synced() {
			return
		}
		for row := range snap.Nodes() {
			if !l.managed(row) {
				continue
			}
			v := version{claim: row.Claim, node: row.Node, unpublished: strings.Join(l.unpublished(snap, row), ",")}
			if row.Node != nil {
				v.occupied = l.occupied(row)
				v.nodes = len(snap.NodesWithProviderID(row.ProviderID))
			}
			if !yield(row.Claim.Name, v) {
				return
			}
		}
	}
}

// unpublished returns the drivers that keep a node from being initialized, because they have not published their devices of it yet.
func (l *Loop) unpublished(snap *cluster.Snapshot, row *cluster.Node) []string {
	if !l.settings.Devices || row.Node == nil || row.Initialized() {
		return nil
	}
	return lifecycle.Unpublished(row.Claim, row.Node.Name, cluster.ResourceSlices.All(snap))
}

// managed reports whether a row has a claim of a node class that this provider serves.
func (l *Loop) managed(row *cluster.Node) bool {
	return row.Claim != nil && cloud.Serves(l.Cloud, row.Claim.Spec.NodeClassRef)
}

// live takes one step in the life of a claim, and returns when to look again if nothing changes; zero for never.
func (l *Loop) live(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	row := snap.ClaimNode(name)
	if row == nil || row.Claim == nil {
		return time.Time{}, nil
	}
	v := lifecycle.View{Claim: row.Claim, NeedsOpenNode: l.settings.HoldTaint > 0 && needsOpenNode(snap),
		Unpublished: l.unpublished(snap, row), Occupied: l.occupied(row)}
	if id := row.Claim.Status.ProviderID; id != "" {
		v.Nodes = snap.NodesWithProviderID(id)
	}
	if row.Claim.DeletionTimestamp != nil {
		return retryStale(l.end(ctx, v))
	}
	return retryStale(l.next(ctx, v))
}

// needsOpenNode reports whether the cluster has a DaemonSet for which the unregistered taint must not stay after registration.
func needsOpenNode(snap *cluster.Snapshot) bool {
	for ds := range cluster.DaemonSets.All(snap) {
		if lifecycle.NeedsOpenNode(ds) {
			return true
		}
	}
	return false
}

// next takes a step of a claim that is not being deleted. It asks the provider's registration hook first, if that is due, since
// lifecycle.Next makes no calls.
func (l *Loop) next(ctx context.Context, v lifecycle.View) (time.Time, error) {
	var again time.Time
	if l.settings.RegistrationHook != nil && lifecycle.AsksHooks(v) {
		pending, wait := l.settings.RegistrationHook(ctx, v.Claim)
		if v.PendingHook = pending; pending != "" {
			again = time.Now().Add(wait)
		}
	}
	step := lifecycle.Next(v, time.Now(), l.settings.Settings)
	step.Until = ztime.Sooner(step.Until, again)
	if l.Hint != nil && step.Kind == lifecycle.Write && slices.Contains(step.Reached, lifecycle.Opened) {
		l.Hint(ctx, step.Node.Name)
		// Hint may take seconds. The step is made again so that its times say when pods could really come.
		step = lifecycle.Next(v, time.Now(), l.settings.Settings)
	}
	step = l.booting(ctx, v, step)
	if step.Overdue {
		l.Health.NeverReady(v.Claim)
	}
	switch step.Kind {
	case lifecycle.Prepare:
		return time.Time{}, l.writeMeta(ctx, v.Claim, step.Claim)
	case lifecycle.Launch:
		return l.launch(ctx, step)
	case lifecycle.Write:
		return step.Until, l.write(ctx, v, step)
	case lifecycle.Reboot:
		return l.reboot(ctx, v)
	case lifecycle.GiveUp:
		l.countFailed(step.Claim, step.Reason == lifecycle.RegistrationTimeout || step.Reason == lifecycle.GarbageCollected)
		return time.Time{}, l.remove(ctx, v.Claim, step.Reason, 0)
	}
	return step.Until, nil
}
