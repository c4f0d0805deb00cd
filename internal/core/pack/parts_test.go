package pack

import (
	"math/rand/v2"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
)

// onePart makes a part with one cell and random classes, some of them foes.
func onePart(rng *rand.Rand) *part {
	p := &part{dims: 1 + rng.IntN(3), groups: 1}
	c := cell{open: bits.Set{1}, price: 1}
	for range p.dims {
		c.room = append(c.room, int64(rng.IntN(25)))
	}
	p.cells = []cell{c}
	for range 1 + rng.IntN(5) {
		for range p.dims {
			p.need = append(p.need, int64(rng.IntN(8)))
		}
		n := 1 + rng.IntN(4)
		p.count, p.limit, p.group, p.least = append(p.count, n), append(p.limit, n), append(p.group, 0), append(p.least, 0)
	}
	if k := p.classes(); k > 1 && rng.IntN(2) == 0 {
		p.addFoes([][2]int{{0, k - 1}}, map[int]int{0: 0, k - 1: k - 1})
	}
	return p
}

// bestContents tries everything.
func bestContents(p *part, worth []int64, k int, room []int64, on []int) int64 {
	if k == p.classes() {
		return 0
	}
	var best int64
	for n := 0; n <= holds(p.needs(k), room, p.limit[k]); n++ {
		on[k] = n
		if p.foes != nil && n > 0 {
			foe := false
			for _, f := range p.foes[k] {
				foe = foe || f < k && on[f] > 0
			}
			if foe {
				break
			}
		}
		left := make([]int64, len(room))
		for d, u := range p.needs(k) {
			left[d] = room[d] - u*int64(n)
		}
		best = max(best, worth[k]*int64(n)+bestContents(p, worth, k+1, left, on))
	}
	on[k] = 0
	return best
}

func TestKnapsackAgreesWithTryingEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for turn := range 3000 {
		p := onePart(rng)
		worth, value := make([]int64, p.classes()), make([]float64, p.classes())
		for k := range worth {
			worth[k] = int64(rng.IntN(1000))
			value[k] = float64(worth[k])
		}
		want := bestContents(p, worth, 0, p.cells[0].room, make([]int, p.classes()))
		k := newKnapsack(p)
		for _, nodes := range []int{0, 3, 100_000} {
			upper := k.search(0, value, p.limit, 0, -1, nodes)
			found := k.found.worth(value)
			if upper < float64(want)-1e-6 || found > float64(want) || nodes > 3 && found != float64(want) {
				t.Fatalf("turn %d: knapsack found %v, at most %v, want %d\n%+v", turn, found, upper, want, p)
			}
		}
	}
}

func TestGreedyFillingsFitAndKeepFoesApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for turn := range 3000 {
		p := onePart(rng)
		f := newFiller(p)
		v := make([]float64, p.classes())
		for k := range v {
			v[k] = rng.Float64()
		}
		f.guide = guide{rng.Float64(), 0}
		f.value(v)
		f.begin(p.count, nil)
		l := f.fill(0, p.count, -1, nil)
		use := make([]int64, p.dims)
		on := make([]int, p.classes())
		for i, k := range l.classes {
			on[k] += l.counts[i]
			for d, u := range p.needs(k) {
				use[d] += u * int64(l.counts[i])
			}
		}
		if !fits(use, p.cells[0].room) {
			t.Fatalf("turn %d: %v in %v", turn, use, p.cells[0].room)
		}
		for k, n := range on {
			if n > p.limit[k] {
				t.Fatalf("turn %d: %d of class %d", turn, n, k)
			}
			if p.foes != nil && n > 0 {
				for _, x := range p.foes[k] {
					if on[x] > 0 {
						t.Fatalf("turn %d: classes %d and %d together", turn, k, x)
					}
				}
			}
		}
	}
}

func TestTreeFindsWhatGoingThroughFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	p := &part{dims: 2}
	for range 700 {
		p.need = append(p.need, int64(rng.IntN(90)), int64(rng.IntN(90)))
		p.count = append(p.count, rng.IntN(3))
	}
	worth := make([]float64, p.classes())
	for k := range worth {
		worth[k] = rng.Float64()
	}
	tree := newTree(p, worth)
	rem := append([]int(nil), p.count...)
	tree.keep(rem)
	for turn := range 3000 {
		room := []int64{int64(rng.IntN(100)), int64(rng.IntN(100))}
		low := rng.Float64() / 2
		want, high := -1, low
		for k, n := range rem {
			if n > 0 && worth[k] > high && fits(p.needs(k), room) {
				want, high = k, worth[k]
			}
		}
		if got := tree.highest(room, low, func(int) bool { return true }); got != want {
			t.Fatalf("turn %d: class %d, want %d", turn, got, want)
		}
		if k := rng.IntN(len(rem)); rem[k] > 0 && turn%3 == 0 {
			if rem[k]--; rem[k] == 0 {
				tree.remove(k)
			}
		}
	}
}
