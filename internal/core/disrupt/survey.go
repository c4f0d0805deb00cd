package disrupt

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/core/surge"
)

// A survey describes each of our nodes, worked out in one walk over them: who proposes, confirms or explains reads it, and
// counts nothing again. It never changes.
//
// Every question about a node is asked of its row. Before there were rows, candidates, budgets, prices and explanations each walked the
// nodes with rules of their own, and disagreed about what a node on its way out is; a page that says why a node stays must say what the
// planner thinks, not something like it.
type survey struct {
	w        *World
	settings Settings
	pdbs     *movable.PDBs
	promises map[string]time.Time // see promises
	halts    paused.Switches
	awaited  *awaited

	rows  []*Candidate // Karpenter nodes, by name, whether they may go or not
	pools map[string]*poolSum

	waiting  []*cluster.Pod  // pods that need a place: pending ones and those of nodes on their way out
	resting  spares          // for which buffers have room
	closed   map[string]bool // nodes that take no moved pods
	coming   map[string]bool // nodes on which room is kept for pods of other steps
	settling map[string]bool // nodes onto which consolidation, too, moves none: a pod came or went a short while ago
}

// A Candidate is a Karpenter node, and what decisions read of it. It may be removed if nothing blocks it.
//
// Block and Held are two fields because drift may overcome one of them. What blocks a node speaks for itself: it is not ready, it is
// going, a user forbade it. What holds it are its pods, and a claim with a termination grace period says that pods do not hold it for
// ever.
//
// Cost is 1 for the node, even an empty one, and about 1 for each pod that moves, so that a ratio of price to cost never divides by
// nothing and prefers, of two nodes with as many pods, the dearer.
type Candidate struct {
	Node *cluster.Node
	Pool *v1.NodePool // nil where the node names none that is known
	// Pods must have a place before the node goes.
	Pods []*cluster.Pod
	// Spares rest on it: a buffer keeps room for them here. Consolidation gives them another place, what else
	// removes nodes does if it can.
	Spares []*cluster.Pod
	// Block says what keeps the node from going for any reason, nil if nothing does.
	Block *Refusal
	// Held says that pods keep the node, which only a termination grace period overcomes (drift, never consolidation).
	Held *Refusal

	Price          cloud.NanoUSD
	Risk           cloud.NanoUSD // what interruptions are reckoned to cost beside the price
	Priced         bool          // the type, zone and capacity type are known and offered
	Cost           float64
	Restarts       int // workloads that are restarted so that their pods leave
	Consolidatable bool
	Drifted        *metav1.Condition // condition Drifted while it is True
	Fault          *lifecycle.Fault  // what is wrong with the node, due or not; nil where nodes are not repaired

	bought   purchase
	zone     string
	rebooted bool // a reboot was begun before, so it was initialized once
}

// poolSum adds up the nodes of a pool: what they cost, what it would cost to move everything in it, and what budgets count.
type poolSum struct {
	price cloud.NanoUSD
	cost  float64
	count PoolCount
	// nodes are all nodes of the pool, and faulty those with a fault, due or not.
	nodes, faulty int
}

// surveyOf surveys a world.
func surveyOf(w *World) *survey {
	s := &survey{
		w: w, settings: w.Settings.complete(), pdbs: pdbsOf(w), promises: promises(w.Snap, w.Now),
		awaited: awaitedOf(w.Snap, w.Now), halts: paused.Switches{Snap: w.Snap, Now: w.Now},
		pools: map[string]*poolSum{}, closed: map[string]bool{}, coming: map[string]bool{},
		settling: map[string]bool{}, resting: sparesOf(w.Snap),
	}
	for name := range w.Pools {
		s.pools[name] = &poolSum{count: PoolCount{Raw: map[v1.DisruptionReason]int{}}}
	}
	for name := range w.Landing {
		s.closed[name] = true
	}
	for _, p := range w.Coming {
		s.coming[p.Node] = true
	}
	looking := w.Snap.Provisionable()
	w.Facts.look(w.Snap.NodeCount())
	for n := range w.Snap.Nodes() {
		if n.Claim == nil {
			looking = append(looking, s.looking(n)...)
			continue
		}
		f := w.Facts.about(n)
		looking = append(looking, s.room(n, f)...)
		c := s.read(n, f)
		s.await(c)
		s.count(c, f)
		if s.ours(n.Claim) {
			s.rows = append(s.rows, c)
		}
	}
	s.waiting = slices.DeleteFunc(looking, func(p *cluster.Pod) bool { return s.settled(p, s.closed) })
	for name, sum := range s.pools {
		sum.count.allow(w.Pools[name].Pool, w.Now)
	}
	return s
}

func pdbsOf(w *World) *movable.PDBs {
	var budgets []movable.PDB
	for b := range cluster.PDBs.All(w.Snap) {
		budgets = append(budgets, movable.Compile(b))
	}
	return movable.NewPDBs(budgets)
}

// ours reports whether the claim's node class is of a kind that one of the pools uses. Other claims belong to other providers. Without
// pools no claim is ours.
func (s *survey) ours(claim *v1.NodeClaim) bool {
	ref := claim.Spec.NodeClassRef
	if ref == nil {
		return false
	}
	for _, p := range s.w.Pools {
		have := p.Pool.Spec.Template.Spec.NodeClassRef
		if have != nil && have.Group == ref.Group && have.Kind == ref.Kind {
			return true
		}
	}
	return false
}

// looking returns the pods that look for a place because their node, ours or not, is on its way out.
func (s *survey) looking(n *cluster.Node) (out []*cluster.Pod) {
	if n.MarkedForRemoval || n.Claim != nil && n.Claim.DeletionTimestamp != nil {
		for _, p := range n.Pods {
			if s.pdbs.CurrentlyReschedulable(p, s.w.Now) {
				out = append(out, p)
			}
		}
	}
	return out
}

// room notes what a node with a claim means for pods that look for a place, and returns those on it that do.
func (s *survey) room(n *cluster.Node, f *facts) []*cluster.Pod {
	if n.Node != nil && s.settles(f) {
		s.settling[n.Name] = true
	}
	if n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil {
		return s.looking(n)
	}
	if s.w.Busy[n.Claim.UID] || !f.initialized || f.rebooting {
		s.closed[n.Name] = true
	}
	return nil
}

// settled pods need no place where some nodes are closed: they are not given any, or have a seat on a node that
// takes no others. A pod that is planned onto a node which does is asked for again: the engine gives it that place,
// and counts it there whenever it matters who is beside whom.
//
// The room of a pod that already has a plan is taken. To ask for it again would plan two machines for one pod: a
// machine that boots already, and a machine that this pass would wait for.
func (s *survey) settled(p *cluster.Pod, closed map[string]bool) bool {
	plan, planned := s.w.Snap.Planned(p.PodKey)
	if !planned {
		return s.w.Snap.Held(p.PodKey)
	}
	target := s.w.Snap.Target(plan.Target)
	return target == nil || closed[target.Name] || seat.Kept(s.w.Snap, plan, s.w.Now)
}

// settles reports whether a node saw a pod come or go less than its pool's consolidateAfter ago.
//
// consolidateAfter is about the pool's own nodes going, but what it guards against is a node that something happens on: pods that come
// and go there say that its free room is spoken for, for any question.
func (s *survey) settles(f *facts) bool {
	p, ok := s.w.Pools[f.pool]
	if !ok {
		return false
	}
	after := p.Pool.Spec.Disruption.ConsolidateAfter.Duration
	return after != nil && *after > 0 && !f.consolidatable
}

// read makes the row of a node with a claim.
//
// Most nodes have neither a pod that is protected nor a pod that a budget counts. Then the clock decides nothing
// about them, and what was read of the row at an earlier look is taken unchanged.
func (s *survey) read(n *cluster.Node, f *facts) *Candidate {
	c := &Candidate{Node: n, Cost: f.cost, Block: s.block(n, f), Spares: s.resting.on[n.Name], bought: f.bought, zone: f.zone,
		rebooted: f.rebooted}
	if n.Node == nil {
		return c
	}
	if input, known := s.w.Pools[f.pool]; known {
		c.Pool = input.Pool
		c.Price, c.Priced = f.price(input.Catalog)
		if each := input.InterruptionCost(s.w.Terms.InterruptionCost); each > 0 && c.spot() {
			if o := input.Catalog.Offering(f.labels); o != nil {
				c.Risk = o.Risk(each)
			}
		}
	}
	c.Fault = s.w.Repairs.Of(n.Node, n.Claim, s.w.Now)
	c.Consolidatable, c.Drifted = f.consolidatable && !c.unconsolidated(), f.drifted
	if f.unguarded(s.pdbs) {
		c.Pods = slices.Clip(f.moving)
		return c
	}
	restarts := map[types.UID]bool{}
	for _, p := range n.Pods {
		surges := s.surges(p)
		if surges && !restarts[p.Owner.UID] {
			restarts[p.Owner.UID] = true
			c.Restarts++
			c.Cost += movesPerRestart
		}
		if surges || s.pdbs.CurrentlyReschedulable(p, s.w.Now) {
			c.Pods = append(c.Pods, p)
		}
		// Of several that hold it, the longest one is reported: a user who waits for the other would hear a new reason then. A zero
		// time is for good.
		if b := s.podBlock(n, p); b != nil && (c.Held == nil || b.Until.After(c.Held.Until) &&
			!c.Held.Until.IsZero() || b.Until.IsZero()) {
			c.Held = b
		}
	}
	return c
}

// await blocks a node whose pods others count on that are on their way.
func (s *survey) await(c *Candidate) {
	if at := slices.IndexFunc(c.Pods, func(p *cluster.Pod) bool { return s.awaited.looksFor(p, c.Node) }); at >= 0 && c.Block == nil {
		c.Block = &Refusal{Code: Awaited, Node: c.Node.Name, Claim: c.Node.Claim.Name, Pod: &c.Pods[at].PodKey}
	}
}

// count adds a node to the sums of its pool.
func (s *survey) count(c *Candidate, f *facts) {
	if c.Pool == nil {
		return
	}
	sum := s.pools[c.Pool.Name]
	sum.price += c.Price
	sum.cost += c.Cost
	sum.nodes++
	if c.Fault != nil {
		sum.faulty++
	}
	if !f.initialized && !f.rebooted || f.terminating {
		return
	}
	sum.count.Nodes++
	if f.leaving || f.rebooting || !f.ready {
		sum.count.Consuming++
		if !f.leaving && !f.rebooting {
			sum.count.NotReady++
		}
		if at := c.Node.Claim.DeletionTimestamp; !f.leaving || at != nil && s.w.Now.Sub(at.Time) >= stuckAfter {
			sum.count.Stuck++
		}
	}
}

// block applies the rules about the node itself, in the order in which users know them.
//
// The order matters to people only: the first is reported. What ends by itself comes first, because its reader needs do nothing, then
// the wishes of users, then what is not known.
func (s *survey) block(n *cluster.Node, f *facts) *Refusal {
	block := func(code Code, name string, until time.Time) *Refusal {
		r := &Refusal{Code: code, Node: n.Name, Claim: n.Claim.Name, Name: name, Until: until}
		if n.Node == nil {
			r.Node = ""
		}
		return r
	}
	switch {
	case n.Node == nil:
		return block(NoNode, "", time.Time{})
	case f.rebooting && !f.leaving:
		return block(Rebooting, "", time.Time{})
	case !f.initialized:
		return block(NotInitialized, "", time.Time{})
	case f.leaving || f.terminating:
		return block(Deleting, "", time.Time{})
	case s.w.Landing[n.Name], s.coming[n.Name]:
		return block(Landing, "", time.Time{})
	case s.promises[n.Name].After(s.w.Now):
		return block(Nominated, "", s.promises[n.Name])
	case n.Node.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(NodeProtected, v1.DoNotDisruptAnnotationKey, time.Time{})
	case n.Claim.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(ClaimProtected, v1.DoNotDisruptAnnotationKey, time.Time{})
	}
	if h, halted := s.halts.Node(n); halted {
		r := block(Paused, h.Pool, h.Until)
		r.Value = h.Reason
		return r
	}
	if p, ok := s.w.Pools[f.pool]; !ok || p.Catalog == nil || len(p.Catalog.Types) == 0 {
		return block(NoPool, f.pool, time.Time{})
	}
	return nil
}

// podBlock applies do-not-disrupt, for pods of every kind, and the PodDisruptionBudgets of pods that would be evicted.
//
// A pod that gets no new place (of a DaemonSet, or finished) needs no eviction, so no budget holds it; but do-not-disrupt
// on it still says that a user watches it.
func (s *survey) podBlock(n *cluster.Node, p *cluster.Pod) *Refusal {
	block := func(code Code) *Refusal { // of few pods: nothing is made for the others
		return &Refusal{Code: code, Node: n.Name, Claim: n.Claim.Name, Pod: &p.PodKey}
	}
	if held := movable.Protected(p, s.w.Now); held.Held {
		r := block(PodProtected)
		r.Name, r.Value, r.Until = v1.DoNotDisruptAnnotationKey, p.DoNotDisrupt, held.Until
		if p.DoNotEvict {
			r.Name = v1.DoNotEvictAnnotationKey
		}
		return r
	}
	budget, several := s.pdbs.Blocking(p, s.w.Now)
	if budget == nil || s.surges(p) {
		return nil
	}
	r := block(PodBudget)
	if p.Owner != nil {
		r.Value = string(s.w.Surge[p.Owner.UID])
	}
	if !several {
		r.Name = budget.Namespace + "/" + budget.Name
	}
	return r
}

// movesPerRestart is how many moves of an ordinary pod a restart of a workload counts as: nodes that need none go first.
const movesPerRestart = 10

// surges reports whether a pod leaves by a restart of its Deployment, although a PodDisruptionBudget holds it.
func (s *survey) surges(p *cluster.Pod) bool {
	if len(s.w.Surge) == 0 || p.Owner == nil || s.w.Surge[p.Owner.UID] != surge.Possible || movable.Protected(p, s.w.Now).Held ||
		!movable.Reschedulable(p) {
		return false
	}
	budget, _ := s.pdbs.Blocking(p, s.w.Now)
	return budget != nil
}

// candidates lists the nodes that may go, by name.
func (s *survey) candidates() []*Candidate {
	return slices.DeleteFunc(slices.Clone(s.rows), func(c *Candidate) bool { return c.Block != nil || s.busy(c) })
}

// blocks returns what keeps nodes, one refusal for each node, in the order of names: Block, or else Held, although a node that is held is
// a candidate too. It leaves out nodes that take part in a step already.
func (s *survey) blocks() (out []Refusal) {
	for _, c := range s.rows {
		switch {
		case s.busy(c):
		case c.Block != nil:
			out = append(out, *c.Block)
		case c.Held != nil:
			out = append(out, *c.Held)
		}
	}
	return out
}

func (s *survey) busy(c *Candidate) bool { return s.w.Busy[c.Node.Claim.UID] }

// Name is the name of the candidate's node.
func (c *Candidate) Name() string { return c.Node.Name }

// Empty candidates run nothing that needs another place, and no buffer rests on them.
func (c *Candidate) Empty() bool { return len(c.Pods)+len(c.Spares) == 0 }

// idle candidates run nothing that comes back when they go, not even what cannot be given a place beforehand.
func (c *Candidate) idle() bool { return Vacated(c.Node) }

// Ratio says how much is saved for each pod that has to move.
func (c *Candidate) Ratio() float64 { return float64(c.Price) / c.Cost }

// moves is how much its pods mind that a candidate goes, an ordinary one as much as 1.
func (c *Candidate) moves() float64 { return c.Cost - 1 }

// Static candidates belong to a pool with a fixed number of nodes.
func (c *Candidate) Static() bool { return c.Pool.Spec.Replicas != nil }

// unconsolidated reports whether the node says, by an annotation of the days before do-not-disrupt, that it is not to be consolidated.
func (c *Candidate) unconsolidated() bool {
	return c.Node.Node.Annotations[v1.DoNotConsolidateAnnotationKey] == "true"
}

// lacks names the first label without which the candidate's node cannot be priced, "" if it has all of them.
func (c *Candidate) lacks() string {
	switch {
	case c.bought.instanceType == "":
		return corev1.LabelInstanceTypeStable
	case c.bought.capacityType == "":
		return v1.CapacityTypeLabelKey
	case c.zone == "":
		return corev1.LabelTopologyZone
	}
	return ""
}

// spot reports whether a candidate runs on spot capacity.
func (c *Candidate) spot() bool { return c.bought.capacityType == v1.CapacityTypeSpot }

// byRatio puts the candidates that save most for each moved pod first.
func byRatio(candidates []*Candidate) {
	slices.SortFunc(candidates, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Name(), b.Name()))
	})
}

// byName orders candidates for output.
func byName(candidates []*Candidate) {
	slices.SortFunc(candidates, func(a, b *Candidate) int { return cmp.Compare(a.Name(), b.Name()) })
}
