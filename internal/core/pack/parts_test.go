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

// bestContents tries everything, with at least one item of the class forced, if that is none below 0. Where there is no such thing it is far below 0.
func bestContents(p *part, worth []int64, k, forced int, room []int64, on []int) int64 {
	if k == p.classes() {
		return 0
	}
	best, least := int64(-1<<40), 0
	if k == forced {
		least = 1
	}
	for n := least; n <= holds(p.needs(k), room, p.limit[k]); n++ {
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
		best = max(best, worth[k]*int64(n)+bestContents(p, worth, k+1, forced, left, on))
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
		k := newKnapsack(p)
		for forced := -1; forced < p.classes(); forced++ {
			want := bestContents(p, worth, 0, forced, p.cells[0].room, make([]int, p.classes()))
			for _, tc := range []struct{ looks, deep int }{{0, 0}, {3, 0}, {100_000, 0}, {0, 2}, {3, 20}, {0, 100_000}} {
				k.deep = tc.deep
				upper := k.search(0, value, p.limit, 0, forced, tc.looks)
				found := k.found.worth(value)
				if upper < float64(want)-1e-6 || found > float64(max(want, 0)) || max(tc.looks, tc.deep) > 20 && found != float64(max(want, 0)) {
					t.Fatalf("turn %d, %d looks and %d questions, forced %d: knapsack found %v, at most %v, want %d\n%+v", turn, tc.looks, tc.deep, forced, found, upper, want, p)
				}
			}
		}
	}
}

// TestAKnapsackIsDividedWhereLooksSayNothing has machines as they are where most pods share eight GPUs: looks all begin with the one very large
// item, and their ceiling stays where it was.
func TestAKnapsackIsDividedWhereLooksSayNothing(t *testing.T) {
	p, value := &part{dims: 3, groups: 1, cells: []cell{{room: []int64{191, 702, 8}, price: 133_500, open: bits.Set{1}}}}, []float64(nil)
	for _, item := range [][3]int64{ // processors, GiB, and worth at some turn of column generation
		{64, 500, 114353}, {32, 256, 58417}, {1, 3, 1926}, {1, 4, 2040}, {2, 4, 2015}, {2, 6, 2071}, {1, 6, 2040}, {4, 8, 2189}, {1, 8, 2189}, {2, 8, 2156},
		{1, 2, 1178}, {2, 12, 2303}, {6, 12, 2303}, {4, 12, 2264}, {8, 16, 2354}, {2, 16, 2339}, {6, 18, 2385}, {10, 20, 2514}, {12, 24, 2611}, {4, 24, 2562},
		{10, 30, 2725}, {8, 32, 2830}, {6, 36, 2936}, {10, 40, 3067}, {64, 192, 13279}, {12, 48, 3326}, {6, 48, 3326}, {16, 48, 3276}, {24, 48, 3261}, {8, 64,
			3748}, {16, 64, 3711}, {32, 64, 3682}, {12, 72, 3963}, {10, 80, 4187}, {12, 96, 4525}, {16, 128, 5465}, {24, 144, 6035}, {48, 144, 5895},
	} {
		value = append(value, float64(item[2]))
		p.need = append(p.need, item[0], item[1], 1)
		p.count, p.limit, p.group, p.least = append(p.count, 99), append(p.limit, 99), append(p.group, 0), append(p.least, 0)
	}
	k := newKnapsack(p)
	looked := k.search(0, value, p.limit, 0, -1, 200_000)
	k.deep = searchDeep
	divided := k.search(0, value, p.limit, 0, -1, searchNodes)
	found := k.found.worth(value)
	t.Logf("200,000 looks: at most %.0f; %d looks and %d questions: at most %.0f, and %.0f is found", looked, searchNodes, searchDeep, divided, found)
	if divided > found*1.01 || divided > looked {
		t.Errorf("at most %.0f, and %.0f is found: want them within a percent; looks say at most %.0f", divided, found, looked)
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
		f.setWorth(v)
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
	tree.setItems(rem)
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
