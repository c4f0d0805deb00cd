package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// countEvery is how often the pools are counted while the cluster changes.
const countEvery = 5 * time.Second

// count keeps the counts in the status of pools up to date until ctx ends. It counts again only after the cluster has changed, at most
// every countEvery.
func (l *Loop) count(ctx context.Context) {
	const name = "nodepool.counter"
	ctx = telemetry.WithController(ctx, name)
	watched := l.Metrics.Loop(name, 1)
	defer l.Metrics.End(watched)
	for {
		snap := l.Store.Snapshot()
		if snap.Synced() {
			if err := watched.Turn(ctx, "counting what pools hold",
				func(ctx context.Context) error { return l.countAll(ctx, snap) }); err != nil && ctx.Err() == nil {
				telemetry.Log(ctx).Error("writing the counts of pools failed", "error", err)
			}
		}
		if !watched.Wait(ctx, countEvery, nil) || !watched.Wait(ctx, time.Hour, snap.Stale()) {
			return
		}
	}
}

// countAll writes the counts of each pool that has changed.
func (l *Loop) countAll(ctx context.Context, snap *cluster.Snapshot) error {
	l.forgetGone(snap)
	held := holdings(snap)
	var errs []error
	for pool := range cluster.Pools.All(snap) {
		if l.managed(pool) {
			errs = append(errs, l.writeCount(ctx, pool, held[pool.Name]))
		}
	}
	return errors.Join(errs...)
}

// A holding is the sum of the nodes of a pool.
type holding struct {
	Nodes     int64
	Resources corev1.ResourceList
}

// holdings sums up the machines of each pool. Machines on their way out do not count, so that limits leave room for their replacements.
func holdings(snap *cluster.Snapshot) map[string]holding {
	out := map[string]holding{}
	for row := range snap.Nodes() {
		if row.Claim == nil || row.MarkedForRemoval {
			continue
		}
		pool := row.Claim.Labels[v1.NodePoolLabelKey]
		h, ok := out[pool]
		if !ok {
			h.Resources = corev1.ResourceList{}
		}
		h.Nodes++
		for name, q := range row.Capacity() {
			sum := h.Resources[name]
			sum.Add(q)
			h.Resources[name] = sum
		}
		out[pool] = h
	}
	return out
}

// none is what the status of a pool lists if it has no nodes: these resources, all zero. The sums of a pool with nodes are written over it.
func none() corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, v1.ResourceNodes,
	} {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return out
}

// writeCount writes the counts of a pool if they have changed. Nothing else writes these fields, so the patch needs no optimistic lock.
func (l *Loop) writeCount(ctx context.Context, pool *v1.NodePool, h holding) (err error) {
	defer bug.Catch(&err, "counting what pool "+pool.Name+" holds")
	counted := pool.DeepCopy()
	counted.Status.Nodes = h.Nodes
	counted.Status.Resources = none()
	maps.Copy(counted.Status.Resources, h.Resources)
	if equality.Semantic.DeepEqual(counted.Status, pool.Status) {
		return nil
	}
	if err := l.Client.Status().Patch(ctx, counted, client.MergeFrom(pool)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pool %s: %w", pool.Name, err)
	}
	l.Store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, counted) })
	return nil
}
