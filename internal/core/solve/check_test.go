package solve_test

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
)

// TestCheckFindsFaults breaks a good result in several ways.
func TestCheckFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(*problem.Result){
		"a pod is lost":                    func(r *problem.Result) { r.Bins[0].Puts = nil },
		"two pods that keep apart share":   func(r *problem.Result) { r.Bins[0].Puts[0].Count++; r.Bins = r.Bins[:len(r.Bins)-1] },
		"the price is not what was listed": func(r *problem.Result) { r.Price-- },
		"the bound is above the price":     func(r *problem.Result) { r.Volume = r.Price + 1 },
		"all go to one zone": func(r *problem.Result) {
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

// TestDaemonsThatStartInOneZone: every node of zone a has one more pod that the spread counts, and no other has.
func TestDaemonsThatStartInOneZone(t *testing.T) {
	p := solve.ThreeZones(6)
	inA := len(p.Labels.OnTemplate)
	p.Labels.OnTemplate = append(p.Labels.OnTemplate, []problem.Match{{OK: true, Mask: p.Keys[0].Tmpl[0].Choice[0]}})
	p.Labels.OnNode = append(p.Labels.OnNode, nil)
	daemons := problem.DaemonGroup{Overhead: make([]int64, p.Resources), Counted: []problem.Arrival{{Group: 0, Count: 1, Where: []int{inA}}}, Decide: []int{0}}
	p.Templates[0].Daemons, p.Templates[0].DaemonOf = []problem.DaemonGroup{daemons}, []int32{0}
	r := repack.Run(p)
	if err := solve.Check(p, r); err != nil {
		t.Fatal(err)
	}
	var nodes [3]int
	for i := range r.Bins {
		nodes[r.Bins[i].Domain[0]]++
	}
	if len(r.Bins) != 6 || nodes[0] != 1 {
		t.Errorf("nodes in zones a, b, c = %v, want 1 of 6 in a, which counts as two pods", nodes)
	}
	for i := range r.Bins { // where all are even, but for the daemons
		r.Bins[i].Domain, r.Bins[i].Mask = []int32{int32(i % 3)}, p.Keys[0].Tmpl[0].Choice[i%3]
	}
	if solve.Check(p, r) == nil {
		t.Error("two nodes in each zone pass, though those of a have a daemon each")
	}
}
