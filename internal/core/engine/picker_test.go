package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/problem"
)

// Who goes to a place are those who were planned onto it, then those of no plan, then those of other places, each in their order. What is
// left stays in that order.
func TestThoseWhoWerePlannedOntoANodeGoThereFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		onto := map[cluster.PodKey]problem.BinID{}
		var pods []*cluster.Pod
		for i := range 1 + random.IntN(30) {
			p := &cluster.Pod{PodKey: cluster.PodKey{Name: fmt.Sprint(i)}}
			if random.IntN(3) == 0 {
				onto[p.PodKey] = problem.BinID(random.IntN(4))
			}
			pods = append(pods, p)
		}
		left := slices.Clone(pods)
		b := &raiser{Compiled: &compile.Compiled{Classes: []compile.Class{{Pods: pods, Sticky: onto}}}}
		picks := b.newPicker()
		for len(left) > 0 && random.IntN(8) > 0 {
			bin, n := problem.BinID(random.IntN(5)), 1+random.IntN(len(left))
			slices.SortStableFunc(left, func(x, y *cluster.Pod) int { return rank(onto, x, bin) - rank(onto, y, bin) })
			if got := picks.take(0, bin, n); !slices.Equal(got, left[:n]) {
				t.Fatalf("for bin %d: %v, want %v", bin, got, left[:n])
			}
			left = slices.Clone(left[n:])
		}
		slices.SortStableFunc(left, func(x, y *cluster.Pod) int { return rank(onto, x, -1) - rank(onto, y, -1) })
		if got := picks.rest(0); !slices.Equal(got, left) {
			t.Fatalf("left over: %v, want %v", got, left)
		}
	}
}

func rank(onto map[cluster.PodKey]problem.BinID, p *cluster.Pod, bin problem.BinID) int {
	switch at, planned := onto[p.PodKey]; {
	case planned && at == bin:
		return 0
	case !planned:
		return 1
	}
	return 2
}
