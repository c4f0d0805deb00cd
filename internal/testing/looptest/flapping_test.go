package looptest

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// TestSpotThatComesAndGoes has EC2 take back all spot machines and sell none for five minutes of every ten, for three hours. Nodes go
// back to spot at most once an hour, and stay there when spot does.
func TestSpotThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 5, Types: []string{"m5.xlarge", "c5.xlarge"}})
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Annotations = map[string]string{v1.InterruptionCostAnnotationKey: "2"}
			p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
		})
		defer w.start()()
		w.deploy(2, "3", "4Gi") // one fits a machine
		w.eventually("all pods run", 5*time.Minute, w.allRun(2))

		const hours = 3
		for range 6 * hours {
			w.sellSpot(false)
			time.Sleep(5 * time.Minute)
			w.sellSpot(true)
			time.Sleep(5 * time.Minute)
		}
		w.eventually("all pods run", time.Minute, w.allRun(2))
		// Two at the start. A machine that goes back to spot is one more, and the on-demand one after it another.
		if n, most := len(w.aws.Machines()), 2+2*2*hours; n > most {
			t.Errorf("%d machines were launched in %d hours, want at most %d", n, hours, most)
		}

		time.Sleep(2*time.Hour + 30*time.Minute)
		for _, m := range w.aws.Alive() {
			if m.CapacityType != v1.CapacityTypeSpot {
				t.Errorf("hours after spot is back, machine %s is %s", m.ID, m.CapacityType)
			}
		}
		before := len(w.aws.Machines())
		time.Sleep(3 * time.Hour)
		if n := len(w.aws.Machines()) - before; n > 0 {
			t.Errorf("nothing changes, and %d machines are launched", n)
		}
	})
}

// sellSpot has EC2 sell spot, or sell none and take back all that runs.
func (w *world) sellSpot(sold bool) {
	w.t.Helper()
	var none []awsmodel.PoolRule
	if !sold {
		none = []awsmodel.PoolRule{{Match: "spot/*/*"}}
	}
	if err := w.aws.SetFaults(func(f *awsmodel.Faults) { f.Pools = none }); err != nil {
		w.t.Fatal(err)
	}
	for _, m := range w.aws.Alive() {
		if !sold && m.CapacityType == v1.CapacityTypeSpot {
			if err := w.aws.Interrupt(m.ID); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}
