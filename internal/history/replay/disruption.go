package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

const (
	// nextTurn is after how long a step without replacements drains its nodes, so that all steps of a pass have closed
	// theirs by then. Steps that budgets hold back at their second look are looked at again after it, too.
	nextTurn = time.Second
	// emptyPart is how many times as often as the fleet is searched, empty nodes are looked for.
	emptyPart = 10
)

// A disruption finds steps and carries them out, as the loops of the controller do.
type disruption struct {
	engine    *engine.Engine
	memory    disrupt.Memory
	vacancies disrupt.Vacancies
	facts     disrupt.Facts
	pending   disrupt.Queue
	busy      map[types.UID]bool // claims of steps that are carried out

	passed, looked time.Time // last pass, and last look for empty nodes
	pass, look     time.Time // when the next ones are due, zero for none
	turn           time.Time // when steps that budgets hold back are looked at again
}

// newDisruption returns a disruption that has not looked at the fleet yet.
func newDisruption(labels label.Table) disruption {
	return disruption{engine: engine.New(labels), pending: disrupt.Queue{}, busy: map[types.UID]bool{}}
}

// news makes a pass take place as soon as the pace allows, because something changed.
func (d *disruption) news(r *run) { d.passBy(r, d.passed.Add(r.set.Pace)) }

// passBy makes the next pass take place no later than at a time.
func (d *disruption) passBy(r *run, at time.Time) {
	if at.Before(r.now) {
		at = r.now
	}
	if !d.pass.IsZero() && !at.Before(d.pass) {
		return
	}
	d.pass = at
	r.at(at, func() {
		if d.pass.Equal(r.now) {
			d.pass = time.Time{}
			d.search(r)
		}
	})
}

// podLeft gives the freed room to pods that wait, and makes the machine be removed soon if it is empty.
func (d *disruption) podLeft(r *run, m *machine) {
	r.provisioner.fill(r, m)
	if len(m.pods) == 0 && !m.leaving && m.node != nil {
		d.lookBy(r, r.now)
	}
}

// lookBy makes empty nodes be looked for at a time, or as soon after it as the pace allows.
func (d *disruption) lookBy(r *run, at time.Time) {
	if soonest := d.looked.Add(max(time.Second, r.set.Pace/emptyPart).Truncate(time.Second)); at.Before(soonest) {
		at = soonest
	}
	if at.Before(r.now) {
		at = r.now
	}
	if !d.look.IsZero() && !at.Before(d.look) {
		return
	}
	d.look = at
	r.at(at, func() {
		if d.look.Equal(r.now) {
			d.look = time.Time{}
			d.removeEmpty(r)
		}
	})
}

// search is one pass of the planner over the fleet: it begins the steps that it finds, and schedules the next pass.
func (d *disruption) search(r *run) {
	d.passed, d.looked = r.now, r.now
	again := r.refresh()
	w := d.world(r)
	var out *disrupt.Proposal
	out, d.memory = disrupt.Propose(w, d.memory)
	for _, step := range out.Steps {
		d.begin(r, step)
	}
	r.steer(out.Steering)
	if len(out.Steps) > 0 {
		d.news(r)
	}
	for _, at := range []time.Time{again, out.Next} {
		if !at.IsZero() {
			d.passBy(r, ztime.Later(at, r.now.Add(r.set.Pace)))
		}
	}
}

// removeEmpty removes empty nodes between two passes. Its planner ends at once (Ended), so that it finds nothing
// else; the planner's memory of this look is dropped.
func (d *disruption) removeEmpty(r *run) {
	d.looked = r.now
	again := r.refresh()
	w := d.world(r)
	w.Ended = func() bool { return true }
	out, _ := disrupt.Propose(w, d.memory) // this memory is dropped: most nodes were not looked at
	for _, step := range out.Steps {
		if step.Method == disrupt.Emptiness {
			d.begin(r, step)
		}
	}
	vacant := slices.ContainsFunc(r.open, func(m *machine) bool { return len(m.pods) == 0 && !d.busy[m.claim.UID] })
	if vacant {
		d.lookBy(r, ztime.Sooner(ztime.Later(again, r.now.Add(time.Second)), out.Next))
	}
}

// begin starts a step, or queues it until its second look.
func (d *disruption) begin(r *run, step *disrupt.Step) {
	if !step.Method.Waits() {
		d.start(r, step)
		return
	}
	d.pending.Add(step, r.now)
	r.after(disrupt.SecondLook, func() { d.confirm(r) })
}

// confirm looks again at the steps whose second look is due. Steps that only budgets hold back stay in the queue;
// other steps that are refused now are dropped.
func (d *disruption) confirm(r *run) {
	round := d.pending.Round(r.now)
	for id, p := range round.Due() {
		if why := d.lookAgain(r, p.Step); why.Code != "" {
			_, d.memory = round.Refused(id, p, why, d.memory)
		}
	}
	if round.Held() && !d.turn.After(r.now) {
		d.turn = r.now.Add(nextTurn)
		r.after(nextTurn, func() { d.confirm(r) })
	}
}

// lookAgain starts a step that is still right, or returns why it is not.
func (d *disruption) lookAgain(r *run, was *disrupt.Step) disrupt.Refusal {
	r.refresh()
	var step *disrupt.Step
	var why disrupt.Refusal
	step, why, d.memory = disrupt.Confirm(d.world(r), d.memory, was)
	if why.Code == "" {
		d.start(r, step)
	}
	d.news(r)
	return why
}

// start carries a step out: it launches the replacements, and drains the old machines when all are ready. It does
// nothing if a machine is gone already, or if a replacement cannot be bought.
func (d *disruption) start(r *run, step *disrupt.Step) {
	var going []*machine
	for _, c := range step.Remove {
		m := r.machines[c.Name()]
		if m == nil || m.leaving {
			return
		}
		going = append(going, m)
	}
	bought := make([]purchase, len(step.Open))
	for i := range step.Open {
		if bought[i].it, bought[i].offer = r.buy(&step.Open[i]); bought[i].offer == nil {
			d.memory = d.memory.Failed(step, r.now)
			return
		}
	}
	r.meter.reasons[string(step.Reason)]++
	for _, m := range going {
		d.busy[m.claim.UID] = true
		r.close(m)
	}
	boots := len(step.Open)
	ready := func() {
		if boots--; boots <= 0 {
			for _, m := range going {
				r.drain(m)
			}
		}
	}
	claims := make([]string, len(step.Open))
	for i := range step.Open {
		m := r.launch(&step.Open[i], bought[i].it, bought[i].offer)
		claims[i], m.ready = m.claim.Name, append(m.ready, ready)
	}
	r.update(func(draft *cluster.Draft) { step.Begin(draft, claims, r.now) })
	if boots == 0 {
		r.after(nextTurn, ready)
	}
}

// world returns the input of the planner.
func (d *disruption) world(r *run) *disrupt.World {
	snap := r.Store.Snapshot()
	landing, over := seat.Landing(snap, r.now)
	if !over.IsZero() {
		r.update(func(draft *cluster.Draft) { draft.DropVacant(over) })
	}
	w := &disrupt.World{
		Snap: snap, Pools: r.pools, Busy: maps.Clone(d.busy), Promised: map[string]int{}, Ahead: true,
		Landing: landing, Vacant: d.vacancies.Look(snap, r.now), Facts: &d.facts,
		Settings: r.Planner, Now: r.now, Engine: d.engine, Terms: r.Engine,
	}
	d.pending.Hold(w)
	return w
}

// refresh writes into the store since when claims have been quiet, and what budgets allow. It returns when the first
// claim changes by itself, zero for never.
func (r *run) refresh() (again time.Time) {
	var changed []*v1.NodeClaim
	for _, m := range r.open {
		if !m.restless && (m.again.IsZero() || r.now.Before(m.again)) {
			again = ztime.Sooner(again, m.again)
			continue
		}
		c := m.claim.DeepCopy()
		c.Status.LastPodEventTime = metav1.NewTime(m.stirred)
		m.again = lifecycle.Consolidatable(c, r.pools[c.Labels[v1.NodePoolLabelKey]].Pool, r.now)
		m.claim, m.restless = c, false
		again = ztime.Sooner(again, m.again)
		changed = append(changed, c)
	}
	budgets := r.presentBudgets()
	r.update(func(d *cluster.Draft) {
		for _, c := range changed {
			d.PutClaim(c)
		}
		for _, b := range budgets {
			cluster.PDBs.Put(d, b)
		}
	})
	return again
}

// steer adds the taint that keeps new pods off a node, or removes it, as a pass of the planner wants.
func (r *run) steer(steering disrupt.Steering) {
	nodes := slices.SortedFunc(maps.Keys(steering), func(a, b *cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		m := r.machines[n.Name]
		if m == nil || m.leaving || m.avoided == steering[n] {
			continue
		}
		m.avoided = steering[n]
		node := m.node.DeepCopy()
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1.UnderusedTaintKey })
		if m.avoided {
			node.Spec.Taints = append(node.Spec.Taints, v1.UnderusedTaint())
		}
		m.node = node
		r.update(func(d *cluster.Draft) { d.PutNode(node) })
	}
}

// compiledBudgets returns the PodDisruptionBudgets with what they allow now, in the form that is asked about pods.
func (r *run) compiledBudgets() *movable.PDBs {
	var all []movable.PDB
	for _, b := range r.presentBudgets() {
		all = append(all, movable.Compile(b))
	}
	return movable.NewPDBs(all)
}

// presentBudgets returns the PodDisruptionBudgets with the status that their controller would write now. A pod counts
// as healthy if it is on a machine.
func (r *run) presentBudgets() []*policyv1.PodDisruptionBudget {
	if len(r.budgets) == 0 {
		return nil
	}
	var all []movable.PDB
	for _, b := range r.budgets {
		all = append(all, movable.Compile(b))
	}
	index := movable.NewPDBs(all)
	type key struct{ namespace, name string }
	expected, healthy := map[key]int{}, map[key]int{}
	for p := range r.Store.Snapshot().Pods() {
		for _, b := range index.Of(p) {
			expected[key{b.Namespace, b.Name}]++
			if p.NodeName != "" {
				healthy[key{b.Namespace, b.Name}]++
			}
		}
	}
	out := make([]*policyv1.PodDisruptionBudget, len(r.budgets))
	for i, b := range r.budgets {
		k := key{b.Namespace, b.Name}
		out[i] = b.DeepCopy()
		out[i].Status.DisruptionsAllowed = int32(max(0, healthy[k]-desired(b, expected[k])))
	}
	return out
}

// desired returns how many of the expected pods a budget wants to be healthy; all if it names no limit.
func desired(b *policyv1.PodDisruptionBudget, expected int) int {
	limit := b.Spec.MinAvailable
	if limit == nil {
		limit = b.Spec.MaxUnavailable
	}
	if limit == nil {
		return expected
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, expected, true)
	switch {
	case err != nil:
		return expected
	case b.Spec.MinAvailable != nil:
		return n
	}
	return max(0, expected-n)
}
