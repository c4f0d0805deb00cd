// Package board keeps the latest explanations of the loops: why pods have no place, what keeps nodes, which steps are under way,
// what the fleet could cost. Loops write them when they report them as events; the views of the cluster (page, top) read them. No loop
// reads the board.
package board

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/explain/steprecord"
)

// A Stage says how far a step is.
type Stage string

// The stages.
const (
	Waits   Stage = "waits for its second look"
	Opening Stage = "waits for what replaces its nodes"
	Going   Stage = "its nodes go"
)

// A Step is a change of the fleet that was decided.
type Step struct {
	ID     string
	Stage  Stage
	Reason v1.DisruptionReason
	Text   string   // which nodes go and which come, in one sentence; "" if not known after a restart
	Claims []string // that go
	Opens  []string // claims that come
	Saves  cloud.NanoUSD
	Pods   int       // that move
	Since  time.Time // zero while it waits
	Until  time.Time // when it is looked at again, or taken back at the latest
}

// Begun returns the step that a record on claims describes, as far as the record holds it.
func Begun(r steprecord.Record) Step {
	s := Step{ID: r.ID, Stage: Going, Reason: r.Reason, Opens: r.Replacements, Since: r.Created, Until: r.Deadline}
	if len(r.Replacements) > 0 {
		s.Stage = Opening
	}
	for _, m := range r.Candidates {
		s.Claims = append(s.Claims, m.Name)
	}
	return s
}

// A Disruption is the latest result of the disruption planner.
type Disruption struct {
	Kept     []disrupt.Refusal                // what keeps nodes, or makes it better to keep them
	Budgets  map[string][]v1.DisruptionReason // pools whose budgets allow no more, with the reasons
	HeldBack map[string]cloud.NanoUSD         // what budgets hold back of the savings, by pool
	// Before is what everything that may move costs and Target what the cheapest fleet found for it would; both 0 before the first search.
	Before, Target cloud.NanoUSD
}

// Found returns the result of one pass of the planner.
func Found(out *disrupt.Proposal) Disruption {
	return Disruption{Kept: slices.Concat(out.Blocks, out.Notes), Budgets: out.Budgets, HeldBack: out.HeldBack,
		Before: out.Before, Target: out.Target}
}

// Savings are the proven least that the fleet could cost, and the restrictions that make it dearer, as of a time.
type Savings struct {
	At     time.Time
	Report *savings.Report // nil before the first proof
}

// A Board may be used concurrently. What it returns must not be changed. A nil Board accepts values and keeps nothing.
type Board struct {
	mu         sync.Mutex
	version    uint64
	refused    map[types.UID]string
	disruption Disruption
	steps      []Step
	savings    Savings
}

// New returns an empty board.
func New() *Board { return &Board{} }

// Refuse replaces the explanations of pods that wait, by UID.
func (b *Board) Refuse(why map[types.UID]string) {
	b.set(func() { b.refused = why })
}

// Keep replaces the result of the disruption planner.
func (b *Board) Keep(d Disruption) {
	b.set(func() { b.disruption = d })
}

// Step replaces the steps.
func (b *Board) Step(steps []Step) {
	b.set(func() { b.steps = steps })
}

// Save replaces the proof of what the fleet could cost.
func (b *Board) Save(s Savings) {
	b.set(func() { b.savings = s })
}

// set makes one change under the lock and raises the version.
func (b *Board) set(what func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	what()
	b.version++
}

// A View is the content of a board at one moment.
type View struct {
	Version uint64 // grows with each change of the board
	Refused map[types.UID]string
	Disruption
	Steps   []Step
	Savings Savings
}

// View returns the present content.
func (b *Board) View() View {
	if b == nil {
		return View{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return View{b.version, b.refused, b.disruption, b.steps, b.savings}
}
