package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// launched is what came of one launch.
type launched struct {
	machine cloud.Machine
	err     error
}

// launchEach launches every claim at the same time.
func launchEach(ctx context.Context, p *Provider, claims []*v1.NodeClaim) []launched {
	out := make([]launched, len(claims))
	var wait sync.WaitGroup
	for i, c := range claims {
		wait.Go(func() {
			out[i].machine, out[i].err = p.Launch(ctx, c)
		})
	}
	wait.Wait()
	return out
}

// TestIceStorm lets nine of ten of the cheapest pools be dry. Claims that are given up are replaced by new ones, as planning
// does; what the first round learned must keep the later ones from trying the same pools again.
func TestIceStorm(t *testing.T) {
	const claims, cheapest, maxRate = 100, 300, 1.3
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 5}, nil)
		w.faults(t, func(f *awsmodel.Faults) { f.Pools = dryPools(t, w, cheapest) })
		var attempts, machines int // after the first round
		todo, named := claims, 0
		for round := 1; todo > 0 && round <= 10; round++ {
			var list []*v1.NodeClaim
			for range todo {
				named++
				c := newClaim(fmt.Sprint("default-", named))
				c.Spec.Requirements[2].Values = []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}
				list = append(list, c)
			}
			todo = 0
			for i, l := range launchEach(t.Context(), w.provider, list) {
				var dry *cloud.NoCapacityError
				switch {
				case errors.As(l.err, &dry):
					todo++
				case l.err != nil:
					t.Errorf("claim %s: %v", list[i].Name, l.err)
				}
			}
			t.Logf("round %d: %d launched, %d given up", round, len(list)-todo, todo)
			if round > 1 {
				attempts += len(list)
				machines += len(list) - todo
			}
		}
		if n := len(w.cloud.Alive()); n != claims {
			t.Errorf("%d machines, want %d", n, claims)
		}
		if machines > 0 && float64(attempts)/float64(machines) > maxRate {
			t.Errorf("after the first round %d attempts for %d machines, want at most %v for each", attempts, machines, maxRate)
		}
		if attempts > 0 && machines == 0 {
			t.Errorf("after the first round %d attempts and no machine", attempts)
		}
	})
}

// dryPools makes nine of ten of the cheapest on-demand and spot pools dry.
func dryPools(t *testing.T, w *world, n int) []awsmodel.PoolRule {
	t.Helper()
	catalog, err := w.provider.Catalog(t.Context(), defaultPool())
	if err != nil {
		t.Fatal(err)
	}
	type pool struct {
		name  string
		price cloud.NanoUSD
	}
	var pools []pool
	for _, it := range catalog.Types {
		if cpu := it.Capacity.Cpu().Value(); cpu < 2 || it.Exotic {
			continue
		}
		for i := range it.Offerings {
			o := &it.Offerings[i]
			pools = append(pools, pool{o.CapacityType() + "/" + it.Name + "/" + o.Zone(), o.Price})
		}
	}
	slices.SortFunc(pools, func(a, b pool) int { return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.name, b.name)) })
	var rules []awsmodel.PoolRule
	for i, p := range pools[:n] {
		if i%10 != 9 {
			rules = append(rules, awsmodel.PoolRule{Match: p.name, Depth: 0})
		}
	}
	return rules
}
