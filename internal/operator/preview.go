package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
)

// preview returns the function with which the page plans for the pods of manifests in the present cluster, nil if plan is nil.
func (p *parts) preview(plan func(context.Context, []byte, engine.Question) ([]byte, error)) func(context.Context, []byte) ([]byte, error) {
	if plan == nil {
		return nil
	}
	return func(ctx context.Context, manifests []byte) ([]byte, error) {
		in, err := p.present(ctx)
		if err != nil {
			return nil, err
		}
		return plan(ctx, manifests, in)
	}
}

// present returns a question about the present cluster without pods, or an error that tells the user why there can be none.
func (p *parts) present(ctx context.Context) (in engine.Question, err error) {
	snap := p.store.Snapshot()
	if !snap.Synced() {
		return in, errors.New("the controller is still reading the cluster; try again in some seconds")
	}
	in = engine.Question{Snap: snap, Settings: p.settings.engineSettings(), Now: time.Now()}
	known, notReady := p.catalogs.Pools(ctx, snap)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if pool := known[name]; !notReady[name] && !pool.Pool.IsStatic() {
			in.Pools = append(in.Pools, pool)
		}
	}
	if len(in.Pools) == 0 {
		return in, errors.New("no NodePool may open nodes: there is none, or none is ready")
	}
	if books := p.catalogs.Commitments(ctx, snap, in.Now); books != nil {
		in.Commitments = books.Certain
	}
	return in, nil
}
