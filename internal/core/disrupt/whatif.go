package disrupt

import (
	"cmp"
	"maps"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// whatIf asks the engine what happens without some nodes.
//
// A what-if question is an ordinary plan for waiting pods, in which some nodes are gone and their pods wait too: the same engine, the
// same rules, the same prices. So a step does what provisioning would do if these nodes failed at once, and a pod without a place gets
// the same reasons as a pod that waits.
type whatIf struct {
	survey   *survey
	openable []engine.Pool      // pools in which machines may be opened
	gated    map[string]bool    // nodes that get no pods which consolidation moves
	kept     []engine.Placement // places of other steps' pods: their room is not given to other pods
	work     int                // pods asked about so far, plus one for each question: a measure of the time used
}

// whatIf prepares questions about the world. Pools that are static, not ready or being deleted open no machines.
func (s *survey) whatIf() *whatIf {
	q := &whatIf{survey: s, gated: union(s.closed, s.settling), kept: slices.Clip(s.w.Coming)}
	for _, name := range slices.Sorted(maps.Keys(s.w.Pools)) {
		p := s.w.Pools[name]
		if !s.w.NotReady[name] && p.Pool.Spec.Replicas == nil && p.Pool.DeletionTimestamp == nil {
			q.openable = append(q.openable, p)
		}
	}
	return q
}

// opens returns the pools in which a step may open machines in place of some nodes.
//
// While a rollout of a pool is under way or stopped, its machines may be bad ones: it gets only those that replace its own nodes, of
// which the rollout decides how many go. The pods of a broken node get what waiting pods would get.
func (q *whatIf) opens(reason v1.DisruptionReason, remove []*Candidate) []engine.Pool {
	if q.survey.w.Rollouts == nil || reason == v1.DisruptionReasonUnhealthy {
		return q.openable
	}
	return slices.DeleteFunc(slices.Clone(q.openable), func(p engine.Pool) bool {
		own := slices.ContainsFunc(remove, func(c *Candidate) bool { return c.Pool.Name == p.Pool.Name })
		return q.survey.w.Rollouts[p.Pool.Name].Still && !own
	})
}

// gate keeps consolidation from moving pods onto nodes that go themselves.
func (q *whatIf) gate(going []*Candidate) {
	for _, c := range going {
		q.gated[c.Name()] = true
	}
}

// union returns a new set with what is in a or b.
func union(a, b map[string]bool) map[string]bool {
	out := make(map[string]bool, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// An answer is the engine's plan for a fleet without some nodes, cut into parts that share no opening.
type answer struct {
	parts   []part
	refused map[*Candidate][]Stuck // nodes whose pods found no place, and why
}

// A part is some removed nodes and the openings that take their pods.
type part struct {
	remove []*Candidate
	open   []engine.Opening
	place  []engine.Placement
}

// ask plans the fleet without the nodes of remove, for consolidation. Nodes whose pods or spares find no place stay (refused), and the
// rest is asked again, until all pods of the rest have places.
func (q *whatIf) ask(remove []*Candidate, base engine.Question) answer {
	base.Pools = q.opens(v1.DisruptionReasonUnderutilized, remove)
	return q.askWith(remove, base, q.survey.resting)
}

// insist is ask for nodes that are replaced at any price, which buffers must not keep. If some of the nodes are refused, everything is
// asked again without the spares of buffers. Machines are opened in the pools of base, or if it names none, in those that opens
// returns.
func (q *whatIf) insist(reason v1.DisruptionReason, remove []*Candidate, base engine.Question) answer {
	if base.Pools == nil {
		base.Pools = q.opens(reason, remove)
	}
	out := q.askWith(remove, base, q.survey.resting)
	if len(out.refused) == 0 || len(q.survey.resting.still) == 0 {
		return out
	}
	return q.askWith(remove, base, spares{})
}

// askWith is the loop of ask and insist, with the spares that are to keep their room. Each round leaves out the nodes whose pods are
// stuck (have no place) and asks again about the others, because the room that pods of these nodes took is free again. If the engine
// stopped early and no pod is stuck, the answer has no parts: pods that it did not reach may have no place.
func (q *whatIf) askWith(remove []*Candidate, base engine.Question, resting spares) answer {
	out := answer{refused: map[*Candidate][]Stuck{}}
	for len(remove) > 0 && !q.survey.w.ended() {
		plan, home := q.plan(remove, base, resting)
		stuck := map[*Candidate][]Stuck{}
		for _, r := range plan.Refused {
			if c := home.of(r.Pod); c != nil {
				stuck[c] = append(stuck[c], Stuck{r.Pod.PodKey, r.Reasons})
			}
		}
		if len(stuck) == 0 && !plan.Partial {
			out.parts = split(remove, plan, home)
			return out
		}
		if len(stuck) == 0 { // the plan is partial
			return out
		}
		maps.Copy(out.refused, stuck)
		remove = slices.DeleteFunc(slices.Clone(remove), func(c *Candidate) bool { return stuck[c] != nil })
	}
	return out
}

// noPlace returns the refusal of a node whose pods find no other place: the first few pods by name with their reasons, how many more
// there are, and the limits and quotas that kept any of the pods out. It sorts stuck in place.
func noPlace(stuck []Stuck) Refusal {
	slices.SortFunc(stuck, func(a, b Stuck) int { return a.Pod.Compare(b.Pod) })
	first := min(len(stuck), named)
	why := Refusal{Code: NoPlace, Stuck: stuck[:first], More: len(stuck) - first}
	for _, s := range stuck {
		for _, count := range s.Why {
			if count.Code == reason.Limit && !slices.Contains(why.Limits, count.Pool) {
				why.Limits = append(why.Limits, count.Pool)
			}
			if count.Code == reason.Quota && !slices.Contains(why.Quotas, count.Detail) {
				why.Quotas = append(why.Quotas, count.Detail)
			}
		}
	}
	return why
}

// searchEach is how much work each question may put into finding a cheaper fleet. It is small because a pass asks many questions.
const searchEach = work.Second / 2

// plan asks the engine one question, and returns its plan with the nodes that the asked pods leave.
//
// The pods of the removed nodes are planned together with the pods that wait anyway. So a step cannot take room that a waiting pod needs,
// and if room is short the pods of higher priority get it. Machines that only waiting pods need are left to provisioning (see split).
func (q *whatIf) plan(remove []*Candidate, base engine.Question, resting spares) (*engine.Plan, homes) {
	in := base
	in.Snap, in.Settings, in.Now, in.Simulation, in.Ended = q.survey.w.Snap, q.survey.w.Terms, q.survey.w.Now, true, q.survey.w.Ended
	in.Kept = q.kept
	if books := q.survey.w.Commitments; books != nil {
		in.Commitments = books.Certain
	}
	in.Settings.Unproven = true // only the price counts here, and a proof of the bound would take as long as the plan
	in.Settings.Search = cmp.Or(in.Settings.Search, searchEach)
	in.Settings.FirstFit = base.Settings.FirstFit
	in.Gone = maps.Clone(base.Gone)
	if in.Gone == nil {
		in.Gone = map[string]bool{}
	}
	home := homes{nodes: make(map[string]*Candidate, len(remove)), spares: map[*cluster.Pod]*Candidate{}}
	in.Pods = make([]*cluster.Pod, 0, len(q.survey.waiting)+podsOf(remove)+len(resting.still))
	for _, p := range q.survey.waiting {
		if !q.survey.settled(p, in.Closed) {
			in.Pods = append(in.Pods, p)
		}
	}
	for _, c := range remove {
		in.Gone[c.Name()] = true
		home.nodes[c.Name()] = c
		in.Pods = append(in.Pods, c.Pods...)
		for _, p := range resting.on[c.Name()] {
			home.spares[p] = c
			in.Pods = append(in.Pods, p)
		}
	}
	in.Pods = append(in.Pods, resting.elsewhere(in.Gone, in.Closed)...)
	q.work += len(in.Pods) + 1
	return q.survey.w.Engine.Plan(in), home
}

// homes finds the removed node that a pod of a question leaves.
type homes struct {
	nodes  map[string]*Candidate
	spares map[*cluster.Pod]*Candidate // the nodes of spares
}

// of returns the node that a pod leaves, nil for a pod that waits or rests elsewhere.
func (h *homes) of(p *cluster.Pod) *Candidate {
	if p.Spare != nil {
		return h.spares[p]
	}
	return h.nodes[p.NodeName]
}

// split cuts a plan into the smallest parts that can be carried out alone. Nodes are in one part if an opening takes pods of both: the
// parts are the connected components of this graph, found by union-find. Pods that go to nodes that stay do not connect nodes. Openings
// that only waiting pods need are left out, because provisioning makes them.
func split(remove []*Candidate, plan *engine.Plan, home homes) []part {
	index := map[*Candidate]int{}
	parent := make([]int, len(remove))
	for i, c := range remove {
		index[c], parent[i] = i, i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	owner := make([]int, len(plan.Open)) // a node of which the opening takes pods, -1 if it takes pods of none
	for i, o := range plan.Open {
		owner[i] = -1
		for _, p := range o.Pods {
			c := home.of(p)
			if c == nil {
				continue
			}
			if owner[i] < 0 {
				owner[i] = index[c]
			}
			// The lower index is the root, so that parts stand in the order of their first nodes whatever the order of openings.
			a, b := find(owner[i]), find(index[c])
			parent[max(a, b)] = min(a, b)
		}
	}
	parts := map[int]*part{}
	for i, c := range remove {
		root := find(i)
		if parts[root] == nil {
			parts[root] = &part{}
		}
		parts[root].remove = append(parts[root].remove, c)
	}
	for i, o := range plan.Open {
		if owner[i] >= 0 {
			p := parts[find(owner[i])]
			p.open = append(p.open, o)
		}
	}
	for _, place := range plan.Place {
		if c := home.of(place.Pod); c != nil {
			p := parts[find(index[c])]
			p.place = append(p.place, place)
		}
	}
	out := make([]part, 0, len(parts))
	for _, root := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, *parts[root])
	}
	return out
}

// price returns the sum of the list prices of the removed nodes.
func (p *part) price() cloud.NanoUSD {
	total := cloud.NanoUSD(0)
	for _, c := range p.remove {
		total += c.Price
	}
	return total
}
