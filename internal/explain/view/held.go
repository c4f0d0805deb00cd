package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// A Held is what one owner, pool or person holds back.
type Held struct {
	By    string
	Why   string   // of the first node
	Nodes []string // the first few
	Count int
	// PerDay is what the nodes cost in a day, or what would be saved where Saves says so.
	PerDay float64
	Saves  bool
}

// mostNamed is how many nodes are named; all are counted.
const mostNamed = 5

// Holds reports whether a refusal is due to what a user asked for, and not to the state of the node or to prices.
func Holds(r *disrupt.Refusal) bool {
	switch r.Code {
	case disrupt.NodeProtected, disrupt.ClaimProtected, disrupt.NoPool, disrupt.PodProtected, disrupt.PodBudget,
		disrupt.NoPlace, disrupt.BudgetUnread, disrupt.NoLabel,
		disrupt.DoNotConsolidate, disrupt.NotOffered, disrupt.Paused:
		return true
	}
	return false
}

// Weightiest returns for each claim one refusal that keeps it: the first that is due to a user (Holds), else the
// first.
func Weightiest(kept []disrupt.Refusal) map[string]*disrupt.Refusal {
	out := make(map[string]*disrupt.Refusal, len(kept))
	for i := range kept {
		r := &kept[i]
		if had := out[r.Claim]; had == nil || Holds(r) && !Holds(had) {
			out[r.Claim] = r
		}
	}
	return out
}

// Keeper names what would have to change so that a node can go: the CapacityQuota that leaves no room for another
// machine, the owner of the pod that keeps the node, or what the refusal names.
func Keeper(snap *cluster.Snapshot, r *disrupt.Refusal) string {
	if len(r.Quotas) > 0 {
		return "CapacityQuota " + r.Quotas[0]
	}
	key := r.Pod
	if key == nil && len(r.Stuck) > 0 {
		key = &r.Stuck[0].Pod
	}
	if key != nil {
		if p := snap.Pod(*key); p != nil {
			return Owner(p)
		}
		return "Pod " + key.Namespace + "/" + key.Name
	}
	switch r.Code {
	case disrupt.NodeProtected, disrupt.ClaimProtected, disrupt.DoNotConsolidate:
		return "annotation " + r.Name
	case disrupt.Paused:
		return "a pause"
	case disrupt.NoPool, disrupt.BudgetUnread:
		return "NodePool " + r.Name
	}
	if len(r.Limits) > 0 {
		return "limits of NodePool " + r.Limits[0]
	}
	return "the node"
}

// Owner names the workload of a pod. The ReplicaSet of a Deployment is named after it and the hash of its template.
func Owner(p *cluster.Pod) string {
	if p.Owner == nil {
		return "Pod " + p.Namespace + "/" + p.Name
	}
	if p.Labels != nil && p.Owner.Kind == "ReplicaSet" {
		hash := p.Labels.Map[appsv1.DefaultDeploymentUniqueLabelKey]
		if name, cut := strings.CutSuffix(p.Owner.Name, "-"+hash); cut && hash != "" {
			return "Deployment " + p.Namespace + "/" + name
		}
	}
	return p.Owner.Kind + " " + p.Namespace + "/" + p.Owner.Name
}

// HeldBack returns what is held back by whom, the dearest first. Nodes with the same keeper and reason are one item.
func HeldBack(snap *cluster.Snapshot, rows []Row, said board.Disruption) []Held {
	type cause struct {
		by   string
		code disrupt.Code
	}
	kept, groups := Weightiest(said.Kept), map[cause]*Held{}
	for _, row := range rows {
		r := kept[row.Machine.Claim]
		if r == nil || !Holds(r) {
			continue
		}
		k := cause{Keeper(snap, r), r.Code}
		g := groups[k]
		if g == nil {
			g = &Held{By: k.by, Why: sentence.Refusal(*r)}
			groups[k] = g
		}
		if g.Count++; g.Count <= mostNamed {
			g.Nodes = append(g.Nodes, row.Machine.Name)
		}
		g.PerDay += 24 * row.Machine.Price.Dollars()
	}
	out := exhaustedBudgets(said)
	for g := range maps.Values(groups) {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Held) int {
		return cmp.Or(cmp.Compare(b.PerDay, a.PerDay), cmp.Compare(a.By, b.By), cmp.Compare(a.Why, b.Why))
	})
	return out
}

// exhaustedBudgets returns an item for each pool whose budgets allow no more nodes now.
func exhaustedBudgets(said board.Disruption) []Held {
	var out []Held
	for pool, reasons := range said.Budgets {
		var names []string
		for _, r := range reasons {
			names = append(names, string(r))
		}
		slices.Sort(names)
		out = append(out, Held{
			By: "budgets of NodePool " + pool, Why: "they allow no more now for " + strings.Join(names, ", "),
			PerDay: 24 * said.HeldBack[pool].Dollars(), Saves: true,
		})
	}
	return out
}
