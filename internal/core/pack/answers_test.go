package pack

import (
	"crypto/sha256"
	"reflect"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/work"
)

// searched is a question of few items that may not meet, for which no other memory is kept.
func searched(t testing.TB) (*Problem, Options) {
	return problem(t, "hostanti", true), Options{Gain: gain, CloseMillionths: 1500, Least: work.Second / 20, Most: work.Second / 10}
}

func TestWhatWasSearchedIsNotSearchedAgain(t *testing.T) {
	p, o := searched(t)
	first := Solve(p, o)
	if first.Work < answerWork {
		t.Fatalf("%d units of work: nothing was searched", first.Work)
	}
	o.Known = first.Known
	again := Solve(p, o)
	if again.Work > 0 || !reflect.DeepEqual(again.Fleet, first.Fleet) || again.ConfigBound != first.ConfigBound || !reflect.DeepEqual(again.Certificate, first.Certificate) {
		t.Errorf("%d units of work, price %d and bound %d; at first %d and %d", again.Work, again.Price, again.Bound(), first.Price, first.Bound())
	}
	o.Known = again.Known
	if third := Solve(p, o); third.Work > 0 {
		t.Error("it was forgotten")
	}
}

func TestAnotherQuestionIsSearched(t *testing.T) {
	for name, edit := range map[string]func(p *Problem, o *Options){
		"an item more":               func(p *Problem, _ *Options) { p.Classes[3].Count++ },
		"an item that needs more":    func(p *Problem, _ *Options) { p.Classes[3].Need[0]++ },
		"a cap for each node":        func(p *Problem, _ *Options) { p.Classes[3].PerNode = 7 },
		"a class without cells":      func(p *Problem, _ *Options) { p.Classes[3].Cells = bits.Make(len(p.Cells)) },
		"a class with one cell":      func(p *Problem, _ *Options) { p.Classes[3].Cells = bits.Set{1} },
		"another price":              func(p *Problem, _ *Options) { p.Cells[0].Price++ },
		"more room":                  func(p *Problem, _ *Options) { p.Cells[0].Room[1]++ },
		"short stock":                func(p *Problem, _ *Options) { p.Cells[0].Stock = 1 },
		"a conflict":                 func(p *Problem, _ *Options) { p.Conflicts = append(p.Conflicts, [2]int{0, 1}) },
		"a limit":                    func(p *Problem, _ *Options) { p.Limits = []Limit{{Use: make([]int64, len(p.Cells)), Max: 5}} },
		"a larger budget":            func(_ *Problem, o *Options) { o.Most *= 2 },
		"another gain asked for":     func(_ *Problem, o *Options) { o.Gain = 32 },
		"a cell is large":            func(p *Problem, _ *Options) { p.Cells[0].Over = 1 },
		"a cell has some of its own": func(p *Problem, _ *Options) { p.Cells[0].Own = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			p, o := searched(t)
			before := questionOf(p, o, 0)
			q, _ := searched(t)
			edit(q, &o)
			if questionOf(q, o, 0) == before {
				t.Error("it counts as the same question")
			}
		})
	}
}

func TestAnAnswerThatAClockCutIsNotKept(t *testing.T) {
	p, o := searched(t)
	asked := 0
	o.Meter = work.NewMeter(0, func() bool { asked++; return asked > 100 })
	if cut := Solve(p, o); !cut.Partial || len(cut.Known) > 0 {
		t.Errorf("partial %v, %d answers are kept", cut.Partial, len(cut.Known))
	}
}

func TestOldAnswersAreForgotten(t *testing.T) {
	var a Answers
	for i := range byte(100) {
		a = a.with([sha256.Size]byte{i}, &Result{Work: answerWork}, &work.Meter{})
	}
	if len(a) != mostAnswers || a.find([sha256.Size]byte{99}) == nil || a.find([sha256.Size]byte{0}) != nil {
		t.Errorf("%d answers", len(a))
	}
	if got := a.with([sha256.Size]byte{101}, &Result{Work: answerWork - 1}, &work.Meter{}); len(got) != len(a) || got.find([sha256.Size]byte{101}) != nil {
		t.Error("an answer that cost nothing is kept")
	}
}
