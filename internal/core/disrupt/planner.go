package disrupt

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A Planner proposes steps. It remembers what failed, where its last pass stopped, and in which world there was nothing to do.
// It is not safe for concurrent use.
type Planner struct {
	engine  planEngine
	failed  map[types.UID]setback
	resume  string
	looked  int // nodes that were weighed one at a time since something was found
	idle    idleness
	outlook outlook
	unrest  unrest
	adrift  bool               // the fleet was far from its target when it was last searched for, and still is not near it
	avoided map[types.UID]bool // claims of the nodes that new pods should be kept off, nil before the first search
}

// NewPlanner returns a planner that asks e its what-if questions.
func NewPlanner(e planEngine) *Planner {
	return &Planner{engine: e, failed: map[types.UID]setback{}}
}

// Afresh returns a planner that knows what failed, and nothing else of what this one remembers.
func (p *Planner) Afresh() *Planner {
	return &Planner{engine: p.engine, failed: maps.Clone(p.failed)}
}

// A setback keeps a node from being tried again too soon.
type setback struct {
	until time.Time
	wait  time.Duration
}

const (
	firstSetback = time.Minute
	lastSetback  = time.Hour
	idleFor      = 5 * time.Minute // prices and availability change without an event in the cluster
)

// idleness is the world in which a pass found nothing that could ever be done without a change.
type idleness struct {
	news     uint64
	catalogs map[string]*cloud.Catalog
	until    time.Time
}

// A Proposal is the outcome of one pass.
type Proposal struct {
	Steps    []*Step
	Blocks   []Refusal // nodes that may not be removed
	Notes    []Refusal // nodes that could be removed, but are better kept
	Eligible map[Method]int
	Counts   map[string]*PoolCount
	Budgets  map[string][]v1.DisruptionReason // pools whose budgets allow nothing now, although there is something to do
	// Before is what everything that may move costs, Target what the cheapest fleet found for it would, and HeldBack
	// the part of the difference that budgets hold back now, by pool.
	Before, Target cloud.NanoUSD
	HeldBack       map[string]cloud.NanoUSD
	// Steering says where the taint that keeps new pods off a node is not as it should be.
	Steering Steering
	// Next is when something changes by itself at the latest: a protection ends, a setback is over.
	Next time.Time
	Calm bool // there is nothing to do as long as nothing changes
	Idle bool // nothing changed since a pass that found nothing; the other fields are empty
}

// Propose plans one pass.
func (p *Planner) Propose(ctx context.Context, w *World) *Proposal {
	if p.unchanged(w) {
		return &Proposal{Calm: true, Idle: true, Next: p.idle.until}
	}
	candidates, blocks := Candidates(w)
	out := &Proposal{Blocks: blocks, Eligible: map[Method]int{}, HeldBack: map[string]cloud.NanoUSD{}, Next: w.Now.Add(idleFor)}
	ledger := NewLedger(w)
	out.Counts = ledger.Counts()
	s := &search{w: w, q: newWhatIf(w, p.engine, pdbsOf(w)), ledger: ledger, totals: poolTotals(w), notes: map[*Candidate]Refusal{}}
	candidates = p.withoutFailed(w, candidates)
	gone := map[*Candidate]bool{}
	add := func(steps []*Step) {
		for _, step := range steps {
			for _, c := range step.Remove {
				gone[c] = true
			}
			out.Steps = append(out.Steps, step)
		}
	}
	rest := func() []*Candidate {
		return slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool { return gone[c] })
	}

	steps, notes, soon := empties(w, candidates, ledger)
	out.Eligible[Emptiness] = countEmpty(candidates)
	out.Notes = append(out.Notes, notes...)
	add(steps)

	drift, later := drifted(w, rest())
	soon = append(soon, later...)
	for _, c := range soon {
		if at := w.vacant(c); at.Before(out.Next) {
			out.Next = at
		}
	}
	out.Eligible[Drift] = len(drift)
	replaced := append(s.drifts(ctx, drift), s.staticDrifts(ctx, rest())...)
	for _, step := range replaced {
		p.unrest.leaves(step, w.Now)
	}
	add(replaced)
	slices.SortFunc(s.stuck, func(a, b Refusal) int { return cmp.Compare(a.Node, b.Node) })
	out.Blocks = append(out.Blocks, s.stuck...)

	movers, notes := movers(rest())
	movers = slices.DeleteFunc(movers, func(c *Candidate) bool { return c.Drifted != nil })
	out.Eligible[MultiNode], out.Eligible[SingleNode] = len(movers), len(movers)
	out.Notes = append(out.Notes, notes...)
	// Nodes that other steps of this pass remove, or those of the next, are no room for anybody.
	s.q.gate(slices.Collect(maps.Keys(gone)))
	s.q.gate(soon)
	known := true
	if len(movers) == 0 || len(s.q.pools) == 0 {
		p.resume, p.looked = "", 0
	} else {
		world := s.signature(movers)
		known = !p.outlook.rests(world, ledger, w.Now)
		if known && !p.outlook.same(world, w.Now) {
			p.outlook.world = world
			add(p.look(ctx, s, movers, gone))
		}
		p.outlook.tell(out, w.Now)
	}
	out.Steering = p.steer(w, ledger, candidates, slices.DeleteFunc(movers, func(c *Candidate) bool { return gone[c] }))
	for c, why := range s.notes {
		if !gone[c] {
			out.Notes = append(out.Notes, why)
		}
	}
	slices.SortStableFunc(out.Notes, func(a, b Refusal) int { return cmp.Compare(a.Node, b.Node) })
	out.Budgets = exhausted(ledger, candidates, gone)
	p.remember(w, out, known)
	return out
}

// look searches for a cheaper fleet and keeps what it learned of it.
func (p *Planner) look(ctx context.Context, s *search, movers []*Candidate, gone map[*Candidate]bool) []*Step {
	p.outlook = outlook{world: p.outlook.world, cramped: s.ledger.cramped(v1.DisruptionReasonUnderutilized), heldBack: map[string]cloud.NanoUSD{}}
	s.unrest, s.looked, s.adrift = p.unrest.scale(s.w), p.looked, p.adrift
	steps, goal, next := s.run(ctx, movers, p.resume)
	p.resume, p.looked, p.adrift = next, s.looked, s.adrift
	if len(steps) > 0 || next == "" {
		p.looked = 0
	}
	p.outlook.before, p.outlook.target = goal.before, goal.after
	taken := maps.Clone(gone)
	for _, step := range steps {
		for _, c := range step.Remove {
			taken[c] = true
		}
	}
	heldBack(p.outlook.heldBack, goal, taken)
	p.avoided = avoid(slices.DeleteFunc(slices.Clone(movers), func(c *Candidate) bool { return taken[c] }), s.wasted, goal)
	if len(steps) == 0 && next == "" {
		p.outlook.sameUntil, p.outlook.nextLook = s.w.Now.Add(idleFor), s.w.Now.Add(betweenLooks)
		p.adrift = p.adrift && len(p.outlook.cramped) > 0 // no way leads nearer
	}
	return steps
}

func countEmpty(candidates []*Candidate) int {
	n := 0
	for _, c := range candidates {
		if c.Empty() && c.Consolidatable && !c.Static() && c.Held == nil {
			n++
		}
	}
	return n
}

// heldBack shares out what the target would save beyond the steps that fit.
func heldBack(out map[string]cloud.NanoUSD, goal target, gone map[*Candidate]bool) {
	for _, step := range goal.steps {
		if slices.ContainsFunc(step.Remove, func(c *Candidate) bool { return gone[c] }) {
			continue
		}
		for _, c := range step.Remove {
			out[c.Pool.Name] += cloud.NanoUSD(float64(step.Saves()) * float64(c.Price) / float64(max(1, step.Before)))
		}
	}
}

// exhausted names the pools that have something to do for a reason whose budget allows nothing.
func exhausted(l *Ledger, candidates []*Candidate, gone map[*Candidate]bool) map[string][]v1.DisruptionReason {
	wanted := map[string]map[v1.DisruptionReason]bool{}
	want := func(c *Candidate, reason v1.DisruptionReason) {
		if l.Left(c.Pool.Name, reason) > 0 || l.counts[c.Pool.Name].Nodes == 0 {
			return
		}
		if wanted[c.Pool.Name] == nil {
			wanted[c.Pool.Name] = map[v1.DisruptionReason]bool{}
		}
		wanted[c.Pool.Name][reason] = true
	}
	for _, c := range candidates {
		switch {
		case gone[c]:
		case c.Drifted != nil:
			want(c, v1.DisruptionReasonDrifted)
		case c.Empty() && c.Consolidatable:
			want(c, v1.DisruptionReasonEmpty)
		case c.Consolidatable:
			want(c, v1.DisruptionReasonUnderutilized)
		}
	}
	out := map[string][]v1.DisruptionReason{}
	for pool, set := range wanted {
		out[pool] = slices.Sorted(maps.Keys(set))
	}
	return out
}

// unchanged tells whether the last pass found nothing to do in this very world.
func (p *Planner) unchanged(w *World) bool {
	if p.idle.until.IsZero() || p.idle.news != w.Snap.News() || !w.Now.Before(p.idle.until) || len(p.idle.catalogs) != len(w.Pools) {
		return false
	}
	for name, input := range w.Pools {
		if p.idle.catalogs[name] != input.Catalog {
			return false
		}
	}
	return true
}

// remember notes that there was nothing to do, unless the pass was constrained by budgets, not finished, or not shown nodes whose
// steps are still open: those end without a change of the cluster.
func (p *Planner) remember(w *World, out *Proposal, known bool) {
	for _, b := range out.Blocks {
		if !b.Until.IsZero() && b.Until.Before(out.Next) {
			out.Next = b.Until
		}
	}
	for _, s := range p.failed {
		if s.until.After(w.Now) && s.until.Before(out.Next) {
			out.Next = s.until
		}
	}
	p.idle = idleness{}
	if len(out.Steps)+len(out.Steering) > 0 || len(out.Budgets) > 0 || !known || p.resume != "" || len(w.Busy)+len(w.Landing) > 0 {
		return
	}
	out.Calm = true
	p.idle = idleness{news: w.Snap.News(), until: out.Next, catalogs: map[string]*cloud.Catalog{}}
	for name, input := range w.Pools {
		p.idle.catalogs[name] = input.Catalog
	}
}

// Failed tells the planner that a step could not be carried out or was no longer right. Its nodes are left alone for a
// while, each time for twice as long.
func (p *Planner) Failed(step *Step, now time.Time) {
	for uid := range uids(step.Remove) {
		s := p.failed[uid]
		s.wait = min(lastSetback, max(firstSetback, 2*s.wait))
		s.until = now.Add(s.wait)
		p.failed[uid] = s
	}
	p.idle, p.outlook = idleness{}, outlook{}
}

// withoutFailed leaves out nodes whose last step failed a short while ago, and forgets nodes that are gone.
func (p *Planner) withoutFailed(w *World, candidates []*Candidate) []*Candidate {
	known := uids(candidates)
	for uid, s := range p.failed {
		if !known[uid] && w.Now.After(s.until.Add(lastSetback)) {
			delete(p.failed, uid)
		}
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool {
		return p.failed[c.Node.Claim.UID].until.After(w.Now)
	})
}

// Confirm looks at a step again in the newest world. It returns the step as it should be carried out there, or why not.
// Nodes must still be candidates, budgets must still allow them, and the pods must still find places at a price that saves
// what it should. Empty nodes that no longer qualify drop out of their step.
func (p *Planner) Confirm(ctx context.Context, w *World, step *Step) (*Step, Refusal) {
	candidates, _ := Candidates(w)
	byUID := map[types.UID]*Candidate{}
	for _, c := range candidates {
		byUID[c.Node.Claim.UID] = c
	}
	var remove []*Candidate
	for _, old := range step.Remove {
		c := byUID[old.Node.Claim.UID]
		if c == nil || !still(step, c) {
			return nil, Refusal{Code: Churn}.of(old)
		}
		remove = append(remove, c)
	}
	ledger := NewLedger(w)
	if !ledger.Take(step.Reason, remove) {
		return nil, Refusal{Code: Budget, Reason: step.Reason, Need: float64(len(remove))}
	}
	if step.Method == Emptiness {
		return &Step{Method: step.Method, Reason: step.Reason, Remove: remove, Before: step.Before}, Refusal{}
	}
	s := &search{w: w, q: newWhatIf(w, p.engine, pdbsOf(w)), ledger: NewLedger(w), totals: poolTotals(w), notes: map[*Candidate]Refusal{}}
	empty, _, soon := empties(w, candidates, NewLedger(w))
	for _, e := range empty {
		s.q.gate(e.Remove)
	}
	s.q.gate(soon)
	var steps []*Step
	if step.Method == Drift {
		steps = s.drifts(ctx, remove)
	} else {
		steps = s.weigh(ctx, remove, engine.Question{})
	}
	out, refusal := join(steps, len(remove))
	if refusal.Code == "" && step.Method != Drift && float64(out.Gains()) < stillSaves*float64(step.Gains()) {
		return nil, Refusal{Code: Scheduling}
	}
	if refusal.Code == "" && step.Method != Drift {
		p.unrest.leaves(out, w.Now)
	}
	return out, refusal
}

// stillSaves is the part of its saving that a step must still have when it is looked at again: another step between the same
// nodes was never weighed against the pods that it moves.
const stillSaves = 0.9

// still tells whether a candidate is one for the step's reason.
func still(step *Step, c *Candidate) bool {
	switch step.Method {
	case Emptiness:
		return c.Empty() && c.Consolidatable && c.Held == nil
	case Drift:
		return c.Drifted != nil && (c.Held == nil || c.Node.Claim.Spec.TerminationGracePeriod != nil)
	}
	_, ok := consolidates(c)
	return ok && c.Held == nil
}

// Forbids says why a step that another process has begun may not go on to remove the nodes of some claims; its code is "" if it may. They
// must be candidates for its reason, and the budgets must let them go together.
func (w *World) Forbids(reason v1.DisruptionReason, claims []types.UID) Refusal {
	wanted := map[types.UID]bool{}
	for _, uid := range claims {
		wanted[uid] = true
	}
	candidates, blocks := Candidates(w)
	var remove []*Candidate
	for _, c := range candidates {
		switch {
		case !wanted[c.Node.Claim.UID]:
			continue
		case c.Held != nil && (reason != v1.DisruptionReasonDrifted || c.Node.Claim.Spec.TerminationGracePeriod == nil):
			return *c.Held
		case reason == v1.DisruptionReasonEmpty && !c.Empty():
			return Refusal{Code: NotEmpty}.of(c)
		}
		remove = append(remove, c)
	}
	if len(remove) < len(wanted) {
		for i := range blocks {
			if n := w.Snap.ClaimNode(blocks[i].Claim); n != nil && wanted[n.Claim.UID] {
				return blocks[i]
			}
		}
		return Refusal{Code: NotOurs}
	}
	if !NewLedger(w).Take(reason, remove) {
		return Refusal{Code: Budget, Reason: reason, Need: float64(len(remove))}
	}
	return Refusal{}
}

// join puts the parts into which a confirmed step fell together again; all of its nodes must be there.
func join(steps []*Step, nodes int) (*Step, Refusal) {
	if len(steps) == 0 {
		return nil, Refusal{Code: Scheduling}
	}
	out := *steps[0]
	for _, s := range steps[1:] {
		out.Remove = append(slices.Clone(out.Remove), s.Remove...)
		out.Open = append(slices.Clone(out.Open), s.Open...)
		out.Place = append(slices.Clone(out.Place), s.Place...)
		out.Before += s.Before
		out.After += s.After
		out.Worst += s.Worst
		out.Own += s.Own
	}
	if len(out.Remove) != nodes {
		return nil, Refusal{Code: Scheduling}
	}
	if len(out.Remove) > 1 && out.Method == SingleNode {
		out.Method = MultiNode
	}
	return &out, Refusal{}
}
