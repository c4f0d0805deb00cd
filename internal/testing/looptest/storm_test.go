package looptest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// A till counts what is launched and what came of it.
type till struct {
	cloud.Provider
	mu       sync.Mutex
	attempts []attempt
}

type attempt struct {
	claim string
	born  time.Time // when the claim was created
	err   error
}

func (s *till) Launch(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	m, err := s.Provider.Launch(ctx, claim)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, attempt{claim.Name, claim.CreationTimestamp.Time, err})
	return m, err
}

// rounds counts attempts and machines of the first plan and of all later ones.
func (s *till) rounds() (first, later struct{ attempts, machines, dry int }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var begin time.Time
	for _, a := range s.attempts {
		if begin.IsZero() || a.born.Before(begin) {
			begin = a.born
		}
	}
	for _, a := range s.attempts {
		r := &later
		if a.born.Sub(begin) <= time.Second { // claims of one plan are created at once
			r = &first
		}
		r.attempts++
		if a.err == nil {
			r.machines++
		}
		if _, dry := errors.AsType[*cloud.NoCapacityError](a.err); dry {
			r.dry++
		}
	}
	return first, later
}

// TestIceStorm lets nine of ten of the cheapest pools be dry, or nearly. What a failed launch learned must keep later ones from
// the same pools.
func TestIceStorm(t *testing.T) {
	const (
		pods     = 300
		cheapest = 3000 // of 4,682 pools
		maxRate  = 1.3
	)
	for name, tc := range map[string]struct {
		cpus, memory string
		depth        int
	}{
		"many pods to a machine, pools that are dry":    {"1700m", "3Gi", 0},
		"many pods to a machine, pools that hold one":   {"1700m", "3Gi", 1},
		"few pods to a machine, pools that are dry":     {"13", "20Gi", 0},
		"few pods to a machine, pools that hold twenty": {"13", "20Gi", 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 7, Types: []string{"[cmr][567]*.*"}})
				s := &till{}
				w.seller = func(p cloud.Provider) cloud.Provider { s.Provider = p; return s }
				defer w.start()()
				time.Sleep(30 * time.Second) // until the class is ready
				w.faults(func(f *awsmodel.Faults) { f.Throttle, f.Pools = true, shallow(t, s, cheapest, tc.depth) })
				begin := time.Now()
				w.deploy(pods, tc.cpus, tc.memory)
				w.eventually("all pods run", 5*time.Minute, w.allRun(pods))
				first, later := s.rounds()
				t.Logf("all pods ran after %s; first round %+v, later %+v; %d CreateFleet calls, %d machines",
					time.Since(begin).Round(time.Second), first, later, w.aws.Calls()["ec2:CreateFleet"], len(w.aws.Alive()))
				if float64(later.attempts) > maxRate*float64(later.machines) {
					t.Errorf("after the first round %d attempts for %d machines, want at most %v for each", later.attempts, later.machines, maxRate)
				}
				w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
			})
		})
	}
}

// shallow makes nine of ten of the pools with the cheapest CPUs hold no more than depth machines.
func shallow(t *testing.T, provider cloud.Provider, n, depth int) []awsmodel.PoolRule {
	t.Helper()
	catalog, err := provider.Catalog(t.Context(), pool())
	if err != nil {
		t.Fatal(err)
	}
	type stock struct {
		name   string
		perCPU cloud.NanoUSD
	}
	var all []stock
	for _, it := range catalog.Types {
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !it.Exotic && o.Available {
				all = append(all, stock{o.CapacityType() + "/" + it.Name + "/" + o.Zone(), o.Price / cloud.NanoUSD(it.Capacity.Cpu().Value())})
			}
		}
	}
	slices.SortFunc(all, func(a, b stock) int { return cmp.Or(cmp.Compare(a.perCPU, b.perCPU), cmp.Compare(a.name, b.name)) })
	var rules []awsmodel.PoolRule
	for _, s := range all[:n/10*9] { // the cheapest of them: what every plan asks for first
		rules = append(rules, awsmodel.PoolRule{Match: s.name, Depth: depth})
	}
	return rules
}
