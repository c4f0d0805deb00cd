package disrupt

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

// A Candidate is a node that nothing forbids to remove.
type Candidate struct {
	Node *cluster.Node
	Pool *v1.NodePool
	// Pods must have a place before the node goes.
	Pods []*cluster.Pod
	// Held says that pods block the node, which only a termination grace period overcomes (drift, never consolidation).
	Held *Block

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

// A Block says why a node may not be removed now.
type Block struct {
	Node, Claim string
	Pod         *cluster.PodKey // the pod or the pod under the budget that blocks it, nil if the node itself does
	Code        BlockCode
	Text        string    // for people
	Limits      []string  // the NodePools whose limits have to do with it
	Until       time.Time // when the block ends by itself, zero if it does not
}

// A BlockCode names a reason for a Block.
type BlockCode string

// The reasons for which a node is no candidate.
const (
	NoNode         BlockCode = "NoNode"
	NotInitialized BlockCode = "NotInitialized"
	Deleting       BlockCode = "Deleting"
	Nominated      BlockCode = "Nominated"
	NodeProtected  BlockCode = "NodeDoNotDisrupt"
	NoPool         BlockCode = "NoPool"
	PodProtected   BlockCode = "PodDoNotDisrupt"
	PodBudget      BlockCode = "PodDisruptionBudget"
	NoPlace        BlockCode = "NoPlace"
)

// Passes tells whether the block is a stage of a machine's life that ends by itself.
func (c BlockCode) Passes() bool {
	return c == NoNode || c == NotInitialized || c == Deleting || c == Nominated
}

// Candidates sorts the nodes of w that Karpenter manages into those that may be removed and those that may not, both by name.
func Candidates(w *World) ([]*Candidate, []Block) {
	pdbs := pdbsOf(w)
	var candidates []*Candidate
	var blocks []Block
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
func nodeBlock(w *World, n *cluster.Node) *Block {
	block := func(code BlockCode, until time.Time, format string, args ...any) *Block {
		b := &Block{Node: n.Name, Claim: n.Claim.Name, Code: code, Text: fmt.Sprintf(format, args...), Until: until}
		if n.Node == nil {
			b.Node = ""
		}
		return b
	}
	switch {
	case n.Node == nil:
		return block(NoNode, time.Time{}, "its Node has not registered")
	case n.Node.Labels[v1.NodeInitializedLabelKey] != "true":
		return block(NotInitialized, time.Time{}, "the node is not initialized")
	case n.MarkedForRemoval || n.Claim.DeletionTimestamp != nil || n.Node.DeletionTimestamp != nil ||
		condition.IsTrue(n.Claim, v1.ConditionTypeInstanceTerminating):
		return block(Deleting, time.Time{}, "the node is being removed")
	case w.promised(n.Name).After(w.Now):
		return block(Nominated, w.promised(n.Name), "the node is promised to pods that wait for it")
	case w.Landing[n.Name]:
		return block(Nominated, time.Time{}, "pods of another node that is being removed are on their way to the node")
	case n.Node.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(NodeProtected, time.Time{}, "the node has the annotation %s=true", v1.DoNotDisruptAnnotationKey)
	case n.Claim.Annotations[v1.DoNotDisruptAnnotationKey] == "true":
		return block(NodeProtected, time.Time{}, "the NodeClaim has the annotation %s=true", v1.DoNotDisruptAnnotationKey)
	}
	name, labelled := n.Node.Labels[v1.NodePoolLabelKey]
	if !labelled {
		return block(NoPool, time.Time{}, "the node has no label %s", v1.NodePoolLabelKey)
	}
	if p, ok := w.Pools[name]; !ok || p.Catalog == nil || len(p.Catalog.Types) == 0 {
		return block(NoPool, time.Time{}, "NodePool %q does not exist, or no instance types are known for it", name)
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
func podBlock(w *World, n *cluster.Node, p *cluster.Pod, pdbs *movable.PDBs) *Block {
	if held := movable.Protected(p, w.Now); held.Held {
		key := v1.DoNotDisruptAnnotationKey
		if p.DoNotEvict {
			key = v1.DoNotEvictAnnotationKey
		}
		text := fmt.Sprintf("pod %s/%s has the annotation %s=%s", p.Namespace, p.Name, key, p.DoNotDisrupt)
		return &Block{Node: n.Name, Claim: n.Claim.Name, Pod: &p.PodKey, Code: PodProtected, Text: text, Until: held.Until}
	}
	budget, several := pdbs.Blocking(p, w.Now)
	if budget == nil {
		return nil
	}
	text := fmt.Sprintf("PodDisruptionBudget %s/%s allows no disruption of pod %s/%s now", budget.Namespace, budget.Name, p.Namespace, p.Name)
	if several {
		text = fmt.Sprintf("pod %s/%s is under more than one PodDisruptionBudget, so it cannot be evicted", p.Namespace, p.Name)
	}
	return &Block{Node: n.Name, Claim: n.Claim.Name, Pod: &p.PodKey, Code: PodBudget, Text: text}
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
