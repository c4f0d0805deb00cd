package looptest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// settleTime is how long after a bad time nothing may be left over.
const settleTime = 60 * time.Second

// TestChaosLosesNoPod lives through throttling, lost answers, describe calls that lag, dry pools, interrupted machines and
// loops that are torn down. When the bad time has ended every pod runs, on machines that are one to one with claims and nodes; a
// minute after everything was deleted, nothing is left. Karpenter never stops a machine under a pod that runs.
func TestChaosLosesNoPod(t *testing.T) {
	sim.EachSeed(t, "LOOP_SEEDS", 34, 1000, liveThroughChaos)
}

func liveThroughChaos(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	w := newWorld(t, awsmodel.Config{Seed: seed, Types: []string{"m5.*", "c5.*", "m6g.*"}, Faults: badTime(random)})
	pods := 20 + random.IntN(60)
	end := w.start()
	time.Sleep(upTo(10 * time.Second))
	w.deploy(pods, "900m", "1Gi")
	for i := range 2 + random.IntN(3) {
		time.Sleep(upTo(25 * time.Second))
		end()
		w.deleteSome(lots(seed, fmt.Sprint("restart ", i)))
		time.Sleep(upTo(5 * time.Second))
		end = w.start()
	}
	w.faults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{Throttle: true} })
	w.eventually("every pod runs", 3*time.Minute, w.allRun(pods))
	w.eventually("machines, claims and nodes are the same", settleTime, w.unequal)
	if len(w.cut) > 0 {
		t.Errorf("machines were stopped under %d running pods: %s", len(w.cut), strings.Join(w.cut, ", "))
	}

	sim.ScaleToZero(w.t, w.World)
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		sim.Delete(t, w.World, c)
	}
	sim.Delete(t, w.World, sim.Get[*awsv1.EC2NodeClass](t, w.World, "default"))
	time.Sleep(settleTime)
	if left := w.left(); left != "" {
		t.Errorf("a minute after everything was deleted there are left: %s", left)
	}
	end()
}

// badTime is an AWS that makes every kind of trouble at once.
func badTime(random *rand.Rand) awsmodel.Faults {
	return awsmodel.Faults{
		Throttle: true, LatencyMillis: 20 + random.IntN(400), LagMillis: random.IntN(5000), LostAnswers: 0.3 * random.Float64(),
		Buckets: map[string]awsmodel.Bucket{
			"ec2:CreateFleet": {Size: 3, PerSecond: 1}, "ec2:TerminateInstances": {Size: 3, PerSecond: 1}, "ec2:CreateLaunchTemplate": {Size: 3, PerSecond: 1},
		},
		Pools:                    []awsmodel.PoolRule{{Match: "*/*/us-east-1[a-c]", Depth: random.IntN(3)}},
		SpotInterruptionsPerHour: float64(random.IntN(2) * 30),
	}
}

// deleteSome deletes a tenth of the claims, whatever they are about.
func (w *world) deleteSome(l lot) {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if l.of(c.Name) < 0.1 {
			sim.Delete(w.t, w.World, c)
		}
	}
}

func (w *world) faults(change func(*awsmodel.Faults)) {
	w.t.Helper()
	if err := w.aws.SetFaults(change); err != nil {
		w.t.Fatal(err)
	}
}
