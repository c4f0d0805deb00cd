package pack

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

func TestAKnownFleetNeverGetsDearer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for turn := range 300 {
		p := randomProblem(rng)
		for c := range p.Cells { // a fleet to start with may be of such cells only where they are open to all
			p.Cells[c].Over = 0
		}
		first := Solve(p, Options{})
		if !complete(first) {
			continue
		}
		b := newBudget(Options{})
		known := newSolution(split(p), b, 0)
		for _, r := range known.runs {
			r.warm(first.Fleet)
		}
		again := known.result(p, b)
		if again.Price > first.Price || !complete(again) {
			t.Fatalf("turn %d: %d from a fleet of %d\n%+v\n%+v\n%+v", turn, again.Price, first.Price, p, first, again)
		}
		if err := verify.Check(p, again.Fleet, again.Left); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
	}
}

func complete(r *Result) bool {
	for _, n := range r.Left {
		if n > 0 {
			return false
		}
	}
	return true
}

func TestACutRunIsRepeatedByItsWork(t *testing.T) {
	p := problem(t, "hostanti", true)
	for _, after := range []int{1, 7, 150, 600, 1500} {
		asked := 0
		clock := work.NewMeter(0, func() bool { asked++; return asked > after })
		cut := Solve(p, Options{Gain: gain, Meter: clock})
		if !cut.Partial {
			t.Fatalf("after %d: not partial", after)
		}
		if err := verify.Check(p, cut.Fleet, cut.Left); err != nil {
			t.Fatalf("after %d: %v", after, err)
		}
		if !complete(cut) {
			t.Errorf("after %d: items left", after)
		}
		again := Solve(p, Options{Gain: gain, Meter: work.NewMeter(clock.CutAt(), nil)})
		if !reflect.DeepEqual(cut, again) {
			t.Errorf("after %d: %d units give %d and %d the second time", after, clock.CutAt(), cut.Price, again.Price)
		}
	}
}

func TestSolveLeavesTheProblemAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 50 {
		seed := rng.Uint64()
		p := randomProblem(rand.New(rand.NewPCG(seed, 1)))
		q := randomProblem(rand.New(rand.NewPCG(seed, 1)))
		a, b := Solve(p, Options{}), Solve(p, Options{})
		if !reflect.DeepEqual(p, q) {
			t.Fatal("the problem has changed")
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatal("two runs differ")
		}
	}
}

func TestCertificateOfAnotherBoundIsRefused(t *testing.T) {
	p := problem(t, "few3", false)
	r := Solve(p, Options{Gain: gain})
	for name, spoil := range map[string]func(*Certificate){
		"a bound that is higher by one nano-dollar too many": func(c *Certificate) { c.Bound += c.Bound/1000 + 1 },
		"an item worth more than its machine":                func(c *Certificate) { c.Worth[0] *= 2 },
		"a negative worth":                                   func(c *Certificate) { c.Worth[1] = -1 },
		"worths for other classes":                           func(c *Certificate) { c.Worth = c.Worth[1:] },
	} {
		c := r.Certificate
		c.Worth = append([]int64(nil), c.Worth...)
		spoil(&c)
		if verify.Verify(p, c) == nil {
			t.Errorf("%s passes", name)
		}
	}
	if err := verify.Verify(p, r.Certificate); err != nil {
		t.Error(err)
	}
}

func TestBoundAloneIsProvenAndBelowTheFleet(t *testing.T) {
	for _, name := range []string{"few3", "few5", "zonespread", "hostanti"} {
		for _, spot := range []bool{false, true} {
			p := problem(t, name, spot)
			proof := Bound(p, Options{Gain: gain})
			bound := proof.Bound()
			if err := verify.Verify(p, proof.Certificate); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			r := Solve(p, Options{Gain: gain, Fast: true})
			volume := proof.VolumeBound
			if volume != r.VolumeBound || bound < volume || bound > r.Price {
				t.Errorf("%s: bound %d, volume bound %d and %d, price %d", name, bound, volume, r.VolumeBound, r.Price)
			}
		}
	}
}

// A large cell may be opened by an item that fits nowhere else, and then others ride along: a bound must know that, even if that
// item itself is worth nothing.
func TestBoundKnowsWhoRidesAlongOnALargeCell(t *testing.T) {
	p := &Problem{
		Classes: []Class{{Need: []int64{1, 0}, Count: 3}, {Need: []int64{0, 10}, Count: 30, PerNode: 1}},
		Cells:   []Cell{{Room: []int64{1, 10}, Price: 0, Over: 1}, {Room: []int64{0, 10}, Price: 1000}},
	}
	r := Solve(p, Options{Gain: 1000})
	if err := verify.Check(p, r.Fleet, r.Left); err != nil {
		t.Fatal(err)
	}
	if err := verify.Verify(p, r.Certificate); err != nil {
		t.Error(err)
	}
	if r.Price != 27_000 || r.Bound() > 27_000 {
		t.Errorf("price %d, bound %d, want 27000: three of thirty ride along for nothing", r.Price, r.Bound())
	}
	bold := Certificate{Bound: 30_000, Worth: []int64{0, 1000}}
	if verify.Verify(p, bold) == nil {
		t.Error("a bound that forgets who rides along passes")
	}
}

func TestItemsWorthNothingArePlacedToo(t *testing.T) {
	p := &Problem{
		Classes: []Class{{Need: []int64{1}, Count: 4, PerNode: 1}, {Need: []int64{0}, Count: 2}},
		Cells:   []Cell{{Room: []int64{9}, Price: 0, Stock: 2}, {Room: []int64{2}, Price: 50}},
	}
	for _, fast := range []bool{true, false} {
		r := Solve(p, Options{Fast: fast})
		if err := verify.Check(p, r.Fleet, r.Left); err != nil {
			t.Fatal(err)
		}
		if !complete(r) || r.Price != 100 {
			t.Errorf("price %d, left %v, want everything for 100", r.Price, r.Left)
		}
	}
}

// Once the fluid LP has proven what column generation is about to, deeper knapsacks are not asked for; and rounding, which asks for columns
// but for no proof, never asks for them.
func TestKnapsacksGoNoDeeperThanTheBoundIsWorth(t *testing.T) {
	for _, spot := range []bool{false, true} {
		r := Solve(problem(t, "classes20", spot), Options{Gain: gain, CloseMillionths: 1500, Least: work.Second * 5 / 16, Most: work.Second * 5 / 4})
		if most := work.Second / 25; r.Work > most || r.Gap() > 1e-3 {
			t.Errorf("spot=%v: %d units of work and a gap of %.3f %%, want at most %d and 0.1 %%", spot, r.Work, 100*r.Gap(), most)
		}
	}
}

// Who knows a fleet that is close enough to the bound gets the bound, and no other fleet. Cells that are too large may make one worthwhile all the same.
func TestBesideAFleetThatIsCloseNoneIsLookedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		known int64
		large int64 // price of a cell that is too large for all
		want  int64 // 0 for no fleet
	}{
		"no fleet is known":                      {0, 0, 30_000},
		"one is close enough":                    {30_045, 0, 0},
		"one is not":                             {30_046, 0, 30_000},
		"larger cells lower the bill":            {30_045, 900, 27_000},
		"larger cells are hardly cheaper":        {30_045, 999, 30_000},
		"larger cells are not cheaper":           {30_045, 1000, 0},
		"one is cheaper than any fleet there is": {100, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Problem{Classes: []Class{{Need: []int64{1}, Count: 300}}, Cells: []Cell{{Room: []int64{10}, Price: 1000}}}
			if tc.large > 0 {
				p.Cells = append(p.Cells, Cell{Room: []int64{10}, Price: tc.large, Over: 1})
			}
			r := Solve(p, Options{Price: tc.known, CloseMillionths: 1500, Gain: 10, Known: Answers{{}}})
			if r.Price != tc.want || complete(r) != (tc.want > 0) {
				t.Errorf("a fleet for %d, %d items left; want one for %d", r.Price, r.Left, tc.want)
			}
			if err := verify.Verify(p, r.Certificate); err != nil || r.Bound() > 30_000 || r.Bound() < 26_999 {
				t.Errorf("bound %d: %v", r.Bound(), err)
			}
			if len(r.Known) != 1 {
				t.Errorf("%d answers are known, want that of before", len(r.Known))
			}
		})
	}
}
