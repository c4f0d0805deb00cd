package sim

import (
	"slices"
	"sync"
	"testing"
)

func TestParseSeeds(t *testing.T) {
	for text, want := range map[string]struct {
		first, last uint64
		ok          bool
	}{
		"17":    {17, 17, true},
		"0-999": {0, 999, true},
		"9-9":   {9, 9, true},
		"9-8":   {},
		"-5":    {},
		"5-":    {},
		"1-2-3": {},
		"many":  {},
		// The seed after the largest number would be zero, and the loop endless.
		"0-18446744073709551615": {},
	} {
		first, last, err := parseSeeds(text)
		if first != want.first || last != want.last || (err == nil) != want.ok {
			t.Errorf("parseSeeds(%q) = %d, %d, %v; want %v", text, first, last, err, want)
		}
	}
}

func TestEachSeed(t *testing.T) {
	for name, tc := range map[string]struct {
		chosen, soak string
		want         []uint64
	}{
		"a few":                                {"", "", []uint64{0, 1}},
		"more of them in a soak":               {"", "1", []uint64{0, 1, 2, 3}},
		"those that are asked for, soak or no": {"7-8", "1", []uint64{7, 8}},
	} {
		t.Setenv("SIM_TEST_SEEDS", tc.chosen)
		t.Setenv("KARPENTER_SOAK", tc.soak)
		var mu sync.Mutex
		var got []uint64
		t.Run(name, func(t *testing.T) {
			EachSeed(t, "SIM_TEST_SEEDS", 2, 4, func(_ *testing.T, seed uint64) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, seed)
			})
		})
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: seeds = %d, want %d", name, got, tc.want)
		}
	}
}
