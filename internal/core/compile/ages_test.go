package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
)

// Questions about parts of a crowd that comes and goes get their pods in the order that sorting gives.
func TestAges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var crowd []*cluster.Pod
	var a ages
	for turn := range 200 {
		for range random.IntN(60) {
			crowd = append(crowd, &cluster.Pod{PodKey: cluster.PodKey{Namespace: "default", Name: fmt.Sprint("pod-", len(crowd)*7919%10_007, "-", turn)},
				PodTimes: cluster.PodTimes{Created: noon.Add(time.Duration(random.IntN(turn+1)) * time.Minute)}})
		}
		for range len(crowd) / 20 {
			i := random.IntN(len(crowd))
			row := *crowd[i]
			crowd[i] = &row // it reported something
		}
		if len(crowd) > 1500 {
			crowd = slices.Delete(crowd, 0, 700)
		}
		var asked []*cluster.Pod
		for _, p := range crowd {
			if random.IntN(4) > 0 {
				asked = append(asked, p)
			}
		}
		random.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		if turn%10 == 0 && len(asked) > 0 {
			asked = append(asked, asked[0])
		}
		want, before := slices.Clone(asked), slices.Clone(asked)
		slices.SortFunc(want, olderFirst)
		if got := a.sort(asked); !slices.Equal(got, want) {
			t.Fatalf("turn %d: %d pods are not in their order", turn, len(asked))
		}
		if !slices.Equal(asked, before) {
			t.Fatal("what was asked has changed")
		}
	}
}
