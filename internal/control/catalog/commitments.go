package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
)

// Commitments returns the commitments (paid capacity) of a snapshot with the machines that use them, as plans need them; nil if there are
// none.
func (s *Service) Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books {
	objects := slices.Collect(cluster.Commitments.All(snap)) // none where the feature gate is off: nothing watches them then
	if len(objects) == 0 {
		return nil
	}
	pools, _ := s.Pools(ctx, snap)
	return commitment.Read(objects, snap, catalogsOf(pools), now)
}

// catalogsOf returns the catalogues of pools, each once.
func catalogsOf(pools map[string]engine.Pool) (out []*cloud.Catalog) {
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if c := pools[name].Catalog; !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
