package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWhatIfsAreIndependent asks one engine many questions about one snapshot, each with other nodes removed or closed and other pods
// on the move, and a new engine each of them: what questions share must not show.
func TestWhatIfsAreIndependent(t *testing.T) {
	moved := 0
	for seed := range uint64(150) {
		r := dice{rand.New(rand.NewPCG(seed, 41))}
		in := r.world(10)
		e := New()
		for turn := range 6 {
			ask := in
			ask.Gone, ask.Closed, ask.Pods = map[string]bool{}, map[string]bool{}, slices.Clone(in.Pods)
			if r.one(3) {
				ask.Pods = nil
			}
			for n := range in.Snap.Nodes() {
				switch r.IntN(4) {
				case 0:
					ask.Gone[n.Name] = true
					ask.Pods = append(ask.Pods, n.Pods...)
					moved += len(n.Pods)
				case 1:
					ask.Closed[n.Name] = true
				case 2: // pods that move while their node stays
					ask.Pods = append(ask.Pods, n.Pods[:len(n.Pods)/2]...)
				}
			}
			ask.Pools = slices.Clone(in.Pools)[:1+r.IntN(len(in.Pools))]
			got, want := summary(e.Plan(ask)), summary(New().Plan(ask))
			if got != want {
				t.Fatalf("seed %d, turn %d, without %v: an engine that was asked before says\n%s\nand a new one\n%s", seed, turn, slices.Sorted(maps.Keys(ask.Gone)), got, want)
			}
		}
	}
	if moved < 200 {
		t.Errorf("%d pods moved: the dice are wrong", moved)
	}
}
