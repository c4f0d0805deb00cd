package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/ui/cli"
)

// preview plans, for the page, for pods of manifests in the cluster as it is.
func (p *parts) preview(ctx context.Context, manifests []byte) ([]byte, error) {
	snap := p.store.Snapshot()
	if !snap.Synced() {
		return nil, errors.New("the controller is still reading the cluster; try again in some seconds")
	}
	in := engine.Question{Snap: snap, Settings: p.settings.engine(), Now: time.Now()}
	known, notReady := p.catalogs.Pools(ctx, snap)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if pool := known[name]; !notReady[name] && !pool.Pool.IsStatic() {
			in.Pools = append(in.Pools, pool)
		}
	}
	if len(in.Pools) == 0 {
		return nil, errors.New("no NodePool may open nodes: there is none, or none is ready")
	}
	if books := p.catalogs.Commitments(ctx, snap, in.Now); books != nil {
		in.Commitments = books.Certain
	}
	return cli.Preview(ctx, manifests, in)
}
