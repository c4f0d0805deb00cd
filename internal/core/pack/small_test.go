package pack

import (
	"math/rand/v2"
	"testing"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// Whole nodes of real machines: every tree is verified, no bound is above a fleet, and most small batches are proven to be optimal.
func TestSmallBatchesAreProvenInWholeNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 18))
	for _, spot := range []bool{false, true} {
		machines, proven, before := cells(t, spot, "a", family), 0, 0
		const batches = 16
		for turn := range batches {
			p := &Problem{Cells: machines}
			for range 1 + rng.IntN(6) {
				cpu := int64(250 * (1 + rng.IntN(12)))
				p.Classes = append(p.Classes, Class{Need: []int64{cpu, cpu * int64(1+rng.IntN(8)) * mib, 1}, Count: 1 + rng.IntN(8)})
			}
			r := Solve(p, Options{Gain: gain, Least: work.Second / 4, Most: work.Second, Exact: work.Second / 12})
			if err := verify.Check(p, r.Fleet, r.Left); err != nil {
				t.Fatal(err)
			}
			if err := verify.Verify(p, r.Certificate); err != nil {
				t.Errorf("batch %d spot=%v: %v", turn, spot, err)
			}
			if r.Bound() > r.Price {
				t.Errorf("batch %d spot=%v: bound %d above the price %d", turn, spot, r.Bound(), r.Price)
			}
			alone := Bound(p, Options{Price: r.Price, Exact: work.Second / 12, Least: work.Second / 4, Most: work.Second})
			if err := verify.Verify(p, alone.Certificate); err != nil || alone.Bound() > r.Price {
				t.Errorf("batch %d spot=%v: the bound alone is %d of %d: %v", turn, spot, alone.Bound(), r.Price, err)
			}
			if r.Gap() <= 1e-3 {
				proven++
			}
			if p := Solve(p, Options{Gain: gain, Least: work.Second / 4, Most: work.Second}); p.Gap() <= 1e-3 {
				before++
			}
		}
		t.Logf("spot=%v: %d of %d proven, %d by fractions of nodes", spot, proven, batches, before)
		if proven*10 < batches*8 {
			t.Errorf("spot=%v: only %d of %d are proven", spot, proven, batches)
		}
	}
}
