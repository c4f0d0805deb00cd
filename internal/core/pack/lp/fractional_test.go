package lp

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestFractionalPricesProveItsValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for turn := range 3000 {
		dims := 1 + rng.IntN(4)
		f := NewFractional(dims)
		room := make([]int64, dims)
		for d := range room {
			room[d] = int64(rng.IntN(1000))
		}
		f.Reset(room)
		n := rng.IntN(12)
		needs := make([][]float64, n)
		for j := range n {
			need := make([]float64, dims)
			for d := range need {
				need[d] = float64(rng.IntN(300))
			}
			needs[j] = need
			f.Add(need, float64(rng.IntN(1000)), float64(1+rng.IntN(9)))
		}
		got := f.Solve()
		// Weak duality: the prices of room and of the upper bounds must sell everything for exactly the value.
		var dual float64
		for d, r := range room {
			dual += f.price[d] * float64(r)
			if room[d] == 0 {
				continue
			}
		}
		for j := range n {
			gain := f.values[j]
			for d := range dims {
				gain -= f.price[d] * needs[j][d]
			}
			dual += max(gain, 0) * f.most[j]
		}
		if math.Abs(dual-got) > 1e-6*(1+got) {
			t.Fatalf("turn %d: value %v, dual %v, room %v needs %v values %v most %v", turn, got, dual, room, needs, f.values, f.most)
		}
	}
}
