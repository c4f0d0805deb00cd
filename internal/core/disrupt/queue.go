package disrupt

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

const (
	// SecondLook is after how long a step that moves pods for money is looked at again, before anything is done.
	SecondLook = 15 * time.Second
	// TurnWithin is how long after its second look a step waits until the steps before it have left the budgets room.
	TurnWithin = time.Minute
)

// A Waiting step has been found and not begun: it waits for its second look, and after that for its turn.
type Waiting struct {
	Step *Step
	Due  time.Time                // of its second look
	Plan *v1alpha1.DisruptionPlan // by which it was approved, nil without approval
}

// late reports whether a step is looked at for the last time.
func (p *Waiting) late(now time.Time) bool { return !now.Before(p.Due.Add(TurnWithin)) }

// A Queue holds the steps that wait, each by its ID or by the name of its plan.
//
// The loop that carries steps out has one and asks it what to do with them, so that a replay and the loops of a
// controller begin the same steps in the same order.
type Queue map[string]*Waiting

// Add has a step wait for its second look.
func (q Queue) Add(step *Step, now time.Time) {
	q[step.ID()] = &Waiting{Step: step, Due: now.Add(SecondLook)}
}

// Hold shows the planner what is not to be had because of the steps that wait: their nodes, and the room that their
// pods are to get. An approved one is held by its plan.
func (q Queue) Hold(w *World) {
	for _, id := range slices.Sorted(maps.Keys(q)) {
		p := q[id]
		if p.Plan != nil {
			continue
		}
		for _, c := range p.Step.Remove {
			w.Busy[c.Node.Claim.UID] = true
			w.Promised[c.Pool.Name]++
		}
		w.Coming = append(w.Coming, p.Step.Place...)
	}
}

// A Round is one second look at all steps whose time has come.
type Round struct {
	queue Queue
	now   time.Time
	full  map[string]bool // pools of which a step waits for its turn
}

// Round begins a second look.
func (q Queue) Round(now time.Time) *Round {
	return &Round{queue: q, now: now, full: map[string]bool{}}
}

// Due takes the steps whose time has come out of the queue, the oldest first. Each is confirmed, and begun or
// Refused, before the next one is asked for: those that are left wait for a look of their own, and budgets have
// what the ones before have left. Nothing overtakes a step of its pools that waits for its turn, but for what was
// approved, which its plan holds.
func (r *Round) Due() iter.Seq2[string, *Waiting] {
	order := slices.SortedFunc(maps.Keys(r.queue), func(a, b string) int {
		return cmp.Or(r.queue[a].Due.Compare(r.queue[b].Due), cmp.Compare(a, b))
	})
	return func(yield func(string, *Waiting) bool) {
		for _, id := range order {
			p := r.queue[id]
			if r.now.Before(p.Due) || p.Plan == nil && slices.ContainsFunc(p.Step.Remove,
				func(c *Candidate) bool { return r.full[c.Pool.Name] }) {
				continue
			}
			delete(r.queue, id)
			if !yield(id, p) {
				return
			}
		}
	}
}

// Refused returns the fate of a step that Confirm refused. What only budgets hold back stays in the queue until its
// turn comes (waits). What lost its places or its saving, and what has waited for too long, is remembered as
// failed.
func (r *Round) Refused(id string, p *Waiting, why Refusal, m Memory) (waits bool, _ Memory) {
	late := p.late(r.now)
	if p.Plan == nil && !late && why.waitsForTurn() {
		r.queue[id] = p
		for _, c := range p.Step.Remove {
			r.full[c.Pool.Name] = true
		}
		return true, m
	}
	if late || why.Code == Scheduling {
		m = m.Failed(p.Step, r.now)
	}
	return false, m
}

// Held reports whether any step waits for its turn.
func (r *Round) Held() bool { return len(r.full) > 0 }
