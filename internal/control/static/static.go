// Package static keeps the number of nodes of static pools, which have a field replicas: it opens missing nodes and deletes surplus ones.
// core/static decides which. Drifted nodes of such pools are replaced by control/disruption.
package static

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/static"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// poolInterval is how often a pool is looked at although nothing changed: a change of what it may buy is no event in the cluster.
	poolInterval = time.Minute
	// retryDelay is how soon a pool is looked at again if it could not get its nodes.
	retryDelay = 30 * time.Second
	// unfedWait is how soon a pool with surplus nodes is looked at again if the snapshot is no longer updated.
	unfedWait = 5 * time.Second
	// opened is the reason of claims in metrics.
	opened = "provisioned"
)

// catalogs gives the instance types of pools.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// opener creates claims.
type opener interface {
	Open(ctx context.Context, seed, reason string, openings []engine.Opening) ([]*v1.NodeClaim, error)
}

// planner plans new nodes.
type planner interface {
	Plan(in engine.Question) *engine.Plan
}

// Deps are what the loop works with.
type Deps struct {
	Store    *cluster.Store
	Client   client.Client
	Catalogs catalogs
	Opener   opener
	Engine   planner // nothing else's
	Metrics  *telemetry.Metrics
	Events   *telemetry.Events
}

// Loop keeps the number of nodes of every static pool.
type Loop struct {
	Deps
	settings engine.Settings

	planning sync.Mutex // the engine answers one at a time

	mu      sync.Mutex
	deleted map[types.UID]bool // claims that this loop deleted and that the snapshot may still show
}

// New returns a loop that has not started.
func New(d Deps, s engine.Settings) *Loop {
	return &Loop{Deps: d, settings: s, deleted: map[types.UID]bool{}}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	return workqueue.Work[version]{Name: "static", Metrics: l.Metrics, Workers: 10, Rows: l.rows, Step: l.step}.Run(ctx, l.Store)
}

// version is what decides about a pool's nodes: if it changes, the pool is looked at again.
type version struct {
	pool                    *v1.NodePool
	active, leaving, ending int
}

// rows yields the static pools, as workqueue asks.
func (l *Loop) rows(snap *cluster.Snapshot) iter.Seq2[string, version] {
	return func(yield func(string, version) bool) {
		if !snap.Synced() {
			return
		}
		l.forget(snap)
		for p := range cluster.Pools.All(snap) {
			if !p.IsStatic() {
				continue
			}
			s := static.StandOf(snap, p.Name, l.gone)
			if !yield(p.Name, version{p, len(s.Active), s.Leaving, s.Ending}) {
				return
			}
		}
	}
}

// gone reports whether this loop deleted a claim.
func (l *Loop) gone(c *v1.NodeClaim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleted[c.UID]
}

// forget drops deleted claims that the snapshot no longer shows.
func (l *Loop) forget(snap *cluster.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.deleted) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for n := range snap.Nodes() {
		if n.Claim != nil && l.deleted[n.Claim.UID] {
			there[n.Claim.UID] = true
		}
	}
	l.deleted = there
}

// step deletes surplus nodes of one pool, or opens missing ones. It returns when to look again if nothing changes.
func (l *Loop) step(ctx context.Context, snap *cluster.Snapshot, name string) (time.Time, error) {
	pool := cluster.Pools.Get(snap, name)
	if pool == nil || !pool.IsStatic() || pool.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	now := time.Now()
	stand := static.StandOf(snap, name, l.gone)
	if surplus := stand.Surplus(pool, now); len(surplus) > 0 {
		if !snap.Fed() { // the choice of surplus nodes needs to know where pods run
			return now.Add(unfedWait), nil
		}
		return now.Add(poolInterval), l.shrink(ctx, surplus)
	}
	if missing := stand.Missing(pool); missing > 0 {
		return l.grow(ctx, snap, pool, &stand, missing, now)
	}
	return now.Add(poolInterval), nil
}

// grow opens missing nodes, as far as the limit of nodes allows, and one at a time if the last machines of the pool never got ready. It
// publishes an event on the pool if nodes stay missing.
func (l *Loop) grow(ctx context.Context, snap *cluster.Snapshot, pool *v1.NodePool, stand *static.Stand, missing int,
	now time.Time) (time.Time, error) {
	pools, notReady := l.Catalogs.Pools(ctx, snap)
	input, known := pools[pool.Name]
	if !known || notReady[pool.Name] {
		return now.Add(poolInterval), nil // when the pool becomes ready, it is looked at again at once
	}
	n := min(missing, stand.Headroom(pool))
	if n < missing {
		l.tell(pool, fmt.Sprintf("%d node(s) are missing, and limits.nodes allows %d more now: raise it, or lower replicas", missing, n))
	}
	if n = min(n, stand.Openable()); n == 0 {
		return now.Add(retryDelay), nil
	}
	if hold := lifecycle.Held(snap, pool, now); hold != nil {
		l.tell(pool, fmt.Sprintf("%d node(s) are missing: %s", missing, sentence.Hold(hold)))
		return now.Add(retryDelay), nil
	}
	if lifecycle.TroubleOf(pool).Broken() {
		n = 1
	}
	opening, why := l.opening(ctx, snap, input, now)
	if why != nil {
		l.tell(pool, fmt.Sprintf("%d node(s) are missing, and there is nothing to buy: %s", missing, sentence.Explanation(why)))
		return now.Add(retryDelay), nil
	}
	_, err := l.Opener.Open(ctx, seed(pool, stand), opened, slices.Repeat([]engine.Opening{opening}, n))
	return now.Add(retryDelay), err
}

// opening plans one new node of a pool.
func (l *Loop) opening(ctx context.Context, snap *cluster.Snapshot, pool engine.Pool, now time.Time) (engine.Opening, reason.Explanation) {
	l.planning.Lock()
	defer l.planning.Unlock()
	return static.Opening(l.Engine, pool, engine.Question{Snap: snap, Settings: l.settings, Now: now,
		Ended: func() bool { return ctx.Err() != nil }})
}

// seed returns the seed for the names of new claims. It is made of the present nodes of the pool, so that the same step after a crash
// gives the same names.
func seed(pool *v1.NodePool, stand *static.Stand) string {
	var have []string
	for _, n := range stand.Active {
		have = append(have, string(n.Claim.UID))
	}
	slices.Sort(have)
	return fmt.Sprintf("static/%s/%s/%d/%d", pool.UID, strings.Join(have, ","), stand.Leaving, stand.Ending)
}

// shrink deletes the claims of surplus nodes, in their order.
func (l *Loop) shrink(ctx context.Context, surplus []*cluster.Node) error {
	var errs []error
	for _, n := range surplus {
		c := n.Claim
		err := l.Client.Delete(ctx, &v1.NodeClaim{ObjectMeta: c.ObjectMeta}, client.Preconditions{UID: &c.UID})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete claim %s: %w", c.Name, err))
			continue
		}
		l.mu.Lock()
		l.deleted[c.UID] = true
		l.mu.Unlock()
		telemetry.Log(ctx).Info("deleting nodeclaim", "NodeClaim", c.Name, "NodePool", c.Labels[v1.NodePoolLabelKey],
			"reason", "more than replicas")
	}
	return errors.Join(errs...)
}

// tell publishes an event on a pool with missing nodes.
func (l *Loop) tell(pool *v1.NodePool, message string) {
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PoolRef(pool), Reason: telemetry.ReplicasMissing, Key: []string{string(pool.UID), message}, Message: message,
	})
}
