package verify

import (
	"math/rand/v2"
	"testing"
)

// A node is an empty room and what may be put there.
type node struct {
	dims  int
	room  []int64
	needs []int64
	worth []int64
	limit []int
	foes  [][]int
}

func randomNode(rng *rand.Rand) *node {
	n := &node{dims: 1 + rng.IntN(3)}
	for range n.dims {
		n.room = append(n.room, rng.Int64N(25))
	}
	classes := 1 + rng.IntN(5)
	for range classes {
		for range n.dims {
			n.needs = append(n.needs, rng.Int64N(8))
		}
		n.worth, n.limit = append(n.worth, rng.Int64N(1000)), append(n.limit, 1+rng.IntN(4))
	}
	if classes > 1 && rng.IntN(2) == 0 {
		n.foes = make([][]int, classes)
		n.foes[0], n.foes[classes-1] = []int{classes - 1}, []int{0}
	}
	return n
}

// best tries every number of every class from k on.
func (n *node) best(k int, room []int64, on []int) int64 {
	if k == len(n.worth) {
		return 0
	}
	out := n.best(k+1, room, append(on, 0))
	for c := 1; c <= n.limit[k]; c++ {
		left := make([]int64, n.dims)
		for d := range left {
			left[d] = room[d] - n.needs[k*n.dims+d]*int64(c)
			if left[d] < 0 {
				return out
			}
		}
		if n.foes != nil {
			for _, f := range n.foes[k] {
				if f < k && on[f] > 0 {
					return out
				}
			}
		}
		out = max(out, n.worth[k]*int64(c)+n.best(k+1, left, append(on, c)))
	}
	return out
}

func TestTheProverAgreesWithTryingEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	atOnce, loose := 0, 0
	for turn := range 4000 {
		n := randomNode(rng)
		var classes []int
		for k := range n.worth {
			classes = append(classes, k)
		}
		want := n.best(0, n.room, nil)
		for _, nodes := range []int{0, 3, 100_000} {
			got := newProver(n.dims, n.needs, n.worth, n.limit, n.foes).upperBound(n.room, classes, 0, -1, nodes)
			if got < want || nodes > 3 && got != want {
				t.Fatalf("turn %d: with %d nodes at most %d, want %d\n%+v", turn, nodes, got, want, n)
			}
			if nodes == 0 {
				if loose++; got == want || float64(got) < float64(want)*1.3 {
					atOnce++
				}
			}
		}
	}
	if atOnce*2 < loose {
		t.Errorf("prices of room alone come within 30 %% of the truth for only %d of %d nodes", atOnce, loose)
	}
}

func TestAForcedItemIsThere(t *testing.T) {
	n := &node{dims: 1, room: []int64{10}, needs: []int64{6, 5}, worth: []int64{1, 50}, limit: []int{1, 2}}
	v := newProver(n.dims, n.needs, n.worth, n.limit, nil)
	if got := v.upperBound(n.room, []int{0, 1}, 0, -1, 100); got != 100 {
		t.Errorf("free choice is worth %d, want 100", got)
	}
	if got := v.upperBound(n.room, []int{0, 1}, 0, 0, 100); got != 1 {
		t.Errorf("with the large item there is no room for another: %d, want 1", got)
	}
}
