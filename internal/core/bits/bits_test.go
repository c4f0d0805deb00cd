package bits

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSetBehavesLikeAMap runs random operations on a Set and on a map and compares them.
func TestSetBehavesLikeAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + r.IntN(200)
		a, am := random(r, n)
		b, bm := random(r, n)
		both, either, only := map[int]bool{}, maps.Clone(am), map[int]bool{}
		for i := range am {
			if bm[i] {
				both[i] = true
			} else {
				only[i] = true
			}
		}
		maps.Copy(either, bm)
		check := func(name string, op func(Set, Set), want map[int]bool) {
			got := a.Clone()
			op(got, b)
			members := slices.Sorted(maps.Keys(want))
			if !slices.Equal(slices.Collect(got.All()), members) || got.Count() != len(members) || got.Any() != (len(members) > 0) {
				t.Fatalf("%s: got %v, want %v", name, slices.Collect(got.All()), members)
			}
		}
		check("And", Set.And, both)
		check("And with a set that ends at its last member", func(a, b Set) { a.And(b[:Words(1+slices.Max(append(slices.Collect(b.All()), -1)))]) }, both)
		check("Keep", Set.Keep, both)
		check("Keep of all", func(a, _ Set) { a.Keep(nil) }, am)
		check("Only", func(a, b Set) { a.Only(b.Has) }, both)
		check("Or", Set.Or, either)
		check("AndNot", Set.AndNot, only)
		if a.Meets(b) != (len(both) > 0) || a.Meets3(b, Full(n)) != (len(both) > 0) {
			t.Fatal("Meets differs from the intersection")
		}
		if a.Within(b) != (len(only) == 0) {
			t.Fatal("Within differs from the difference")
		}
		var next []int
		for i := a.Next(0); i >= 0; i = a.Next(i + 1) {
			next = append(next, i)
		}
		if !slices.Equal(next, slices.Sorted(maps.Keys(am))) {
			t.Fatalf("Next visits %v", next)
		}
	}
}

func random(r *rand.Rand, n int) (Set, map[int]bool) {
	s, m := Make(n), map[int]bool{}
	for range r.IntN(2 * n) {
		i := r.IntN(n)
		if r.IntN(3) == 0 {
			s.Remove(i)
			delete(m, i)
		} else {
			s.Add(i)
			m[i] = true
		}
	}
	return s, m
}

func TestFullHoldsExactlyTheNumbersBelowN(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 128, 130} {
		s := Full(n)
		if s.Count() != n || s.Has(n) || (n > 0 && !s.Has(n-1)) {
			t.Errorf("Full(%d) holds %d numbers", n, s.Count())
		}
	}
}
