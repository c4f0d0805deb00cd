package pack

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// An exact solver for problems of a few items: it tries every way to split them over nodes.
type exact struct {
	p     *Problem
	items []int // class of each item
	over  int
	least []int    // per class: how many steps too large the best cell is that it fits
	hold  [][]bool // cell, set of items
	memo  map[exactKey]int64
}

type exactKey struct {
	set   int
	stock [6]int
	limit int64
}

const never = math.MaxInt64 / 4

func newExact(p *Problem, over int) *exact {
	e := &exact{p: p, over: over, memo: make(map[exactKey]int64)}
	for k, c := range p.Classes {
		for range c.Count {
			e.items = append(e.items, k)
		}
		least := math.MaxInt
		for i, cell := range p.Cells {
			if (c.Cells == nil || c.Cells.Has(i)) && fits(c.Need, cell.Room) {
				least = min(least, cell.Over)
			}
		}
		e.least = append(e.least, least)
	}
	e.hold = make([][]bool, len(p.Cells))
	for c := range p.Cells {
		e.hold[c] = make([]bool, 1<<len(e.items))
		for set := range e.hold[c] {
			e.hold[c][set] = set > 0 && e.holds(c, set)
		}
	}
	return e
}

func (e *exact) holds(c, set int) bool {
	counts := make([]int, len(e.p.Classes))
	least := 0
	for i, k := range e.items {
		if set>>i&1 == 1 {
			counts[k]++
			least = max(least, e.least[k])
		}
	}
	if e.p.Cells[c].Over > max(e.over, least) {
		return false
	}
	pat := Pattern{Cell: c, Nodes: 1}
	for k, n := range counts {
		if n > 0 {
			pat.Items = append(pat.Items, Item{Class: k, Count: n})
		}
	}
	left := make([]int, len(counts))
	for k, n := range counts {
		left[k] = e.p.Classes[k].Count - n
	}
	return verify.Check(e.p, []Pattern{pat}, left) == nil
}

// holdsPattern says whether its contents let a node be as large.
func (e *exact) holdsPattern(pat Pattern) bool {
	if e.p.Cells[pat.Cell].Over <= e.over {
		return true
	}
	for _, it := range pat.Items {
		if e.least[it.Class] >= e.p.Cells[pat.Cell].Over {
			return true
		}
	}
	return false
}

// best is the least price for a set of items with what is used of stock and limit so far.
func (e *exact) best(key exactKey) int64 {
	if key.set == 0 {
		return 0
	}
	if v, ok := e.memo[key]; ok {
		return v
	}
	low := int64(never)
	first := key.set & -key.set
	rest := key.set ^ first
	for sub := rest; ; sub = (sub - 1) & rest {
		set := sub | first
		for c, cell := range e.p.Cells {
			if !e.hold[c][set] {
				continue
			}
			next := key
			next.set ^= set
			if cell.Stock > 0 {
				if next.stock[c]++; next.stock[c] > cell.Stock {
					continue
				}
			}
			if len(e.p.Limits) > 0 {
				if next.limit += e.p.Limits[0].Use[c]; next.limit > e.p.Limits[0].Max {
					continue
				}
			}
			if cell.Price < low {
				low = min(low, cell.Price+e.best(next))
			}
		}
		if sub == 0 {
			break
		}
	}
	e.memo[key] = low
	return low
}

func (e *exact) optimum() int64 { return e.best(exactKey{set: 1<<len(e.items) - 1}) }

// randomProblem makes problems with up to nine items and six cells and now and then every kind of constraint.
func randomProblem(rng *rand.Rand) *Problem {
	p := &Problem{}
	dims := 1 + rng.IntN(3)
	vector := func(most int) []int64 {
		v := make([]int64, dims)
		for d := range v {
			v[d] = int64(rng.IntN(most + 1))
		}
		return v
	}
	for i := range 1 + rng.IntN(6) {
		room := vector(14)
		var size int64
		for d := range room {
			room[d] += int64(1 + i)
			size += room[d]
		}
		c := Cell{Room: room, Over: int(size / 20), Price: size*int64(700+rng.IntN(600)) + int64(rng.IntN(3000))}
		if rng.IntN(6) == 0 {
			c.Stock = 1 + rng.IntN(2)
			if rng.IntN(2) == 0 {
				c.Price = 0
			}
		}
		p.Cells = append(p.Cells, c)
	}
	left := 1 + rng.IntN(8)
	for left > 0 {
		n := min(left, 1+rng.IntN(4))
		left -= n
		c := Class{Need: vector(7), Count: n}
		if rng.IntN(4) == 0 {
			c.PerNode = 1 + rng.IntN(2)
		}
		if rng.IntN(4) == 0 {
			c.Cells = bits.Make(len(p.Cells))
			for i := range p.Cells {
				if rng.IntN(3) > 0 {
					c.Cells.Add(i)
				}
			}
		}
		p.Classes = append(p.Classes, c)
	}
	if n := len(p.Classes); n > 1 && rng.IntN(4) == 0 {
		p.Conflicts = append(p.Conflicts, [2]int{rng.IntN(n), rng.IntN(n)})
	}
	if rng.IntN(6) == 0 {
		l := Limit{Max: int64(10 + rng.IntN(60))}
		for _, c := range p.Cells {
			l.Use = append(l.Use, c.Room[0])
		}
		p.Limits = append(p.Limits, l)
	}
	return p
}

func TestBoundNeverExceedsTheOptimumAndTheOptimumNeverExceedsUs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	solved, optimal, exact, proven := 0, 0, 0, 0
	for turn := range 1200 {
		p := randomProblem(rng)
		for c := range p.Cells { // one of three problems has cells that are too large
			if turn%3 > 0 {
				p.Cells[c].Over = 0
			}
		}
		r := Solve(p, Options{Gain: gain, Fast: turn%5 == 4, Exact: work.Units(1-turn%2) * work.Second / 12})
		if err := verify.Check(p, r.Fleet, r.Left); err != nil {
			t.Fatalf("turn %d: %v\n%+v\n%+v", turn, err, p, r)
		}
		if err := verify.Verify(p, r.Certificate); err != nil {
			t.Fatalf("turn %d: %v\n%+v\n%+v", turn, err, p, r)
		}
		ex := newExact(p, r.Certificate.Over)
		opt := ex.optimum()
		left := 0
		for _, n := range r.Left {
			left += n
		}
		if left > 0 {
			if opt < never && len(p.Limits) == 0 {
				t.Errorf("turn %d: %d left, but an optimum of %d exists\n%+v\n%+v", turn, left, opt, p, r)
			}
			continue
		}
		solved++
		if r.Price == opt {
			optimal++
		}
		if turn%2 == 0 && len(p.Limits)+len(p.Conflicts) == 0 && !slices.ContainsFunc(p.Cells, func(c Cell) bool { return c.Stock > 0 }) {
			if exact++; float64(r.ConfigBound) >= float64(opt)*0.998 { // whole nano-dollars are lost in prices of a few thousand
				proven++
			}
		}
		for _, f := range r.Fleet {
			if !ex.holdsPattern(f) {
				t.Errorf("turn %d: %+v is too large for its contents", turn, f)
			}
		}
		if r.Price < opt || r.Bound() > opt || r.Certificate.Bound > opt {
			t.Fatalf("turn %d: bound %d, optimum %d, ours %d\n%+v\n%+v", turn, r.Bound(), opt, r.Price, p, r)
		}
	}
	t.Logf("%d of %d optimal", optimal, solved)
	t.Logf("%d of %d proven to be optimal", proven, exact)
	if proven*100 < exact*90 {
		t.Errorf("only %d of %d small problems are proven to be optimal", proven, exact)
	}
	if optimal*100 < solved*90 {
		t.Errorf("only %d of %d small problems solved to the optimum", optimal, solved)
	}
}
