package engine

import (
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/core/lower"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/work"
)

// An Engine answers Questions and keeps what it derived and decided between calls. It is not safe for concurrent use.
type Engine struct {
	known  *apilabel.Vocabulary
	rows   *lower.Memory  // what objects mean in numbers
	answer problem.Memory // the last fleet
}

// New returns an Engine that remembers nothing yet. The tables are what providers know about labels beside what is known without any.
func New(provider ...apilabel.Table) *Engine {
	known := apilabel.NewVocabulary(append([]apilabel.Table{v1.Labels()}, provider...)...)
	return &Engine{known: known, rows: lower.NewMemory(known)}
}

// A Memory is what an engine keeps from one question to the next, as far as the next answer may depend on it. It never changes, and is
// written down with a question so that the same answer is given elsewhere.
type Memory struct {
	Rows   lower.History  `json:"rows"`
	Answer problem.Memory `json:"answer"`
}

// Memory returns what the engine remembers now.
func (e *Engine) Memory() Memory { return Memory{e.rows.History(), e.answer} }

// Recall returns an Engine that remembers what another one did, for the same providers.
func Recall(m Memory, provider ...apilabel.Table) *Engine {
	e := New(provider...)
	e.rows, e.answer = lower.Recall(e.known, m.Rows), m.Answer
	return e
}

// Plan places the pods of a question. The answer depends on the question only, unless Stop or Ended cuts it short or the last question
// was nearly the same: then what did not change stays as it was answered.
func (e *Engine) Plan(q Question) *Plan {
	sound := false
	defer func() {
		if !sound { // a panic left half of what the engine remembers; the next question must not be built on that
			*e = Engine{known: e.known, rows: lower.NewMemory(e.known)}
		}
	}()
	plan := e.plan(q)
	sound = true
	return plan
}

func (e *Engine) plan(q Question) *Plan {
	low := e.lower(q)
	meter := work.NewMeter(q.Settings.CutAt, q.stopped)
	meter.Charge(low.Spent)
	low.Problem.Settings.Meter, low.Problem.Settings.Memory = meter, e.answer
	var zones Zones
	if !q.Simulation {
		zones = low.Zones()
	}
	r := repack.Run(low.Problem)
	e.answer = r.Memory
	out := e.raise(&q, low, r)
	out.Zones = zones
	out.Work, out.CutAt = meter.Spent(), meter.CutAt()
	return out
}

// lower turns a question into numbers.
func (e *Engine) lower(q Question) *lower.Lowered {
	low := e.rows.Build(lower.Input{
		Snap: q.Snap, Pools: q.Pools, Pods: q.Pods, Gone: q.Gone, Closed: q.Closed, Kept: q.Kept, LeftOut: q.LeftOut,
		Simulation: q.Simulation, Now: q.Now,
		IgnorePreferences: q.Settings.IgnorePreferences, ReservedCapacity: q.Settings.ReservedCapacity,
		DefaultSpread: q.Settings.DefaultSpread,
		Terms:         q.Settings.terms(), Work: q.Settings.Terms, Selects: q.Settings.Selects, Ended: q.ended,
	})
	if low.Renumbered {
		e.answer = problem.Memory{}
	}
	low.Problem.Settings = q.Settings.solve()
	return low
}
