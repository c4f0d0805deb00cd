// Package board holds the last word of the loops about what is not as it might be: why pods have no place, what keeps nodes, which steps
// are under way. Loops write it where they report it to people; the views of the cluster read it.
//
// A Board receives values and keeps them until it receives others. It holds nothing of its own, and no loop reads it.
package board

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/disrupt"
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
	Text   string   // what goes and what comes, in one sentence; "" if not known after a restart
	Claims []string // that go
	Opens  []string // claims that come
	Saves  cloud.NanoUSD
	Pods   int       // that move
	Since  time.Time // zero while it waits
	Until  time.Time // when it is looked at again, or taken back at the latest
}

// Begun is a step as far as the record on its claims tells of it.
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

// Disruption is what the planner of disruption said last.
type Disruption struct {
	Kept     []disrupt.Refusal                // what keeps nodes, or makes it better to keep them
	Budgets  map[string][]v1.DisruptionReason // pools whose budgets allow no more, with the reasons
	HeldBack map[string]cloud.NanoUSD         // what budgets hold back of the savings, by pool
	// Before is what everything that may move costs and Target what the cheapest fleet found for it would; both 0 before the first search.
	Before, Target cloud.NanoUSD
}

// Found is what one pass of the planner said.
func Found(out *disrupt.Proposal) Disruption {
	return Disruption{Kept: slices.Concat(out.Blocks, out.Notes), Budgets: out.Budgets, HeldBack: out.HeldBack,
		Before: out.Before, Target: out.Target}
}

// A Board may be used concurrently. What it returns must not be changed. A nil Board accepts values and keeps nothing.
type Board struct {
	mu         sync.Mutex
	version    uint64
	refused    map[types.UID]string
	disruption Disruption
	steps      []Step
}

// New returns a board on which nothing stands.
func New() *Board { return &Board{} }

// Refuse replaces what is said of pods that wait, by UID.
func (b *Board) Refuse(why map[types.UID]string) {
	b.set(func() { b.refused = why })
}

// Keep replaces what is said of disruption.
func (b *Board) Keep(d Disruption) {
	b.set(func() { b.disruption = d })
}

// Step replaces the steps.
func (b *Board) Step(steps []Step) {
	b.set(func() { b.steps = steps })
}

func (b *Board) set(what func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	what()
	b.version++
}

// A View is what stands on a board at one moment.
type View struct {
	Version uint64 // grows with everything that is said
	Refused map[types.UID]string
	Disruption
	Steps []Step
}

// View returns what stands there now.
func (b *Board) View() View {
	if b == nil {
		return View{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return View{b.version, b.refused, b.disruption, b.steps}
}
