package catalog

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/overlay"
)

// overlays caches the judgement of NodeOverlays and the corrected catalogues until an overlay, a pool or a catalogue changes.
type overlays struct {
	store *cluster.Store
	known *label.Vocabulary

	mu       sync.Mutex
	objects  []*v1alpha1.NodeOverlay     // for which book and verdicts were made
	pools    []overlay.Pool              // likewise
	book     *overlay.Book               // the overlays that are in force
	verdicts []overlay.Verdict           // beside objects
	applied  map[string]*overlay.Applied // corrected catalogues by pool
}

// correct replaces the catalogues in pools by corrected ones. Without the feature gate (nil) it does nothing.
func (o *overlays) correct(snap *cluster.Snapshot, pools map[string]engine.Pool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judge(snap, pools)
	applied := make(map[string]*overlay.Applied, len(pools))
	for name, p := range pools {
		a := o.book.Apply(p.Pool, p.Catalog, o.applied[name])
		applied[name] = a
		p.Catalog = a.Catalog()
		pools[name] = p
	}
	o.applied = applied
}

// judge judges the overlays again if they, the pools or their catalogues have changed since the last time. The caller holds the lock.
func (o *overlays) judge(snap *cluster.Snapshot, pools map[string]engine.Pool) {
	objects := slices.Collect(cluster.Overlays.All(snap))
	list := make([]overlay.Pool, 0, len(pools))
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		list = append(list, overlay.Pool(pools[name]))
	}
	same := func(a, b overlay.Pool) bool { return a.Same(b, o.known) }
	if o.verdicts != nil && slices.Equal(objects, o.objects) && slices.EqualFunc(list, o.pools, same) {
		return
	}
	book, verdicts := overlay.Judge(objects, list, o.known)
	if o.book == nil || !book.Equal(o.book) { // an equal book is not replaced, so that corrected catalogues stay the same pointers
		o.book = book
	}
	o.objects, o.pools, o.verdicts = objects, list, verdicts
}

// Verdicts returns all NodeOverlays, and beside them whether each is in force.
func (s *Service) Verdicts(ctx context.Context, snap *cluster.Snapshot) ([]*v1alpha1.NodeOverlay, []overlay.Verdict) {
	s.Pools(ctx, snap)
	s.overlays.mu.Lock()
	defer s.overlays.mu.Unlock()
	return s.overlays.objects, s.overlays.verdicts
}

// Corrected applies the NodeOverlays that are in force to a catalogue of the provider, for a machine of a pool. A
// claim without pool, or of a pool that is not known, gets the catalogue unchanged.
func (s *Service) Corrected(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog {
	if s.overlays == nil || pool == "" {
		return c
	}
	snap := s.overlays.store.Snapshot()
	p := cluster.Pools.Get(snap, pool)
	if p == nil {
		return c
	}
	pools, _ := s.Pools(ctx, snap) // so that the newest overlays are judged
	if known, ok := pools[pool]; ok {
		p = known.Pool
	}
	return s.overlays.apply(p, c)
}

// apply returns the corrected catalogue c for a pool, from what was judged last.
func (o *overlays) apply(p *v1.NodePool, c *cloud.Catalog) *cloud.Catalog {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.book.Apply(p, c, o.applied[p.Name]).Catalog()
}
