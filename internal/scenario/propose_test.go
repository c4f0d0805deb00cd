package scenario

import (
	"os"
	"testing"
)

// A move that a pool with policy Balanced turns down is told of, once, with what the pool said; one that it wants is not among them.
func TestMovesThatAreTurnedDownAreTold(t *testing.T) {
	for file, want := range map[string]int{"balanced-marginal": 1, "balanced-oversized": 0} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile("../../scenarios/disrupt/" + file + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			out := entered(t, data).Propose()
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

// A story that says more than is heard would end well for the wrong reason.
func TestAWordThatNobodyKnowsIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"of a shape":      "-- shapes --\none cpu=1 od=1 colour=red\n",
		"of a pool":       "-- pools --\np colour=red\n",
		"of a node":       "-- nodes --\na colour=red\n",
		"of a pod":        "-- pods --\nweb colour=red\n",
		"of a buffer":     "-- buffers --\nspare colour=red\n",
		"of a PDB":        "-- pdbs --\nweb colour=red\n",
		"of the settings": "-- settings --\ncolour=red\n",
		"as a section":    "-- colours --\nred\n",
		"what to do":      "-- do --\ncolour\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte("A story.\n" + text))
			if err == nil {
				var w *World
				if w, err = s.World(); err == nil {
					err = w.Enter(s, 1)
				}
			}
			if err == nil {
				t.Error("nobody minds")
			}
		})
	}
}
