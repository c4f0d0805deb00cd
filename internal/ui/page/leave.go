package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
)

// A leaving is what would happen if a node left now: the step that was decided for it, if any, and new places for its pods.
type leaving struct {
	Step    string    `json:"step,omitempty"` // the decided step that removes the node
	With    []string  `json:"with"`           // other nodes that this step removes
	Ends    int       `json:"ends"`           // pods that end with the node, such as those of DaemonSets
	Places  []place   `json:"places"`
	Stuck   []pending `json:"stuck"`
	PerHour float64   `json:"perHour"` // what the fleet would cost more; negative: less
}

// A place is where pods of a leaving node would go.
type place struct {
	Node    string  `json:"node,omitempty"`    // "" for a new node
	What    string  `json:"what,omitempty"`    // of a new node
	PerHour float64 `json:"perHour,omitempty"` // of a new node
	Pods    int     `json:"pods"`
}

// pending are pods that would have no place, for one reason.
type pending struct {
	Pod  string `json:"pod"` // the first
	Pods int    `json:"pods"`
	Why  string `json:"why"`
}

// leave serves what would happen if a node left now: /picture?leave=NAME. Planning takes a core, so only one plan or preview is made at a
// time.
func (s *Service) leave(w http.ResponseWriter, r *http.Request) {
	snap := s.Store.Snapshot()
	n := snap.Node(r.URL.Query().Get("leave"))
	switch {
	case n == nil || n.Claim == nil:
		http.Error(w, "there is no such node of Karpenter's", http.StatusNotFound)
		return
	case s.Leave == nil:
		http.Error(w, "this controller plans for no nodes; karpenter why node does", http.StatusNotImplemented)
		return
	case !s.previewing.TryLock():
		http.Error(w, "another plan is being made; try again in some seconds", http.StatusTooManyRequests)
		return
	}
	defer s.previewing.Unlock()
	plan, err := s.Leave(r.Context(), n.Name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	pools, _ := s.Catalogs.Pools(r.Context(), snap)
	price, _ := pools[n.Pool()].Catalog.Price(n.Labels())
	out := leavingOf(n, plan)
	out.PerHour = round((plan.Price - price).Dollars())
	for _, step := range view.Steps(snap, s.Verdicts.View().Steps) {
		if slices.Contains(step.Nodes, n.Name) {
			out.Step, out.With = step.Text, slices.DeleteFunc(step.Nodes, func(name string) bool { return name == n.Name })
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(out))
}

// leavingOf groups a plan for the pods of a node: by node, by kind of new node, and by reason.
func leavingOf(n *cluster.Node, plan *engine.Plan) leaving {
	out := leaving{With: []string{}, Stuck: []pending{}, Ends: len(n.Pods) - movable.Count(n.Pods)}
	type kind struct{ name, capacity, pool string }
	nodes, fresh, stuck := map[string]*place{}, map[kind]*place{}, map[string]*pending{}
	for _, p := range plan.Place {
		if nodes[p.Node] == nil {
			nodes[p.Node] = &place{Node: p.Node}
		}
		nodes[p.Node].Pods++
	}
	for i := range plan.Open {
		o := &plan.Open[i]
		k := kind{o.Type, o.CapacityType, o.Pool}
		if fresh[k] == nil {
			fresh[k] = &place{What: fmt.Sprintf("%s, %s, NodePool %s", k.name, k.capacity, k.pool)}
		}
		fresh[k].Pods += len(o.Pods)
		fresh[k].PerHour = round(fresh[k].PerHour + o.Price.Dollars())
	}
	for i := range plan.Refused {
		r := &plan.Refused[i]
		why := sentence.Explanation(r.Reasons)
		if stuck[why] == nil {
			stuck[why] = &pending{Pod: r.Pod.Namespace + "/" + r.Pod.Name, Why: why}
		}
		stuck[why].Pods++
	}
	out.Places = append(sorted(fresh, func(a, b *place) int { return cmp.Compare(a.What, b.What) }),
		sorted(nodes, func(a, b *place) int { return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Node, b.Node)) })...)
	out.Stuck = append(out.Stuck, sorted(stuck, func(a, b *pending) int { return cmp.Compare(a.Why, b.Why) })...)
	return out
}
