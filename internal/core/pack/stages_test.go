package pack

import (
	"math/rand/v2"
	"testing"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

var stageNames = map[stage]string{
	fluidLP: "the fluid LP", dividing: "dividing buckets", bothPricings: "both pricings", enumerating: "enumerating", moreGuides: "more guides",
	sampling: "sampling", columnGeneration: "column generation", quickColumns: "quick columns", foresight: "foresight", rounding: "rounding",
	repairing: "repairing", wholeNodes: "whole nodes", sharing: "sharing",
}

// A stage without a name has no row, and one without a row would never be missed.
func TestEveryStageHasARow(t *testing.T) {
	for s := stage(1); s < stages; s *= 2 {
		if stageNames[s] == "" {
			t.Errorf("stage %d has no name", s)
		}
	}
}

// small draws a question about few items from a workload.
func small(t testing.TB, rng *rand.Rand, name string, spot bool, items int) *Problem {
	p := problem(t, name, spot)
	all := p.Classes
	p.Classes = nil
	kinds := 1 + rng.IntN(10)
	for range kinds {
		c := all[rng.IntN(len(all))]
		c.Count = 1 + rng.IntN(max(1, 2*items/kinds))
		p.Classes = append(p.Classes, c)
	}
	return p
}

// alike is a question of three parts that are equal: each third of the cells is open to a third of the classes.
func alike(p *Problem) *Problem {
	out := &Problem{}
	for i := range 3 {
		for _, c := range p.Classes {
			c.Cells = make([]uint64, (3*len(p.Cells)+63)/64)
			for j := range p.Cells {
				c.Cells.Add(i*len(p.Cells) + j)
			}
			out.Classes = append(out.Classes, c)
		}
		out.Cells = append(out.Cells, p.Cells...)
	}
	return out
}

// BenchmarkStages leaves out one stage at a time, with the engine's budget: sums over all workloads, over small questions, and over questions of
// equal parts. Less work is no gain by itself where the price is higher.
func BenchmarkStages(b *testing.B) {
	var large, few []*Problem
	for _, row := range rows {
		if !row.fast && row.ms < 1000 {
			large = append(large, problem(b, row.name, false), problem(b, row.name, true))
		}
	}
	large = append(large, problemIn(b, "many5000", false, anyFamily), problemIn(b, "many5000", true, anyFamily))
	large = append(large, alike(problem(b, "zonespread", true)), alike(problem(b, "hostanti", false)))
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		few = append(few, small(b, rng, []string{"many5000", "classes20", "few5", "few3"}[i%4], i%8 >= 4, []int{3, 10, 30, 60, 100, 120}[i%6]))
	}
	for without := stage(0); without < stages; without = max(1, 2*without) {
		name := "nothing"
		if without > 0 {
			name = stageNames[without]
		}
		b.Run("without "+name, func(b *testing.B) {
			for b.Loop() {
				sumUp(b, "", large, without)
				sumUp(b, "small-", few, without)
			}
		})
	}
}

func sumUp(b *testing.B, prefix string, of []*Problem, without stage) {
	var price, bound int64
	var spent work.Units
	for _, p := range of {
		r := Solve(p, Options{Gain: gain, CloseMillionths: 1500, Least: work.Second * 5 / 16, Most: work.Second * 5 / 4, Exact: work.Second / 12, without: without})
		if err := verify.Verify(p, r.Certificate); err != nil {
			b.Fatal(err)
		}
		price, bound, spent = price+r.Price, bound+r.Bound(), spent+r.Work
	}
	b.ReportMetric(float64(price)/1e9, prefix+"$/h")
	b.ReportMetric(100*(float64(price)/float64(bound)-1), prefix+"gap-%")
	b.ReportMetric(float64(spent)/1e6, prefix+"work-ms")
}
