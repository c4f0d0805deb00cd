package lp

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSimplexPricesProveItsValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for turn := range 500 {
		m := 1 + rng.IntN(8)
		rows, start := make([]Row, m), make([]Column, m)
		for i := range m {
			rows[i].Bound = float64(1 + rng.IntN(50))
			start[i] = Column{[]int{i}, []float64{1}, 1000}
		}
		lp := NewSimplex(rows, start)
		for range 3 * m {
			var c Column
			for i := range m {
				if rng.IntN(2) == 0 {
					c.Rows, c.Vals = append(c.Rows, i), append(c.Vals, float64(1+rng.IntN(5)))
				}
			}
			c.Cost = float64(1 + rng.IntN(20))
			lp.Add(c)
		}
		lp.Optimize(func() bool { return true })
		var dual float64
		for i := range m {
			if lp.y[i] < -1e-6 {
				t.Fatalf("turn %d: price %v", turn, lp.y)
			}
			dual += lp.y[i] * rows[i].Bound
		}
		for j := range lp.cols {
			if lp.reduced(j) < -1e-6 {
				t.Fatalf("turn %d: column %d has reduced cost %v", turn, j, lp.reduced(j))
			}
		}
		if math.Abs(dual-lp.Value()) > 1e-6*(1+dual) {
			t.Fatalf("turn %d: value %v, dual %v", turn, lp.Value(), dual)
		}
	}
}
