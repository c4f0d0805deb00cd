package disrupt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// A move that a pool with policy Balanced turns down is told of, once, with what the pool said; one that it wants is not among them.
func TestMovesThatAreTurnedDownAreTold(t *testing.T) {
	for file, want := range map[string]int{"balanced-marginal": 1, "balanced-oversized": 0} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(scenarios, file+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			out := tell(t, txtar.Parse(data)).propose(t)
			if len(out.Rejected) != want {
				t.Fatalf("%d moves were turned down, want %d", len(out.Rejected), want)
			}
			for _, step := range out.Rejected {
				if len(step.Score) != 1 || step.Score[0].Approved() || len(step.Remove) != 1 || step.Remove[0].Name() != "a" {
					t.Errorf("%+v of %+v", step.Score, step.Remove)
				}
			}
		})
	}
}
