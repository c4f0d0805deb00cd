package bug_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/kit/bug"
)

func TestCulprits(t *testing.T) {
	never := func() bool { return false }
	contains := func(all ...string) func([]string) bool {
		return func(things []string) bool {
			return !slices.ContainsFunc(all, func(s string) bool { return !slices.Contains(things, s) })
		}
	}
	either := func(a, b func([]string) bool) func([]string) bool {
		return func(things []string) bool { return a(things) || b(things) }
	}
	for name, tc := range map[string]struct {
		fails  func([]string) bool
		enough func() bool
		bad    string
	}{
		"one of many":                        {contains("d"), never, "d"},
		"the first":                          {contains("a"), never, "a"},
		"the last":                           {contains("h"), never, "h"},
		"two of many":                        {either(contains("b"), contains("g")), never, "b g"},
		"two that fail together only":        {contains("b", "g"), never, "g"},
		"two neighbours that fail together":  {contains("c", "d"), never, "d"},
		"all, where it always fails":         {func([]string) bool { return true }, never, "a b c d e f g h"},
		"nobody has patience: none is known": {contains("d"), func() bool { return true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			things := strings.Split("abcdefgh", "")
			var worked []string
			bad, unknown := bug.Culprits(things, func(some []string) bool {
				if tc.fails(some) {
					return true
				}
				worked = slices.Clone(some)
				return false
			}, tc.enough)
			if got := strings.Join(bad, " "); got != tc.bad {
				t.Errorf("bad = %q, want %q", got, tc.bad)
			}
			good := slices.DeleteFunc(things, func(s string) bool { return slices.Contains(bad, s) || slices.Contains(unknown, s) })
			if !slices.Equal(good, worked) {
				t.Errorf("the last that worked was %q, good are %q", worked, good)
			}
		})
	}
}

// One culprit of thousands costs two trials for each halving.
func TestACulpritIsFoundInFewTrials(t *testing.T) {
	const n = 4096
	things := make([]int, n)
	for i := range things {
		things[i] = i
	}
	for _, culprit := range []int{0, 1, 2047, 2048, 3333, n - 1} {
		trials := 0
		bad, _ := bug.Culprits(things, func(some []int) bool {
			trials++
			return slices.Contains(some, culprit)
		}, func() bool { return false })
		if !slices.Equal(bad, []int{culprit}) || trials > 2*bits.Len(n) {
			t.Errorf("culprit %d: found %v in %d trials", culprit, bad, trials)
		}
	}
}

func TestWithoutPatienceTheRestIsUnknown(t *testing.T) {
	trials := 0
	bad, unknown := bug.Culprits(strings.Split("abcdefgh", ""), func(some []string) bool {
		trials++
		return slices.Contains(some, "b")
	}, func() bool { return trials >= 3 })
	if strings.Join(bad, "") != "b" || strings.Join(unknown, "") != "cdefgh" {
		t.Errorf("bad = %q, unknown = %q; want b and all that came after", bad, unknown)
	}
}

func TestSpoilers(t *testing.T) {
	never := func() bool { return false }
	for name, tc := range map[string]struct {
		fails func(some string) bool
		bad   string
	}{
		"one that spoils what only another brings out": {func(some string) bool { return strings.Contains(some, "a") && strings.Contains(some, "c") }, "a"},
		"two that spoil each for themselves":           {func(some string) bool { return strings.ContainsAny(some, "ac") }, "ac"},
		"all":                                          {func(string) bool { return true }, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			bad, _ := bug.Spoilers(strings.Split("abc", ""), func(some []string) bool { return tc.fails(strings.Join(some, "")) }, never)
			if got := strings.Join(bad, ""); got != tc.bad {
				t.Errorf("bad = %q, want %q", got, tc.bad)
			}
		})
	}
	asked := 0
	bug.Spoilers([]string{"a"}, func([]string) bool { asked++; return false }, never)
	if asked != 0 {
		t.Error("it was tried without anything")
	}
}

func TestPanics(t *testing.T) {
	before := bug.Count()
	if !bug.Panics(func() { panic("no") }) || bug.Panics(func() {}) {
		t.Error("a panic went unnoticed, or was made up")
	}
	if bug.Count() != before {
		t.Error("a trial was reported")
	}
}
