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
// A what-if question is a plan for waiting pods in which some nodes are gone and their pods wait too. Nothing else about it is special:
// the same engine, the same rules, the same prices. What a step promises is therefore what provisioning would do if a failure pulled the
// plugs of those nodes, and a pod that would have no place then has a reason that people know from pods that wait.
type whatIf struct {
	survey   *survey
	openable []engine.Pool      // where machines may be opened
	gated    map[string]bool    // nodes that take no pods which consolidation moves
	kept     []engine.Placement // of other steps, which alone get them
	work     int                // pods asked about so far, and one for each question: what a plan takes grows with its pods
}

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
// While a rollout of a pool is under way or stopped, its machines may be bad ones: it gets only those that replace its own nodes, of which
// the rollout decides how many go. The pods of a broken node get what waiting pods would get.
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

// union is a new set of what is in one of two.
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

// ask plans the fleet without the nodes of remove. Nodes whose pods find no place stay, and the rest is asked again, until what
// is left works. Nodes whose spares find none stay too.
func (q *whatIf) ask(remove []*Candidate, base engine.Question) answer {
	base.Pools = q.opens(v1.DisruptionReasonUnderutilized, remove)
	return q.askWith(remove, base, q.survey.resting)
}

// insist asks for the same where no buffer keeps a node: what has no place while buffers have theirs is asked about without them. Machines
// are opened in the pools of base, or where it names none, in those that opens returns.
//
// A buffer is a wish for room, and a node that has drifted goes in the end. First it is tried with room for both; the wish is dropped only
// where it would keep the node.
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

// Each round loses the nodes whose pods are stuck and asks again about all others, because what the stuck pods took in that plan is free
// now. It ends: every round has fewer nodes. A plan that was cut short says nothing of pods that it did not come to, so what it did find
// is not believed either.
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
		if len(stuck) == 0 { // cut short: nothing is known of the pods that were not reached
			return out
		}
		maps.Copy(out.refused, stuck)
		remove = slices.DeleteFunc(slices.Clone(remove), func(c *Candidate) bool { return stuck[c] != nil })
	}
	return out
}

// noPlace says which pods would not find another place.
//
// A few names are enough to begin with, as the reasons of pods of one node are nearly always the same; how many more there are says how
// far the node is from going.
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

// searchEach is how much work each question may put into finding a cheaper fleet: a pass asks many, and nothing waits for it.
const searchEach = work.Second / 2

// The pods of the nodes that go stand in one queue with those that wait anyway. So a step cannot take room that a waiting pod needs, and
// where room is short the pods of higher priority have it, whether they wait or would have to move. Machines that only waiting pods need
// are left to provisioning; the answer is read for the nodes that were asked about.
//
// No bound is asked for: only the price decides, and a proof would take as long as the plan.
func (q *whatIf) plan(remove []*Candidate, base engine.Question, resting spares) (*engine.Plan, homes) {
	in := base
	in.Snap, in.Settings, in.Now, in.Simulation, in.Ended = q.survey.w.Snap, q.survey.w.Terms, q.survey.w.Now, true, q.survey.w.Ended
	in.Kept = q.kept
	if books := q.survey.w.Commitments; books != nil {
		in.Commitments = books.Certain
	}
	in.Settings.Unproven = true // only the price counts here
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

// homes are the nodes that pods of a question leave.
type homes struct {
	nodes  map[string]*Candidate
	spares map[*cluster.Pod]*Candidate // that rest on them
}

// of returns the node that a pod leaves, nil for a pod that waits or rests elsewhere.
func (h *homes) of(p *cluster.Pod) *Candidate {
	if p.Spare != nil {
		return h.spares[p]
	}
	return h.nodes[p.NodeName]
}

// split cuts a plan into the smallest parts that can be carried out alone: nodes are tied together by an opening that
// takes pods of several of them. Openings that only waiting pods need are the provisioner's affair.
//
// Nodes and openings make a graph, an edge where an opening takes a pod of a node; its components are the parts. Pods that go to nodes
// that stay tie nothing together: that room is there whatever else happens.
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
	owner := make([]int, len(plan.Open))
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

// price adds up what the removed nodes cost.
func (p *part) price() cloud.NanoUSD {
	total := cloud.NanoUSD(0)
	for _, c := range p.remove {
		total += c.Price
	}
	return total
}
