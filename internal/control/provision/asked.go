package provision

import (
	"fmt"
	"sync/atomic"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/scenario"
)

// A Desk keeps the last question that the engine answered, with what the engine remembered before it, so that the same plan can be made
// again elsewhere (for a report of a bug). It needs no more memory than the engine, which keeps the same snapshot. A nil Desk keeps
// nothing.
type Desk struct {
	last atomic.Pointer[asked]
}

type asked struct {
	question engine.Question
	memory   engine.Memory
}

// keep keeps a question. cut is the amount of work at which the clock stopped the engine: a later plan is stopped at the same point.
func (d *Desk) keep(in engine.Question, m engine.Memory, cut work.Units) {
	if d == nil {
		return
	}
	in.Stop, in.Ended = nil, nil
	in.Settings.CutAt = cut
	d.last.Store(&asked{in, m})
}

// Story returns the last question as a scenario, nil if there was none. An anonymous story has no names, and leaves out what the engine
// remembered, because that consists of names.
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
