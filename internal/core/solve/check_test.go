package solve_test

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
)

// TestCheckFindsFaults breaks a good result in several ways.
func TestCheckFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(*solve.Result){
		"a pod is lost":                    func(r *solve.Result) { r.Bins[0].Puts = nil },
		"two pods that keep apart share":   func(r *solve.Result) { r.Bins[0].Puts[0].Count++; r.Bins = r.Bins[:len(r.Bins)-1] },
		"the price is not what was listed": func(r *solve.Result) { r.Price-- },
		"the bound is above the price":     func(r *solve.Result) { r.Volume = r.Price + 1 },
		"all go to one zone": func(r *solve.Result) {
			for i := range r.Bins {
				r.Bins[i].Domain = []int32{0}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := solve.ThreeZones(6)
			r := repack.Run(p)
			if err := solve.Check(p, r); err != nil {
				t.Fatal(err)
			}
			spoil(r)
			if solve.Check(p, r) == nil {
				t.Error("not found")
			}
		})
	}
}
