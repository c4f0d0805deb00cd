package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"karpenter.sh/karpenter/internal/sim"
)

// TestRandomWorlds judges plans of random worlds.
func TestRandomWorlds(t *testing.T) {
	first, last := sim.Seeds(t, "JUDGE_SEEDS", 5_000, 2_000_000)
	allowed := features
	if text := os.Getenv("JUDGE_FEATURES"); text != "" {
		allowed = strings.Split(text, ",")
	}
	inParallel(t, first, last, func(f *filters, seed uint64) {
		text := makeWorld(seed, allowed)
		if found := judge(f, text); len(found) > 0 {
			small, found := shrink(f, text, found)
			t.Errorf("seed %d: %s\n%s", seed, tell(found), small)
		}
	})
}

// inParallel calls a test for each seed, with filters of its own for each processor.
func inParallel(t *testing.T, first, last uint64, test func(f *filters, seed uint64)) {
	var next atomic.Uint64
	next.Store(first)
	var work sync.WaitGroup
	for range 2 {
		f, err := newFilters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			for seed := next.Add(1) - 1; seed <= last; seed = next.Add(1) - 1 {
				test(f, seed)
			}
		})
	}
	work.Wait()
}

// TestCorpus judges again what failed once.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	f, err := newFilters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := judge(f, text); len(found) > 0 {
				t.Error(tell(found))
			}
		})
	}
}

func tell(found []finding) string {
	var b strings.Builder
	for _, x := range found {
		fmt.Fprintf(&b, "%s: %s\n", x.kind, x.text)
	}
	return b.String()
}
