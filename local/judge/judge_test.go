package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"karpenter.sh/karpenter/internal/testing/sim"
)

// A jury is a way to make worlds and a way to judge them.
type jury struct {
	variable  string // of the environment, which chooses worlds
	few, soak uint64
	mixes     [][]string // of features
	make      func(seed uint64, features []string) []byte
	judge     func(f *filters, world []byte) []finding
}

// TestRandomWorlds judges plans of random worlds.
func TestRandomWorlds(t *testing.T) {
	jury{"JUDGE_SEEDS", 5_000, 2_000_000, [][]string{plain, tied}, makeWorld, judge}.sit(t)
}

// TestRandomFleets judges what is proposed to make of random fleets.
func TestRandomFleets(t *testing.T) {
	jury{"JUDGE_FLEETS", 1_000, 500_000, [][]string{plain, running}, makeFleet, judgeSteps}.sit(t)
}

func (j jury) sit(t *testing.T) {
	first, last := sim.Seeds(t, j.variable, j.few, j.soak)
	var allowed []string
	if text := os.Getenv("JUDGE_FEATURES"); text != "" {
		allowed = strings.Split(text, ",")
	}
	inParallel(t, first, last, func(f *filters, seed uint64) {
		from := allowed
		if from == nil {
			from = j.mixes[seed%uint64(len(j.mixes))]
		}
		world := j.make(seed, from)
		if found := j.judge(f, world); len(found) > 0 {
			small, found := shrink(func(world []byte) []finding { return j.judge(f, world) }, world, found)
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
func TestCorpus(t *testing.T) { judgeAgain(t, "testdata/*.txtar", judge) }

// TestCorpusOfFleets does the same with fleets.
func TestCorpusOfFleets(t *testing.T) { judgeAgain(t, "testdata/fleets/*.txtar", judgeSteps) }

func judgeAgain(t *testing.T, pattern string, judge func(f *filters, world []byte) []finding) {
	files, err := filepath.Glob(pattern)
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
