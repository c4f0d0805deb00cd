package pack

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// many is a question of many kinds of items, for which the fluid LP proves the bound.
func many(t testing.TB) *Problem { return problem(t, "many5000", false) }

func withCount(p *Problem, class, more int) *Problem {
	q := *p
	q.Classes = slices.Clone(p.Classes)
	q.Classes[class].Count += more
	return &q
}

func solveWithin(p *Problem, most work.Units, m *Memory) *Result {
	return Solve(p, Options{Gain: gain, Most: most, CloseMillionths: 2000, Memory: m})
}

func TestOneItemMoreIsAnsweredFromMemory(t *testing.T) {
	p := many(t)
	first := solveWithin(p, work.Second/5, nil)
	if first.Memory == nil {
		t.Fatal("nothing was remembered")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 6 {
		p = withCount(p, r.IntN(len(p.Classes)), 1-2*r.IntN(2))
		again := solveWithin(p, work.Second/5, first.Memory)
		if again.Memory != first.Memory {
			t.Fatal("the memory was not used")
		}
		if err := verify.Check(p, again.Fleet, again.Left); err != nil {
			t.Fatal(err)
		}
		if err := verify.Verify(p, again.Certificate); err != nil {
			t.Fatal(err)
		}
		if again.Work*3 > first.Work {
			t.Errorf("%d units, %d for the first answer", again.Work, first.Work)
		}
		if again.Gap() > first.Gap()+0.005 {
			t.Errorf("gap %.4f, at first %.4f", again.Gap(), first.Gap())
		}
		if !reflect.DeepEqual(again, solveWithin(p, work.Second/5, first.Memory)) {
			t.Error("the same memory gives two answers")
		}
	}
}

func TestTheSameQuestionGetsTheSameAnswer(t *testing.T) {
	p := many(t)
	first := solveWithin(p, work.Second/5, nil)
	again := solveWithin(p, work.Second/5, first.Memory)
	if again.Price != first.Price || again.Memory != first.Memory {
		t.Errorf("price %d, at first %d", again.Price, first.Price)
	}
}

func TestBoundFromMemory(t *testing.T) {
	p := many(t)
	first := Bound(p, Options{Gain: gain})
	q := withCount(p, 3, 2)
	got, fresh := Bound(q, Options{Gain: gain, Memory: first.Memory}), Bound(q, Options{Gain: gain})
	if got.Memory != first.Memory || first.Memory == nil {
		t.Fatal("the memory was not used")
	}
	if err := verify.Verify(q, got.Certificate); err != nil {
		t.Error(err)
	}
	if float64(got.Bound()) < 0.999*float64(fresh.Bound()) {
		t.Errorf("bound %d, looked at afresh %d", got.Bound(), fresh.Bound())
	}
}

func TestMemoryOfAnotherQuestionIsNotUsed(t *testing.T) {
	p := many(t)
	first := solveWithin(p, work.Second/5, nil)
	for name, edit := range map[string]func(q *Problem){
		"another price":         func(q *Problem) { q.Cells = slices.Clone(q.Cells); q.Cells[0].Price++ },
		"many items more":       func(q *Problem) { q.Classes[0].Count += 500 },
		"two that may not meet": func(q *Problem) { q.Conflicts = [][2]int{{0, 1}} },
	} {
		q := withCount(p, 0, 0)
		edit(q)
		if again := solveWithin(q, 1, first.Memory); again.Memory == first.Memory {
			t.Errorf("%s: the memory was used", name)
		}
	}
	small := withCount(p, 0, 0)
	small.Classes = small.Classes[:2]
	if solveWithin(small, 100, nil).Memory != nil {
		t.Error("a small question was remembered")
	}
}
