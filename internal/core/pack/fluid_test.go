package pack

import (
	"math/rand/v2"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
)

// manyClasses makes a part of many single items and some machines, whose prices per processor and per memory differ.
func manyClasses(rng *rand.Rand, classes int) *part {
	p := &part{dims: 2, groups: 1, least: make([]int, classes)}
	for range classes {
		cpu := 1 + rng.Int64N(40)
		p.need = append(p.need, cpu, 1+cpu*(1+rng.Int64N(60))/10)
		p.count, p.limit, p.group = append(p.count, 1), append(p.limit, 1), append(p.group, 0)
	}
	p.total = classes
	for range 8 {
		cpu := 50 * (1 + rng.Int64N(8))
		ratio := 1 + rng.Int64N(8)
		price := float64(cpu*(20+ratio*5)) * (0.7 + 0.6*rng.Float64())
		p.cells = append(p.cells, cell{room: []int64{cpu, cpu * ratio}, price: int64(price * 1e6), open: bits.Set{1}})
	}
	p.cells = append(p.cells, cell{room: []int64{400, 4000}, price: 40e9, open: bits.Set{1}}) // everything fits somewhere
	return p
}

func TestDividedBucketsBoundAsWellAsOneForEveryClass(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var rough, fine float64 // how far the bounds stay behind, over all turns
	for turn := range 12 {
		p := manyClasses(rng, 150+rng.IntN(150))
		r := newRun(p, newBudget(Options{}))
		all := p.newFluid(r.open())
		all.buckets = make([]bucket, p.classes())
		for k := range all.buckets {
			all.buckets[k].add(p, k)
		}
		if !all.start() {
			t.Fatal("an item fits nowhere")
		}
		for range 40 {
			all.generate()
		}
		unit := all.unitWorth()
		worth, _, _ := p.leastWorth(unit, all.open)
		best := p.lagrange(pricing{worth, unit})
		r.refine()
		rough += 1 - r.bound()/best
		r.sharpen()
		fine += 1 - r.bound()/best
		if got := r.bound(); got < best*0.995 || got > best*(1+2*fluidGoal) {
			t.Errorf("turn %d: bound %.0f, one bucket for every class proves %.0f", turn, got, best)
		}
	}
	if fine > rough/3 || fine/12 > 1e-3 {
		t.Errorf("bounds stay %.5f behind, with buckets of equal width %.5f", fine/12, rough/12)
	}
}

func TestNoFillingIsWorthMoreThanTheCeiling(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	below := 0
	for turn := range 20 {
		p := manyClasses(rng, treeClasses+1+rng.IntN(100))
		r := newRun(p, newBudget(Options{}))
		r.sharpen()
		g := r.greedy
		copy(g.rem, p.count)
		v := make([]float64, p.classes())
		for k := range v {
			v[k] = r.worth[k] * (0.9 + 0.1*rng.Float64())
		}
		g.fill.guide = guides()[rng.IntN(len(guides()))]
		g.fill.setWorth(v)
		g.fill.begin(g.rem, nil)
		for c := range p.cells {
			most := g.ceiling(c, v, r.unit)
			if got := g.fill.fill(c, g.rem, -1, r.unit).worth(v) / float64(p.cells[c].price); got > most {
				t.Errorf("turn %d, cell %d: a filling worth %.6f of the price, ceiling %.6f", turn, c, got, most)
			}
			if most < 0.99 {
				below++
			}
		}
	}
	if below == 0 {
		t.Error("no ceiling was below 0.99: this tests nothing")
	}
}
