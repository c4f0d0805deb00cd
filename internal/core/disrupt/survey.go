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

// A survey describes each Karpenter node: its pods, price, faults and what keeps it. It is made in one walk over the nodes and then never
// changes. The code that proposes, confirms and explains steps reads only this description, so all of it agrees, for example on which nodes
// are on their way out. An explanation of why a node stays must give the planner's own reason.
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
	resting  spares          // placeholder pods for which capacity buffers keep room
	closed   map[string]bool // nodes that take no moved pods
	coming   map[string]bool // nodes on which room is kept for pods of other steps
	settling map[string]bool // nodes onto which consolidation, too, moves none: a pod came or went a short while ago
}

// A Candidate is the description of a Karpenter node in a survey. The node may be removed if nothing blocks it.
//
// Block and Held are two fields because drift may overcome Held. Block is about the node: it is not ready, it is going already, or a user
// forbade its removal. Held is about its pods. If the claim has a termination grace period, drift may remove the node although pods hold
// it.
//
// Cost is 1 for the node, even an empty one, plus about 1 for each pod that moves. So price divided by cost is always defined, and of two
// nodes with as many pods it prefers the dearer.
type Candidate struct {
	Node *cluster.Node
	Pool *v1.NodePool // nil if the node names no known pool
	// Pods must have a place before the node goes.
	Pods []*cluster.Pod
	// Spares are placeholder pods for which a capacity buffer keeps room on this node. Consolidation must find them another place; drift
	// and repair do if they can.
	Spares []*cluster.Pod
	// Block says what keeps the node from going for any reason, nil if nothing does.
	Block *Refusal
	// Held says that pods keep the node, which only a termination grace period overcomes (drift, never consolidation).
	Held *Refusal

	Price          cloud.NanoUSD
	Risk           cloud.NanoUSD // estimated cost of spot interruptions, which is not part of the price
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

// surveyOf makes the survey of a world.
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

// looking returns the pods of a node on its way out that need another place; none for other nodes. The node may also be another program's.
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

// room notes whether pods may be placed onto a node with a claim (closed, settling). If the node is on its way out, room returns those of
// its pods that need another place.
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

// settled reports whether the engine need not be asked for a place for a pod.
//
// A pod without seat is settled if it is held. A pod with a seat is settled if the machine of the seat is gone or closed to other pods, or
// the seat is still kept. Its room is taken there already; to ask again could plan a second machine for it, beside the first that still
// boots. Other pods are asked for again.
func (s *survey) settled(p *cluster.Pod, closed map[string]bool) bool {
	plan, planned := s.w.Snap.Planned(p.PodKey)
	if !planned {
		return s.w.Snap.Held(p.PodKey)
	}
	target := s.w.Snap.Target(plan.Target)
	return target == nil || closed[target.Name] || seat.Kept(s.w.Snap, plan, s.w.Now)
}

// settles reports whether a pod came to a node or left it less than its pool's consolidateAfter ago. Consolidation moves no pods onto such
// a node, because its free room is probably needed for pods that come and go.
func (s *survey) settles(f *facts) bool {
	p, ok := s.w.Pools[f.pool]
	if !ok {
		return false
	}
	after := p.Pool.Spec.Disruption.ConsolidateAfter.Duration
	return after != nil && *after > 0 && !f.consolidatable
}

// read describes a node with a claim.
//
// Most nodes have neither a protected pod nor a pod under a PodDisruptionBudget. Then nothing depends on the time, and the pods are taken
// from the cached facts.
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
		// Of several pods that hold the node, the pod that holds it longest is reported, so that the reason does not change when the
		// first of them ends. A zero Until means for good.
		if b := s.podBlock(n, p); b != nil && (c.Held == nil || b.Until.After(c.Held.Until) &&
			!c.Held.Until.IsZero() || b.Until.IsZero()) {
			c.Held = b
		}
	}
	return c
}

// await blocks a node if awaited pods, which are on their way to other nodes, need one of its pods to stay. See awaited.
func (s *survey) await(c *Candidate) {
	if at := slices.IndexFunc(c.Pods, func(p *cluster.Pod) bool { return s.awaited.looksFor(p, c.Node) }); at >= 0 && c.Block == nil {
		c.Block = &Refusal{Code: Awaited, Node: c.Node.Name, Claim: c.Node.Claim.Name, Pod: &c.Pods[at].PodKey}
	}
}

// count adds a node to the sums of its pool. Budgets do not count nodes that were never initialized or whose machine is being terminated.
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

// block returns the first rule about the node itself that keeps it from being removed, nil if none does.
//
// The order only decides which rule users see. What ends by itself comes first, because a user need do nothing about it; then what users
// forbade; then what is not known.
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

// podBlock returns how a pod keeps its node, nil if it does not: by do-not-disrupt, or by a PodDisruptionBudget that allows no eviction.
//
// A pod that is not evicted (of a DaemonSet, or finished) is held by no budget, but do-not-disrupt on it counts. A pod that leaves by a
// restart of its Deployment (surges) is held by no budget either.
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

// candidates returns the nodes that nothing blocks and that take part in no step, by name. Pods may still hold them.
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

// busy reports whether the node takes part in another step, or is left aside.
func (s *survey) busy(c *Candidate) bool { return s.w.Busy[c.Node.Claim.UID] }

// Name is the name of the candidate's node.
func (c *Candidate) Name() string { return c.Node.Name }

// Empty reports whether the node runs no pod that needs another place and no capacity buffer keeps room on it.
func (c *Candidate) Empty() bool { return len(c.Pods)+len(c.Spares) == 0 }

// idle reports whether the node runs no pod that would come back elsewhere, not even one for which no place could be found beforehand.
func (c *Candidate) idle() bool { return Vacated(c.Node) }

// Ratio says how much is saved for each pod that has to move.
func (c *Candidate) Ratio() float64 { return float64(c.Price) / c.Cost }

// moves returns the cost of moving the candidate's pods, 1 for an ordinary pod.
func (c *Candidate) moves() float64 { return c.Cost - 1 }

// Static candidates belong to a pool with a fixed number of nodes.
func (c *Candidate) Static() bool { return c.Pool.Spec.Replicas != nil }

// unconsolidated reports whether the node has the annotation do-not-consolidate, which was used before do-not-disrupt existed.
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
