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
	rows   *compile.Memory // caches what objects mean in numbers
	answer problem.Memory  // from the last result; it makes the next plan keep what did not change
}

// New returns an Engine without memory. The tables are the labels of providers; those of Karpenter itself are always known.
func New(provider ...apilabel.Table) *Engine {
	known := apilabel.NewVocabulary(append([]apilabel.Table{v1.Labels()}, provider...)...)
	return &Engine{known: known, rows: compile.NewMemory(known)}
}

// A Memory is what an engine keeps from one question to the next, as far as the next answer may depend on it. It never changes. A recording
// of a question contains it, so that another engine gives the same answer.
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

// Plan places the pods of a question. The answer depends on the question and the engine's Memory only, unless Stop or Ended cuts it short.
// If the last question was nearly the same, the parts that did not change keep their answer. After a panic the engine forgets everything,
// because its memory may be inconsistent.
func (e *Engine) Plan(q Question) *Plan {
	sound := false
	defer func() {
		if !sound { // a panic
			*e = Engine{known: e.known, rows: compile.NewMemory(e.known)}
		}
	}()
	plan := e.plan(q)
	sound = true
	return plan
}

// plan answers a question by the priorities of pods. If quotas then keep pods out, it plans once more, with the pods ranked by fair shares
// of their namespaces.
func (e *Engine) plan(q Question) *Plan {
	meter := work.NewMeter(q.Settings.CutAt, q.stopped)
	out := e.planAs(&q, meter, nil)
	if !q.Simulation && slices.ContainsFunc(out.Refused, byQuota) && meter.CutAt() == 0 {
		if placed := len(q.Pods) - len(out.Refused); placed > 0 {
			out = e.planAs(&q, meter, e.rows.Ranks(e.inputOf(&q), placed))
		}
	}
	out.Work, out.CutAt = meter.Spent(), meter.CutAt()
	return out
}

// byQuota reports whether a quota keeps a pod from some node.
func byQuota(r Refused) bool {
	return slices.ContainsFunc(r.Reasons, func(c reason.Count) bool { return c.Code == reason.Quota })
}

// planAs answers a question with pods in the order of ranks; nil: by their priorities. It remembers the result for the next question.
func (e *Engine) planAs(q *Question, meter *work.Meter, ranks map[cluster.PodKey]int32) *Plan {
	in := e.inputOf(q)
	in.Ranks = ranks
	compiled := e.compileInput(q, in)
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
func (e *Engine) compile(q Question) *compile.Compiled { return e.compileInput(&q, e.inputOf(&q)) }

// compileInput compiles an input, and adds the question's settings and commitments to the problem. If columns were renumbered, the last
// result means nothing any more and is dropped.
func (e *Engine) compileInput(q *Question, in compile.Input) *compile.Compiled {
	compiled := compile.Compile(e.rows, in)
	if compiled.Renumbered {
		e.answer = problem.Memory{}
	}
	compiled.Problem.Settings = q.Settings.problem()
	if q.Commitments != nil {
		compiled.Problem.Settings.Commitments, compiled.Problem.Settings.Fixed = q.Commitments, q.Commitments.Without(q.Gone)
	}
	return compiled
}

// Problem returns the problem to which Plan would compile a question. Tests of the packages that solve problems use it.
func (e *Engine) Problem(q Question) *problem.Problem { return e.compile(q).Problem }

// inputOf returns the part of a question that compile needs.
func (e *Engine) inputOf(q *Question) compile.Input {
	return compile.Input{
		Snap: q.Snap, Pools: q.Pools, Pods: q.Pods, Gone: q.Gone, Closed: q.Closed, Kept: q.Kept, LeftOut: q.LeftOut,
		Simulation: q.Simulation, Now: q.Now,
		AssumeRequests:    q.Settings.AssumeRequests,
		IgnorePreferences: q.Settings.IgnorePreferences, ReservedCapacity: q.Settings.ReservedCapacity,
		DefaultSpread: q.Settings.DefaultSpread,
		Terms:         q.Settings.terms(), Work: q.Settings.Terms, Selects: q.Settings.Selects, Ended: q.ended,
	}
}
