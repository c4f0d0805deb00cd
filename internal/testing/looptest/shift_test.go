package looptest

import (
	"testing"
	"testing/synctest"
	"time"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestZonalShift shifts traffic away from the zone of all nodes: what is there stays, what is new comes elsewhere, and what was to go goes when the
// shift has ended.
func TestZonalShift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 8, Types: []string{"m5.xlarge"}})
		w.shifts = true
		w.inZones("us-east-1a", "us-east-1b")
		defer w.start()()
		w.deploy(2, "3", "4Gi") // one fits a machine, so they are in two zones
		w.eventually("all pods run", 2*time.Minute, w.allRun(2))
		w.aws.SetAccount(func(a *awsmodel.Account) {
			a.Shifts = map[string]time.Time{awsdata.ZoneID("us-east-1", "us-east-1a"): time.Now().Add(time.Hour)}
		})
		time.Sleep(time.Minute)
		before := w.byZone()
		w.deploy(6, "3", "4Gi")
		w.eventually("all pods run", 5*time.Minute, w.allRun(6))
		if got := w.byZone(); got["us-east-1a"] != before["us-east-1a"] || got["us-east-1b"] != 6-before["us-east-1a"] {
			t.Errorf("machines by zone %v, before the shift %v", got, before)
		}
		sim.ScaleToZero(w.t, w.World)
		time.Sleep(30 * time.Minute)
		if got := w.byZone(); got["us-east-1a"] != before["us-east-1a"] || got["us-east-1b"] != 0 {
			t.Errorf("while nothing runs any more, machines by zone are %v, before the shift %v", got, before)
		}
		time.Sleep(time.Hour)
		w.eventually("nothing is left after the shift", 10*time.Minute, func() string {
			for zone := range w.byZone() {
				return "a machine in " + zone
			}
			return ""
		})
	})
}

// byZone counts the machines by zone.
func (w *world) byZone() map[string]int {
	out := map[string]int{}
	for _, m := range w.aws.Alive() {
		out[m.Zone]++
	}
	return out
}
