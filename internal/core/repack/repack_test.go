package repack_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/testing/problems"
)

const root = "../../.."

func left(r *problem.Result) (n int) {
	for _, l := range r.Left {
		n += l
	}
	return n
}

// In every scenario the result keeps all rules, its bound is no more than its cost, and it is no worse than the first placement: it
// leaves no more pods over, and where it leaves as many it costs no more.
func TestResultsKeepTheRulesAndAreNoWorseThanTheFirstPlacement(t *testing.T) {
	proven, cheaper := 0, 0
	problems.Each(t, root, func(t *testing.T, compile func() *problem.Problem) {
		p := compile()
		_, first := solve.Place(compile())
		r := repack.Run(p)
		if err := solve.Check(p, r); err != nil {
			t.Error(err)
		}
		if bound := max(r.Volume, r.Config); bound > r.Cost && len(r.Bins) > 0 {
			t.Errorf("the bound %d is above the cost %d", bound, r.Cost)
		} else if bound > 0 {
			proven++
		}
		if left(r) > left(first) || left(r) == left(first) && r.Cost > first.Cost {
			t.Errorf("it leaves %d pods and costs %d; the first placement left %d and cost %d", left(r), r.Cost, left(first), first.Cost)
		}
		if left(r) == left(first) && r.Cost < first.Cost {
			cheaper++
		}
	})
	if proven < 100 || cheaper < 5 {
		t.Errorf("%d results have a bound and %d are cheaper than the first placement: too few to say anything", proven, cheaper)
	}
}

// The same problem has the same result, and without a search or a bound the rules hold as well.
func TestResultsAreRepeatable(t *testing.T) {
	problems.Each(t, root, func(t *testing.T, compile func() *problem.Problem) {
		p := compile()
		a, b := repack.Run(p), repack.Run(compile())
		if diff := cmp.Diff([]any{a.Cost, a.Volume, a.Config, a.Left, len(a.Bins)}, []any{b.Cost, b.Volume, b.Config, b.Left, len(b.Bins)}); diff != "" {
			t.Errorf("two runs differ: %s", diff)
		}
		for _, edit := range []func(*problem.Settings){
			func(s *problem.Settings) { s.FirstFit = true },
			func(s *problem.Settings) { s.Unproven = true },
		} {
			p := compile()
			edit(&p.Settings)
			r := repack.Run(p)
			if err := solve.Check(p, r); err != nil {
				t.Error(err)
			}
			if p.Settings.FirstFit && r.Config > 0 {
				t.Error("there is a bound without a search")
			}
			if left(r) > left(a) && !p.Settings.FirstFit && !slices.Equal(r.Left, a.Left) {
				t.Errorf("without a proof it leaves %d pods over, else %d", left(r), left(a))
			}
		}
	})
}
