package looptest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
)

// A lot is chance that a seed says of names: what it says of one depends neither on what else there is nor on what was asked before. So a seed
// brings the same troubles to the same objects although goroutines took their turns in another order and the world is a little different.
type lot string

// lots are those of a seed for one purpose.
func lots(seed uint64, purpose string) lot { return lot(fmt.Sprint(seed, purpose)) }

// of returns a number below one.
func (l lot) of(name string) float64 { return l.source(name).Float64() }

// source is a stream of its own for whatever is named.
func (l lot) source(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(l) + "/" + name))
	return rand.New(rand.NewPCG(h.Sum64(), 18))
}

// first are at most n of those whose number is below a share, the lowest first.
func first[T any](l lot, n int, share float64, of []T, name func(T) string) []T {
	out := slices.DeleteFunc(slices.Clone(of), func(x T) bool { return l.of(name(x)) >= share })
	slices.SortFunc(out, func(x, y T) int {
		return cmp.Or(cmp.Compare(l.of(name(x)), l.of(name(y))), cmp.Compare(name(x), name(y)))
	})
	return out[:min(n, len(out))]
}

// Whoever else there is, and in whichever order they stand, the lot falls on the same.
func TestALotFallsOnTheSame(t *testing.T) {
	var names, fewer []string
	for i := range 200 {
		names = append(names, fmt.Sprint("node-", i))
	}
	self := func(name string) string { return name }
	for seed := range uint64(20) {
		l := lots(seed, "a user deletes a node")
		want := first(l, 2, 0.25, names, self)
		fewer = slices.Clone(want)
		for _, name := range names[:50] {
			if !slices.Contains(fewer, name) {
				fewer = append(fewer, name)
			}
		}
		slices.Reverse(fewer)
		if got := first(l, 2, 0.25, fewer, self); len(want) != 2 || !slices.Equal(got, want) {
			t.Errorf("seed %d: the lot falls on %s of fewer, on %s of all", seed, got, want)
		}
	}
	hit := 0
	for _, name := range names {
		if lots(7, "x").of(name) < 0.25 {
			hit++
		}
	}
	if hit < 30 || hit > 70 {
		t.Errorf("a quarter of 200 are %d", hit)
	}
	if lots(7, "x").of("a") == lots(8, "x").of("a") || lots(7, "x").of("a") == lots(7, "y").of("a") {
		t.Error("other seeds and purposes do not draw anew")
	}
}
