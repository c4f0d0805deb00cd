// Package problems gives the scenarios of the planner as compiled problems, to tests of the packages that answer them.
package problems

import (
	"os"
	"path/filepath"
	"testing"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/scenario"
)

// Each runs a test for the first question of each scenario. Root is the way from the test's package to the top of the project. The
// test may ask for the problem again and again: each is compiled anew.
func Each(t *testing.T, root string, test func(t *testing.T, compile func() *problem.Problem)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "scenarios/solve/*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			w, err := s.World()
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Enter(s, 1); err != nil {
				t.Fatal(err)
			}
			test(t, func() *problem.Problem { return w.Engine.Problem(w.Input()) })
		})
	}
}
