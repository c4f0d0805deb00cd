package engine

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/work"
)

// An Engine answers Questions and keeps what it derived and decided between calls. It is not safe for concurrent use.
type Engine struct {
	known  *apilabel.Vocabulary
	rows   *compile.Memory // what objects mean in numbers
	answer problem.Memory  // the last fleet
}

// New returns an Engine that remembers nothing yet. The tables are what providers know about labels beside what is known without any.
func New(provider ...apilabel.Table) *Engine {
	known := apilabel.NewVocabulary(append([]apilabel.Table{v1.Labels()}, provider...)...)
	return &Engine{known: known, rows: compile.NewMemory(known)}
}

// A Memory is what an engine keeps from one question to the next, as far as the next answer may depend on it. It never changes, and is
// written down with a question so that the same answer is given elsewhere.
type Memory struct {
	Rows   compile.History `json:"rows"`
	Answer problem.Memory  `json:"answer"`
}

// Memory returns what the engine remembers now.
func (e *Engine) Memory() Memory { return Memory{e.rows.History(), e.answer} }

// Recall returns an Engine that remembers what another one did, for the same providers.
func Recall(m Memory, provider ...apilabel.Table) *Engine {
	e := New(provider...)
	e.rows, e.answer = compile.Recall(e.known, m.Rows), m.Answer
	return e
}

// Plan places the pods of a question. The answer depends on the question only, unless Stop or Ended cuts it short or the last question
// was nearly the same: then what did not change stays as it was answered.
func (e *Engine) Plan(q Question) *Plan {
	sound := false
	defer func() {
		if !sound { // a panic left half of what the engine remembers; the next question must not be built on that
			*e = Engine{known: e.known, rows: compile.NewMemory(e.known)}
		}
	}()
	plan := e.plan(q)
	sound = true
	return plan
}

func (e *Engine) plan(q Question) *Plan {
	meter := work.NewMeter(q.Settings.CutAt, q.stopped)
	out := e.planAs(&q, meter, nil)
	if !q.Simulation && slices.ContainsFunc(out.Refused, byQuota) && meter.CutAt() == 0 {
		if placed := len(q.Pods) - len(out.Refused); placed > 0 {
			out = e.planAs(&q, meter, e.rows.Ranks(e.input(&q), placed))
		}
	}
	out.Work, out.CutAt = meter.Spent(), meter.CutAt()
	return out
}

// byQuota reports whether a quota keeps a pod from some node.
func byQuota(r Refused) bool {
	return slices.ContainsFunc(r.Reasons, func(c reason.Count) bool { return c.Code == reason.Quota })
}

// planAs answers a question with pods in the order of ranks, nil for their priorities.
func (e *Engine) planAs(q *Question, meter *work.Meter, ranks map[cluster.PodKey]int32) *Plan {
	in := e.input(q)
	in.Ranks = ranks
	compiled := e.compiled(q, in)
	meter.Charge(compiled.Spent)
	compiled.Problem.Settings.Meter, compiled.Problem.Settings.Memory = meter, e.answer
	var zones Zones
	if !q.Simulation {
		zones = compiled.Zones()
	}
	r := repack.Run(compiled.Problem)
	e.answer = r.Memory
	out := e.raise(q, compiled, r)
	out.Zones = zones
	return out
}

// compile turns a question into a problem of numbers.
func (e *Engine) compile(q Question) *compile.Compiled { return e.compiled(&q, e.input(&q)) }

func (e *Engine) compiled(q *Question, in compile.Input) *compile.Compiled {
	compiled := compile.Compile(e.rows, in)
	if compiled.Renumbered {
		e.answer = problem.Memory{}
	}
	compiled.Problem.Settings = q.Settings.solve()
	if q.Commitments != nil {
		compiled.Problem.Settings.Commitments, compiled.Problem.Settings.Fixed = q.Commitments, q.Commitments.Without(q.Gone)
	}
	return compiled
}

// Problem is what Plan would compile a question to. Tests of the packages that answer problems ask for it.
func (e *Engine) Problem(q Question) *problem.Problem { return e.compile(q).Problem }

func (e *Engine) input(q *Question) compile.Input {
	return compile.Input{
		Snap: q.Snap, Pools: q.Pools, Pods: q.Pods, Gone: q.Gone, Closed: q.Closed, Kept: q.Kept, LeftOut: q.LeftOut,
		Simulation: q.Simulation, Now: q.Now,
		AssumeRequests:    q.Settings.AssumeRequests,
		IgnorePreferences: q.Settings.IgnorePreferences, ReservedCapacity: q.Settings.ReservedCapacity,
		DefaultSpread: q.Settings.DefaultSpread,
		Terms:         q.Settings.terms(), Work: q.Settings.Terms, Selects: q.Settings.Selects, Ended: q.ended,
	}
}
