package looptest

import (
	"testing"
	"testing/synctest"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAClaimWaitsForItsClassToBeJudged applies a claim of no pool together with its class, as one file would, in either order.
func TestAClaimWaitsForItsClassToBeJudged(t *testing.T) {
	own := func() *awsv1.EC2NodeClass {
		c := class()
		c.Name, c.UID = "own", ""
		return c
	}
	claim := func() *v1.NodeClaim {
		c := sim.Claim("alone", func(c *v1.NodeClaim) {
			c.Spec.NodeClassRef = sim.Ref("own")
			c.Labels, c.OwnerReferences = nil, nil
		})
		return c
	}
	for name, tc := range map[string]struct {
		apply  func(*testing.T, *world)
		within time.Duration
		want   string
	}{
		"the class first": {func(t *testing.T, w *world) { sim.Create(t, w.World, own()); sim.Create(t, w.World, claim()) }, time.Minute, "launched"},
		"the claim first": {func(t *testing.T, w *world) {
			sim.Create(t, w.World, claim())
			time.Sleep(5 * time.Second)
			sim.Create(t, w.World, own())
		}, time.Minute, "launched"},
		"a class that is Unknown for a while": {func(t *testing.T, w *world) {
			if err := w.aws.SetFaults(func(f *awsmodel.Faults) { f.LatencyMillis = 2000 }); err != nil {
				t.Fatal(err)
			}
			sim.Create(t, w.World, own())
			time.Sleep(time.Second)
			sim.Create(t, w.World, claim())
		}, time.Minute, "launched"},
		"a class that is found wrong ends the claim": {func(t *testing.T, w *world) {
			bad := own()
			bad.Spec.SubnetSelectorTerms[0].Tags = map[string]string{"no": "such"}
			sim.Create(t, w.World, claim())
			sim.Create(t, w.World, bad)
		}, time.Minute, "gone"},
		"a class that never comes is waited for":    {func(t *testing.T, w *world) { sim.Create(t, w.World, claim()) }, 4 * time.Minute, v1.ReasonNodeClassReadinessUnknown},
		"but not for longer than a launch may take": {func(t *testing.T, w *world) { sim.Create(t, w.World, claim()) }, 6 * time.Minute, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 4, Types: []string{"m5.*"}})
				defer w.start()()
				time.Sleep(10 * time.Second)
				tc.apply(t, w)
				time.Sleep(tc.within)
				got := "gone"
				if c, ok := sim.Find[*v1.NodeClaim](w.World, "alone"); ok {
					if got = condition.Get(c, v1.ConditionTypeLaunched).Reason; condition.IsTrue(c, v1.ConditionTypeLaunched) {
						got = "launched"
					}
				}
				if got != tc.want {
					t.Errorf("the claim is %s, want %s", got, tc.want)
				}
			})
		})
	}
}
