package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the answers of scenarios")

// TestScenarios plays every story about the engine.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			answers, err := s.Run()
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, s.Format(answers), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for i, got := range answers {
				if diff := cmp.Diff(s.Want(i+1), got); diff != "" {
					t.Errorf("%s\nround %d (-want +got):\n%s", s.Story, i+1, diff)
				}
			}
		})
	}
}
