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

// late reports whether a step has waited so long that it is dropped if it cannot begin now.
func (p *Waiting) late(now time.Time) bool { return !now.Before(p.Due.Add(TurnWithin)) }

// A Queue holds the steps that wait, each by its ID or by the name of its plan.
//
// The loop that carries steps out has one and asks it what to do with them, so that a replay and the loops of a
// controller begin the same steps in the same order.
type Queue map[string]*Waiting

// Add puts a step into the queue, where it waits for its second look.
func (q Queue) Add(step *Step, now time.Time) {
	q[step.ID()] = &Waiting{Step: step, Due: now.Add(SecondLook)}
}

// Hold adds to w what the waiting steps need, so that the planner leaves it alone: their nodes, and the room that their pods are to get.
// Approved steps are left out, because their plans hold it.
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

// Due yields the steps whose second look is due, the oldest first, and takes each out of the queue. The caller confirms each step, and
// begins it or calls Refused, before it asks for the next one, so that a step sees the budgets that the steps before it left.
//
// If a step of a pool waits for its turn, later steps of that pool are not yielded, so that they do not overtake it. Approved steps are.
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

// Refused decides what happens to a step that Confirm refused. If only budgets hold it back, it goes back into the queue until its turn
// comes (waits). If its places or its saving are lost (Scheduling), or it has waited for too long, the returned Memory remembers it as
// failed. Otherwise it is only dropped.
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
