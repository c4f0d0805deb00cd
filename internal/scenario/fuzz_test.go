package scenario

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/stories"
)

// FuzzStory reads what anybody may send as a snapshot: it is refused with an error, or is a question that can be asked and written down again.
func FuzzStory(f *testing.F) {
	for seed := range uint64(4) {
		story := stories.Of(seed)
		f.Add(story)
		if s, err := Parse(story); err == nil {
			if w, err := s.World(); err == nil && w.Enter(s, 1) == nil {
				f.Add(Snapshot("A snapshot.", w.Input(), false))
				f.Add(Snapshot("A snapshot.", covered(w.Input()), false))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<15 {
			return
		}
		s, err := Parse(text)
		if err != nil {
			return
		}
		w, err := s.World()
		if err != nil || w.Enter(s, 1) != nil {
			return
		}
		in := w.Input()
		if len(in.Pods) > 100 || in.Snap.NodeCount() > 100 || len(in.Pools) == 0 {
			return
		}
		in.Settings.Search = work.Second / 1000
		engine.New(zones).Plan(in)
		Snapshot("Again.", in, true)
		again, err := Parse(Snapshot("Again.", in, false))
		if err != nil {
			t.Fatalf("what was read is written so that nobody can read it: %v", err)
		}
		if _, err := again.World(); err != nil {
			t.Fatalf("what was read is written so that nobody can read it: %v", err)
		}
	})
}
