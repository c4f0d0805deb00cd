package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"karpenter.sh/karpenter/internal/telemetry"
)

// EachSeed runs a test for each of many seeds, in a bubble each: for the first few, for the first soak ones when
// KARPENTER_SOAK is set, or for those that an environment variable chooses, such as "17" or "0-999".
func EachSeed(t *testing.T, variable string, few, soak uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	first, last := Seeds(t, variable, few, soak)
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}

// Seeds returns the first and the last seed that a test runs, which EachSeed explains.
func Seeds(t *testing.T, variable string, few, soak uint64) (first, last uint64) {
	t.Helper()
	last = few - 1
	if os.Getenv("KARPENTER_SOAK") != "" {
		last = soak - 1
	}
	if text := os.Getenv(variable); text != "" {
		var err error
		if first, last, err = parseSeeds(text); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return first, last
}

// parseSeeds reads a seed or a range of them. A range that is empty would be a test that tests nothing.
func parseSeeds(text string) (first, last uint64, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 != nil || err2 != nil || first > last {
		return 0, 0, fmt.Errorf("%q is neither a seed nor a range of seeds", text)
	}
	return first, last, nil
}

// Loud returns a context in which a process writes to stderr what it says, if the environment asks for it with this variable.
func Loud(ctx context.Context, variable string, process int) context.Context {
	if os.Getenv(variable) == "" {
		return ctx
	}
	return telemetry.WithLog(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", process))
}
