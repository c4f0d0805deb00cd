package worth

import (
	"math"
	"math/rand/v2"
	"testing"

	"karpenter.sh/karpenter/internal/core/pack/lp"
)

const gib = 1 << 30

func TestFind(t *testing.T) {
	small, compute, memory := Machine{Amounts{1000, 4 * gib}, 1}, Machine{Amounts{4000, 4 * gib}, 2}, Machine{Amounts{1000, 16 * gib}, 2}
	for name, tc := range map[string]struct {
		machines []Machine
		demand   Amounts
		want     float64 // of the demand
	}{
		"nothing is sold":               {nil, Amounts{1000, gib}, 0},
		"one machine, and its contents": {[]Machine{small}, Amounts{1000, 4 * gib}, 1},
		"memory decides":                {[]Machine{small}, Amounts{100, 8 * gib}, 2},
		"cores decide":                  {[]Machine{small}, Amounts{3000, gib}, 3},
		"only cores":                    {[]Machine{small}, Amounts{3000, 0}, 3},
		"nothing":                       {[]Machine{small}, Amounts{}, 0},
		"the cheapest of two":           {[]Machine{small, {small.Room, 0.5}}, Amounts{1000, 4 * gib}, 0.5},
		"cores of one and memory of another together": {[]Machine{compute, memory}, Amounts{5000, 20 * gib}, 4},
		"a machine without memory":                    {[]Machine{{Amounts{1000, 0}, 1}}, Amounts{1000, 0}, 1},
		"a machine that nobody would buy":             {[]Machine{small, {Amounts{1000, gib}, 9}}, Amounts{1000, 4 * gib}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Find(tc.machines, tc.demand).Of(tc.demand); math.Abs(got-tc.want) > 0.02*tc.want {
				t.Errorf("the demand is worth %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFindAgreesWithTheLP has random markets priced by a simplex too. Where that says that one resource is worth nothing, a thousandth of the worth is it all the same.
func TestFindAgreesWithTheLP(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var machines []Machine
		rows := []lp.Row{{Bound: 1 + 9*rng.Float64()}, {Bound: 4 + 40*rng.Float64()}} // cores, GiB
		start := []lp.Column{{Rows: []int{0}, Vals: []float64{1}, Cost: 1e6}, {Rows: []int{1}, Vals: []float64{1}, Cost: 1e6}}
		program := lp.NewSimplex(rows, start)
		for range 1 + rng.IntN(12) {
			cores, price := 1+rng.Float64()*63, 0.1+rng.Float64()*4
			memory := cores * (2 + 6*rng.Float64())
			machines = append(machines, Machine{Amounts{cores * 1000, memory * gib}, price})
			program.Add(lp.Column{Rows: []int{0, 1}, Vals: []float64{cores, memory}, Cost: price})
		}
		program.Optimize(func() bool { return true })
		want := program.Price(0)*rows[0].Bound + program.Price(1)*rows[1].Bound
		demand := Amounts{rows[0].Bound * 1000, rows[1].Bound * gib}
		prices := Find(machines, demand)
		if got := prices.Of(demand); got > want*(1+1e-9) || got < want*0.99 {
			t.Errorf("seed %d: the demand is worth %v, by the LP %v", seed, got, want)
		}
		for _, m := range machines {
			if prices.Of(m.Room) > m.Price*(1+1e-9) {
				t.Errorf("seed %d: a machine at %v holds %v", seed, m.Price, prices.Of(m.Room))
			}
		}
	}
}
