package aws

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

func TestInflexible(t *testing.T) {
	of := func(capacityType string, types int) fleet.Choice {
		return fleet.Choice{CapacityType: capacityType, Candidates: make([]fleet.Candidate, types)}
	}
	both, onDemand := newClaim("a"), newClaim("b")
	both.Spec.Requirements[2].Values = []string{"spot", "on-demand"}
	for name, tc := range map[string]struct {
		claim  *v1.NodeClaim
		choice fleet.Choice
		want   bool
	}{
		"few types, on demand although spot is allowed": {both, of("on-demand", 4), true},
		"enough types":              {both, of("on-demand", 5), false},
		"spot":                      {both, of("spot", 1), false},
		"on demand is asked for":    {onDemand, of("on-demand", 1), false},
		"any capacity type will do": {&v1.NodeClaim{}, of("on-demand", 1), true},
	} {
		if got := inflexible(tc.claim, tc.choice); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A pool of few types hears so once, however many machines it buys, and a pool of many does not.
func TestFewTypesOfSpotAreToldOf(t *testing.T) {
	for name, tc := range map[string]struct {
		capacity string
		types    []string
		want     int
	}{
		"four types of spot": {"spot", []string{"m5.large", "m5.xlarge", "c5.large", "c5.xlarge"}, 1},
		"five types":         {"spot", []string{"m5.large", "m5.xlarge", "c5.large", "c5.xlarge", "r5.large"}, 0},
		"on demand":          {"on-demand", []string{"m5.large"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
				for _, claimName := range []string{"a", "b"} {
					claim := newClaim(claimName)
					claim.Spec.Requirements[2].Values = []string{tc.capacity}
					claim.Spec.Requirements = append(claim.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
						Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: tc.types})
					w.create(t, claim)
				}
				synctest.Wait() // events are on their way
				told := 0
				for _, claim := range []string{"a", "b"} {
					if w.events.has(telemetry.FewInstanceTypes, claim) {
						told++
					}
				}
				if told != tc.want {
					t.Errorf("%d events %s, want %d", told, telemetry.FewInstanceTypes, tc.want)
				}
			})
		})
	}
}

func TestMachinesThatALaunchMayBeAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaunches(t.Context())
		answer := make(chan struct{})
		for _, claim := range []struct{ name, pool string }{{"a", "web"}, {"b", "web"}, {"c", "batch"}} {
			go func() {
				_, _ = l.do(t.Context(), claim.name, claim.pool, func(context.Context) (cloud.Machine, error) {
					if <-answer; claim.name == "b" {
						time.Sleep(time.Minute)
					}
					return cloud.Machine{ProviderID: claim.name}, nil
				})
			}()
			time.Sleep(10 * time.Second)
		}
		now := time.Now()
		for name, tc := range map[string]struct {
			machine cloud.Machine
			want    bool
		}{
			"it is of such a pool":                           {cloud.Machine{PoolName: "web", Created: now}, true},
			"it was launched by the first call":              {cloud.Machine{PoolName: "web", Created: now.Add(-30 * time.Second)}, true},
			"the clock of EC2 is late":                       {cloud.Machine{PoolName: "web", Created: now.Add(-5 * time.Minute)}, true},
			"it is older than the call":                      {cloud.Machine{PoolName: "web", Created: now.Add(-6 * time.Minute)}, false},
			"it says which claim it is for":                  {cloud.Machine{PoolName: "web", ClaimName: "d", Created: now}, false},
			"it is of a pool for which nothing is under way": {cloud.Machine{PoolName: "other", Created: now}, false},
		} {
			if got := l.unanswered().awaits(&tc.machine); got != tc.want {
				t.Errorf("%s: awaited %v, want %v", name, got, tc.want)
			}
		}
		close(answer)
		synctest.Wait()
		if got := l.unanswered(); len(got) != 1 || got["web"].IsZero() {
			t.Errorf("two of three are answered, and there are %v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := l.unanswered(); len(got) > 0 {
			t.Errorf("all are answered, and there are %v", got)
		}
	})
}
