package repack

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// extremes tries every order in which n pods may come to the domains, and returns the fewest and the most that ever came to each.
func extremes(before []int32, skew int32, n int) (fewest, most []int) {
	fewest, most = slices.Repeat([]int{n}, len(before)), make([]int, len(before))
	seen := map[[3]int32]bool{}
	var come func(now []int32, left int)
	come = func(now []int32, left int) {
		if seen[[3]int32(now)] {
			return
		}
		seen[[3]int32(now)] = true
		for d := range now {
			switch {
			case left == 0:
				fewest[d], most[d] = min(fewest[d], int(now[d]-before[d])), max(most[d], int(now[d]-before[d]))
			case now[d]+1-slices.Min(now) <= skew:
				next := slices.Clone(now)
				next[d]++
				come(next, left-1)
			}
		}
	}
	come(before, n)
	return fewest, most
}

func TestLeastOfIsNeverMoreThanAPlanPutsNorLess(t *testing.T) {
	for _, before := range [][]int32{{0, 0, 0}, {3, 0, 0}, {5, 4, 1}, {2, 2, 0}, {0, 7, 3}} {
		for skew := int32(1); skew <= 3; skew++ {
			for n := range 20 {
				p := &problem.Problem{
					Keys:   []problem.Key{{Name: "zone", Values: []string{"a", "b", "c"}}},
					Groups: []spread.Group{{MaxSkew: skew, Universe: bits.Full(2), Count: before}},
				}
				q := &question{p: p}
				least, more := q.leastOf(0, bits.Of(3, 2), n)
				fewest, most := extremes(before, skew, n)
				for d := range least {
					if least[d] > fewest[d] || least[d]+more < most[d] {
						t.Errorf("%v, skew %d, %d pods: domain %d gets %d and at most %d more, but plans put %d to %d there", before, skew, n, d, least[d], more, fewest[d], most[d])
					}
				}
				if even := !slices.ContainsFunc(before, func(n int32) bool { return n > 0 }); even && skew == 1 && more > 1 {
					t.Errorf("%v, skew %d, %d pods: any domain gets %d more", before, skew, n, more)
				}
				if total, want := sum(least), n-3*int(skew); total < want {
					t.Errorf("%v, skew %d, %d pods: only %d of them are known to be somewhere", before, skew, n, total)
				}
			}
		}
	}
}

func sum(of []int) (n int) {
	for _, x := range of {
		n += x
	}
	return n
}
