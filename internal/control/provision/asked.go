package provision

import (
	"fmt"
	"sync/atomic"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/scenario"
)

// A Desk keeps the last question that was answered, with what the engine remembered before, so that the plan can be
// made again elsewhere. It holds on to no more than the engine does, which remembers the same snapshot. A nil Desk
// keeps nothing.
type Desk struct {
	last atomic.Pointer[asked]
}

type asked struct {
	question engine.Question
	memory   engine.Memory
}

// keep notes what was asked, and where a clock cut the answer: there it is cut again.
func (d *Desk) keep(in engine.Question, m engine.Memory, cut work.Units) {
	if d == nil {
		return
	}
	in.Stop, in.Ended = nil, nil
	in.Settings.CutAt = cut
	d.last.Store(&asked{in, m})
}

// Story tells the last question; nil if there was none. Without names nothing is written of what the engine
// remembered: that is made of names.
func (d *Desk) Story(anonymous bool) ([]byte, error) {
	last := d.last.Load()
	if last == nil {
		return nil, nil
	}
	q := &last.question
	story := fmt.Sprintf("What the controller asked at %s: %d pod(s), %d node(s), %d pool(s) that may open more.",
		q.Now.UTC().Format(time.RFC3339), len(q.Pods), q.Snap.NodeCount(), len(q.Pools))
	if anonymous {
		return scenario.Snapshot(story, *q, true), nil
	}
	return scenario.Recollection(story, *q, last.memory)
}
