package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// EachSeed runs a test for each of many seeds, in a bubble each: for the first few, for the first soak ones when
// KARPENTER_SOAK is set, or for those that an environment variable chooses, such as "17" or "0-999". What has
// passed by the notes of an earlier run is left out; seeds that are chosen never are.
func EachSeed(t *testing.T, variable string, few, soak uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	first, last := Seeds(t, variable, few, soak)
	kept := notesOf(t, variable)
	for seed := first; seed <= last; seed++ {
		if kept.passed[seed] && os.Getenv(variable) == "" {
			continue
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			began := time.Now() // outside of the bubble: by the clock on the wall
			defer func() { kept.add(t, seed, time.Since(began)) }()
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}

// Notes are what a long run leaves behind for the next one: which seeds a commit has passed or failed, and how long
// each took. They stand in the folder SOAK_NOTES, a file for each variable and a line for each seed, written as
// soon as it has ended: the end of a file shows how far the run is.
type notes struct {
	commit string
	passed map[uint64]bool

	mu   sync.Mutex
	file *os.File // nil if none is wanted
}

// notesOf reads the notes of a test that a variable names, and has them ready for more until it ends.
func notesOf(t *testing.T, variable string) *notes {
	t.Helper()
	n := &notes{commit: os.Getenv("SOAK_COMMIT"), passed: map[uint64]bool{}}
	folder := os.Getenv("SOAK_NOTES")
	if folder == "" {
		return n
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, variable+".txt")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var commit, verdict string
		var seed uint64
		if got, _ := fmt.Sscan(line, &commit, &seed, &verdict); got == 3 && commit == n.commit {
			n.passed[seed] = verdict == passed
		}
	}
	if n.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.file.Close() })
	return n
}

const passed, failed = "passed", "FAILED"

// add notes how a seed went.
func (n *notes) add(t *testing.T, seed uint64, took time.Duration) {
	if n.file == nil {
		return
	}
	verdict := passed
	if t.Failed() {
		verdict = failed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := fmt.Fprintf(n.file, "%s %d %s %.1fs\n", n.commit, seed, verdict, took.Seconds()); err != nil {
		t.Error(err)
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
