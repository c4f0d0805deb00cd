package cluster

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

type pair struct{ key, value int }

func newPairs() table[int, pair] {
	return newTable(&epoch{}, func(p pair) int { return p.key }, cmp.Compare[int])
}

// publish is what publishing a snapshot does to one of its tables.
func publish(tab *table[int, pair]) view[int, pair] {
	tab.now.n++
	return tab.view
}

// A table must behave as a sorted map, and a published view as a copy of it.
func TestTableAgreesWithMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab, twin := newPairs(), map[int]int{}
		type published struct {
			view view[int, pair]
			twin map[int]int
		}
		var old []published
		for step := range 3000 {
			key := rng.IntN(600)
			if rng.IntN(5) < 2+int(seed%2) {
				_, ok := tab.delete(key)
				if _, want := twin[key]; ok != want {
					t.Fatalf("seed %d: delete(%d) = %v, want %v", seed, key, ok, want)
				}
				delete(twin, key)
			} else {
				_, replaced := tab.put(pair{key, step})
				if _, want := twin[key]; replaced != want {
					t.Fatalf("seed %d: put(%d) replaced %v, want %v", seed, key, replaced, want)
				}
				twin[key] = step
			}
			if rng.IntN(200) == 0 {
				old = append(old, published{publish(&tab), maps.Clone(twin)})
			}
		}
		old = append(old, published{publish(&tab), twin})
		for i, p := range old {
			if got, want := slices.Collect(p.view.all()), sorted(p.twin); !slices.Equal(got, want) {
				t.Fatalf("seed %d: view %d holds %v, want %v", seed, i, got, want)
			}
			if p.view.len != len(p.twin) {
				t.Errorf("seed %d: view %d: len = %d, want %d", seed, i, p.view.len, len(p.twin))
			}
			for key := range 600 {
				row, ok := p.view.get(key)
				if value, want := p.twin[key]; ok != want || row.value != value {
					t.Fatalf("seed %d: view %d: get(%d) = %v %v, want %d %v", seed, i, key, row, ok, value, want)
				}
			}
		}
	}
}

// Two views differ exactly in what two maps differ in.
func TestDiffAgreesWithMaps(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		tab, twin := newPairs(), map[int]int{}
		was, wasTwin := publish(&tab), maps.Clone(twin)
		for round := range 30 {
			for step := range rng.IntN(80) {
				if key := rng.IntN(700); rng.IntN(3) == 0 {
					tab.delete(key)
					delete(twin, key)
				} else {
					tab.put(pair{key, round*100 + step})
					twin[key] = round*100 + step
				}
			}
			is := publish(&tab)
			want := map[int][2]pair{}
			for key := range 700 {
				old, hadOld := wasTwin[key]
				now, hasNow := twin[key]
				var change [2]pair
				if hadOld {
					change[0] = pair{key, old}
				}
				if hasNow {
					change[1] = pair{key, now}
				}
				if change[0] != change[1] {
					want[key] = change
				}
			}
			got := map[int][2]pair{}
			for x, y := range diff(&was, &is) {
				got[max(x.key, y.key)] = [2]pair{x, y}
			}
			if !maps.Equal(got, want) {
				t.Fatalf("seed %d round %d: diff = %v, want %v", seed, round, got, want)
			}
			was, wasTwin = is, maps.Clone(twin)
		}
	}
}

func sorted(m map[int]int) []pair {
	var out []pair
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, pair{k, m[k]})
	}
	return out
}

func TestTableFrom(t *testing.T) {
	tab := newPairs()
	for i := range 500 {
		tab.put(pair{i * 2, i})
	}
	for name, tc := range map[string]struct{ key, first, count int }{
		"a key that exists is included":              {100, 100, 450},
		"a missing key starts at the next":           {101, 102, 449},
		"a key before all starts at the first":       {-5, 0, 500},
		"a key after all yields nothing":             {2000, -1, 0},
		"the first key of a later page is not lost":  {128, 128, 436},
		"the key just before a page starts the page": {127, 128, 436},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Collect(tab.from(tc.key))
			if len(got) != tc.count || len(got) > 0 && got[0].key != tc.first {
				t.Errorf("from(%d) yields %d rows from %v, want %d from %d", tc.key, len(got), got[:min(1, len(got))], tc.count, tc.first)
			}
		})
	}
}
