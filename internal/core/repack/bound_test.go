package repack

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/solve"
)

// fewest tries every order in which n pods may come to the domains, and returns the fewest that ever came to each.
func fewest(before []int32, skew int32, n int) []int {
	best := slices.Repeat([]int{n}, len(before))
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
				best[d] = min(best[d], int(now[d]-before[d]))
			case now[d]+1-slices.Min(now) <= skew:
				next := slices.Clone(now)
				next[d]++
				come(next, left-1)
			}
		}
	}
	come(before, n)
	return best
}

func TestLeastOfIsNeverMoreThanAPlanPuts(t *testing.T) {
	for _, before := range [][]int32{{0, 0, 0}, {3, 0, 0}, {5, 4, 1}, {2, 2, 0}, {0, 7, 3}} {
		for skew := int32(1); skew <= 3; skew++ {
			for n := range 20 {
				p := &solve.Problem{
					Keys:   []solve.Key{{Name: "zone", Values: []string{"a", "b", "c"}}},
					Groups: []spread.Group{{MaxSkew: skew, Universe: bits.Full(2), Count: before}},
				}
				q := &question{p: p}
				least, found := q.leastOf(0, bits.Of(3, 2), n), fewest(before, skew, n)
				for d := range least {
					if least[d] > found[d] {
						t.Errorf("%v, skew %d, %d pods: domain %d gets %d at least, but a plan puts %d there", before, skew, n, d, least[d], found[d])
					}
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
