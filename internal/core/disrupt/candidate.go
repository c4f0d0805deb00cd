package disrupt

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/halt"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A Candidate is a node that nothing forbids to remove.
type Candidate struct {
	Node *cluster.Node
	Pool *v1.NodePool
	// Pods must have a place before the node goes.
	Pods []*cluster.Pod
	// Held says that pods block the node, which only a termination grace period overcomes (drift, never consolidation).
	Held *Refusal

	Price          cloud.NanoUSD
	Priced         bool // the type, zone and capacity type are known and offered
	Cost           float64
	Consolidatable bool
	Drifted        *metav1.Condition // condition Drifted while it is True
}

// Name is the name of the candidate's node.
func (c *Candidate) Name() string { return c.Node.Name }

// Empty candidates run nothing that needs another place.
func (c *Candidate) Empty() bool { return len(c.Pods) == 0 }

// idle candidates run nothing that comes back when they go, not even what cannot be given a place beforehand.
func (c *Candidate) idle() bool { return Vacated(c.Node) }

// Ratio says how much is saved for each pod that has to move.
func (c *Candidate) Ratio() float64 { return float64(c.Price) / c.Cost }

// Static candidates belong to a pool with a fixed number of nodes.
func (c *Candidate) Static() bool { return c.Pool.Spec.Replicas != nil }

// Candidates sorts the nodes of w that Karpenter manages into those that may be removed and those that may not, both by name.
func Candidates(w *World) ([]*Candidate, []Refusal) {
	pdbs := pdbsOf(w)
	var candidates []*Candidate
	var blocks []Refusal
	for n := range w.Snap.Nodes() {
		if n.Claim == nil || w.Busy[n.Claim.UID] || !w.serves(n.Claim) {
			continue
		}
		if b := nodeBlock(w, n); b != nil {
			blocks = append(blocks, *b)
			continue
		}
		c := newCandidate(w, n, pdbs)
		if c.Held != nil {
			blocks = append(blocks, *c.Held)
		}
		candidates = append(candidates, c)
	}
	return candidates, blocks
}

// serves tells whether the claim's node class is of a kind that one of the pools we serve uses. Claims of other providers are none of our business.
func (w *World) serves(claim *v1.NodeClaim) bool {
	ref := claim.Spec.NodeClassRef
	if ref == nil {
		return false
	}
	for _, p := range w.Pools {
		have := p.Pool.Spec.Template.Spec.NodeClassRef
		if have != nil && have.Group == ref.Group && have.Kind == ref.Kind {
			return true
		}
	}
	return false
}

func pdbsOf(w *World) *movable.PDBs {
	var budgets []movable.PDB
	for b := range w.Snap.PDBs() {
		budgets = append(budgets, movable.Compile(b))
	}
	return movable.NewPDBs(budgets)
}

// nodeBlock applies the rules about the node itself, in the order in which users know them.
func nodeBlock(w *World, n *cluster.Node) *Refusal {
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
	case n.Node.Labels[v1.NodeInitializedLabelKey] != "true":
		return block(NotInitialized, "", time.Time{})
	case n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil || n.Node.DeletionTimestamp != nil ||
		condition.IsTrue(n.Claim, v1.ConditionTypeInstanceTerminating):
		return block(Deleting, "", time.Time{})
	case w.promised(n.Name).After(w.Now):
		return block(Nominated, "", w.promised(n.Name))
	case w.Landing[n.Name]:
		return block(Landing, "", time.Time{})
	case n.Node.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(NodeProtected, v1.DoNotDisruptAnnotationKey, time.Time{})
	case n.Claim.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(ClaimProtected, v1.DoNotDisruptAnnotationKey, time.Time{})
	}
	if h, halted := halt.Node(w.Snap, n, w.Now); halted {
		r := block(Paused, h.Pool, h.Until)
		r.Value = h.Reason
		return r
	}
	name, labelled := n.Node.Labels[v1.NodePoolLabelKey]
	if !labelled {
		return block(NoPool, "", time.Time{})
	}
	if p, ok := w.Pools[name]; !ok || p.Catalog == nil || len(p.Catalog.Types) == 0 {
		return block(NoPool, name, time.Time{})
	}
	return nil
}

func newCandidate(w *World, n *cluster.Node, pdbs *movable.PDBs) *Candidate {
	input := w.Pools[n.Node.Labels[v1.NodePoolLabelKey]]
	c := &Candidate{Node: n, Pool: input.Pool, Cost: 1}
	c.Price, c.Priced = priceOf(input.Catalog, n)
	c.Consolidatable = condition.IsTrue(n.Claim, v1.ConditionTypeConsolidatable) && !c.unconsolidated()
	if d := condition.Get(n.Claim, v1.ConditionTypeDrifted); d != nil && d.Status == metav1.ConditionTrue {
		c.Drifted = d
	}
	for _, p := range n.Pods {
		if movable.Reschedulable(p) {
			c.Cost += max(0, movable.EvictionCost(p))
			if pdbs.CurrentlyReschedulable(p, w.Now) {
				c.Pods = append(c.Pods, p)
			}
		}
		if b := podBlock(w, n, p, pdbs); b != nil && (c.Held == nil || b.Until.After(c.Held.Until) && !c.Held.Until.IsZero() || b.Until.IsZero()) {
			c.Held = b
		}
	}
	return c
}

// podBlock applies do-not-disrupt, for pods of every kind, and the PodDisruptionBudgets of pods that would be evicted.
func podBlock(w *World, n *cluster.Node, p *cluster.Pod, pdbs *movable.PDBs) *Refusal {
	block := Refusal{Node: n.Name, Claim: n.Claim.Name, Pod: &p.PodKey}
	if held := movable.Protected(p, w.Now); held.Held {
		block.Code, block.Name, block.Value, block.Until = PodProtected, v1.DoNotDisruptAnnotationKey, p.DoNotDisrupt, held.Until
		if p.DoNotEvict {
			block.Name = v1.DoNotEvictAnnotationKey
		}
		return &block
	}
	budget, several := pdbs.Blocking(p, w.Now)
	if budget == nil {
		return nil
	}
	block.Code = PodBudget
	if !several {
		block.Name = budget.Namespace + "/" + budget.Name
	}
	return &block
}

// byRatio puts the candidates that save most for each moved pod first.
func byRatio(candidates []*Candidate) {
	slices.SortFunc(candidates, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Name(), b.Name()))
	})
}

// typeNamed finds an instance type in a catalogue, which is sorted by name.
func typeNamed(catalog *cloud.Catalog, name string) *cloud.InstanceType {
	if catalog == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(catalog.Types, name, func(it *cloud.InstanceType, name string) int { return cmp.Compare(it.Name, name) })
	if !ok {
		return nil
	}
	return catalog.Types[i]
}

// unconsolidated tells whether the node says, by an annotation of the days before do-not-disrupt, that it is not to be consolidated.
func (c *Candidate) unconsolidated() bool {
	return c.Node.Node.Annotations[v1.DoNotConsolidateAnnotationKey] == "true"
}

// hasLabel tells whether the candidate's node says what consolidation must know of it.
func (c *Candidate) hasLabel(key string) bool { return c.Node.Node.Labels[key] != "" }

// neededLabels are the labels without which a node cannot be priced.
var neededLabels = []string{corev1.LabelInstanceTypeStable, v1.CapacityTypeLabelKey, corev1.LabelTopologyZone}
