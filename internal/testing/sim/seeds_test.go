package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A run that was cut off goes on where it ended: what passed at this commit is left out, what failed or passed at another one is not.
func TestALongRunGoesOn(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "notes")
	for name, value := range map[string]string{"SOAK_NOTES": folder, "SOAK_COMMIT": "abc", "KARPENTER_SOAK": "1"} {
		t.Setenv(name, value)
	}
	file := filepath.Join(folder, "SIM_TEST_SEEDS.txt")
	run := func() (ran []uint64) {
		var mu sync.Mutex
		t.Run("long", func(t *testing.T) {
			EachSeed(t, "SIM_TEST_SEEDS", 1, 4, func(_ *testing.T, seed uint64) {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, seed)
			})
		})
		slices.Sort(ran)
		return ran
	}
	if got, want := run(), []uint64{0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("seeds %d ran at first, want %d", got, want)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "abc ") != 4 || strings.Count(string(text), " passed ") != 4 {
		t.Errorf("the notes are %q, %v", text, err)
	}
	if got := run(); len(got) > 0 {
		t.Errorf("seeds %d ran though they had passed", got)
	}
	if err := os.WriteFile(file, []byte("abc 0 passed 1.0s\nabc 1 FAILED 1.0s\nold 2 passed 1.0s\nabc 3 pas"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := run(), []uint64{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("seeds %d ran after a run that was cut off, want %d", got, want)
	}
	t.Setenv("SIM_TEST_SEEDS", "0")
	if got, want := run(), []uint64{0}; !slices.Equal(got, want) {
		t.Errorf("seeds %d ran where 0 was asked for", got)
	}
}
