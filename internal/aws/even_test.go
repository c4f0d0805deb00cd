package aws

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// launchAll launches claims at the same time and returns their machines.
func (w *world) launchTogether(t *testing.T, claims ...*v1.NodeClaim) []cloud.Machine {
	t.Helper()
	out := make([]cloud.Machine, len(claims))
	var wg sync.WaitGroup
	for i, claim := range claims {
		wg.Go(func() {
			var err error
			if out[i], err = w.provider.Launch(t.Context(), claim); err != nil {
				t.Errorf("%s: %v", claim.Name, err)
			}
		})
	}
	wg.Wait()
	return out
}

func zonesIn(machines []cloud.Machine) map[string]int {
	out := map[string]int{}
	for _, m := range machines {
		out[m.Zone]++
	}
	return out
}

// zoned counts zones by their last letter.
func zoned(letters string) map[string]int {
	out := map[string]int{}
	for _, l := range letters {
		out["us-east-1"+string(l)]++
	}
	return out
}

// Prices are equal in all zones on demand, so it is ours to choose: a call that several claims share is split, and the zones with the
// fewest machines of the pool come first.
func TestZonesGetEvenShares(t *testing.T) {
	for name, tc := range map[string]struct {
		before string // zones of machines that are there
		pool   string // of these
		out    string // zones that are out of stock
		claims int
		want   map[string]int
	}{
		"seven claims that come together":            {claims: 7, want: zoned("aabbcdf")},
		"what is there counts":                       {before: "aabc", pool: "default", claims: 5, want: zoned("bcddf")},
		"one claim goes where there are fewest":      {before: "abdf", pool: "default", claims: 1, want: zoned("c")},
		"machines of another pool do not count":      {before: "abdf", pool: "another", claims: 1, want: zoned("a")},
		"all zones stay open where one has no stock": {out: "c", claims: 5, want: zoned("aabdf")},
		"there may be stock in one zone only":        {out: "abdf", claims: 3, want: zoned("ccc")},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Types: []string{"m5.large", "m5.xlarge"}}, nil, func(t *testing.T, w *world) {
				for i, zone := range tc.before {
					claim := newClaim(fmt.Sprintf("before-%d", i))
					claim.Labels[v1.NodePoolLabelKey] = tc.pool
					claim.Spec.Requirements = append(claim.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1" + string(zone)}})
					w.create(t, claim)
				}
				w.faults(t, func(f *awsmodel.Faults) {
					for _, zone := range tc.out {
						f.Pools = append(f.Pools, awsmodel.PoolRule{Match: "on-demand/*/us-east-1" + string(zone), Depth: 0})
					}
				})
				var claims []*v1.NodeClaim
				for i := range tc.claims {
					claims = append(claims, newClaim(fmt.Sprintf("claim-%d", i)))
				}
				machines := w.launchTogether(t, claims...)
				if got := zonesIn(machines); !maps.Equal(got, tc.want) {
					t.Errorf("zones %v, want %v", got, tc.want)
				}
				if i := slices.IndexFunc(machines, func(m cloud.Machine) bool { return m.InstanceType != "m5.large" }); i >= 0 {
					t.Errorf("%s is a %s", machines[i].ClaimName, machines[i].InstanceType)
				}
			})
		})
	}
}

// One after the other, too, they go where there are fewest, though none of them is known as a node yet.
func TestMachinesOfAMomentAgoCount(t *testing.T) {
	inWorld(t, awsmodel.Config{Types: []string{"m5.large"}}, nil, func(t *testing.T, w *world) {
		var machines []cloud.Machine
		for i := range 6 {
			machines = append(machines, w.launchTogether(t, newClaim(fmt.Sprintf("claim-%d", i)))...)
		}
		if got := zonesIn(machines); !maps.Equal(got, zoned("aabcdf")) {
			t.Errorf("zones %v", got)
		}
	})
}
