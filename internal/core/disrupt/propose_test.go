package disrupt

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

const (
	onDemand = v1.CapacityTypeOnDemand
	spot     = v1.CapacityTypeSpot
)

// cheap, mid and big cost on demand 0.11, 0.2 and 1.0 an hour, and hold 2, 4 and 16 cores.
func small() []*cloud.InstanceType {
	return []*cloud.InstanceType{shape("cheap", 2, 8, 0.11, 0), shape("mid", 4, 16, 0.2, 0), shape("big", 16, 64, 1.0, 0)}
}

func allowing(nodes string, reasons ...v1.DisruptionReason) func(*v1.NodePool) {
	return func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: nodes, Reasons: reasons}} }
}

// spots makes n spot types of two cores, the first at 0.10 and each 0.002 cheaper than the one before.
func spots(n int) []*cloud.InstanceType {
	out := make([]*cloud.InstanceType, n)
	for i := range out {
		out[i] = shape(fmt.Sprintf("s%02d", i), 2, 8, 1, 0.10-0.002*float64(i))
	}
	return out
}

func onlySpot(p *v1.NodePool) {
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{spot}}}
}

func quiet(_ *corev1.Node, c *v1.NodeClaim) { condition.Clear(c, v1.ConditionTypeConsolidatable, noon) }

func drift(at time.Duration) func(*corev1.Node, *v1.NodeClaim) {
	return func(_ *corev1.Node, c *v1.NodeClaim) {
		condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift", Message: "AMIDrift"}, noon.Add(at))
	}
}

// marked marks a node as one that another step removes.
func marked(f *fixture, node string) *fixture {
	f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval(node) })
	return f
}

func TestProposals(t *testing.T) {
	for name, tc := range map[string]struct {
		world *fixture
		want  []string
	}{
		"an empty node goes": {
			newFixture(small()...).pool("p").node("n", "p", "mid", onDemand),
			[]string{"empty n"}},
		"one that only runs DaemonSet pods is empty": {
			newFixture(small()...).pool("p").node("n", "p", "mid", onDemand).pods("n", "ds", 1, "100m", "64Mi", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }),
			[]string{"empty n"}},
		"one of another provider stays, though it says that it is of our pool": {
			newFixture(small()...).pool("p").node("n", "p", "mid", onDemand, func(_ *corev1.Node, c *v1.NodeClaim) {
				c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "x", Kind: "Y", Name: "z"}
			}), nil},
		"an empty node that saw a pod a moment ago stays": {
			newFixture(small()...).pool("p").node("n", "p", "mid", onDemand, quiet), nil},
		"with consolidateAfter Never it stays": {
			newFixture(small()...).pool("p", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("Never") }).node("n", "p", "mid", onDemand), nil},
		"empty nodes go as far as the budget allows": {
			newFixture(small()...).pool("p", allowing("2")).node("a", "p", "mid", onDemand).node("b", "p", "mid", onDemand).node("c", "p", "mid", onDemand),
			[]string{"empty a", "empty b"}},
		"a budget for another reason does not hold them": {
			newFixture(small()...).pool("p", allowing("0", v1.DisruptionReasonDrifted)).node("a", "p", "mid", onDemand),
			[]string{"empty a"}},
		"a node whose pods fit elsewhere goes": {
			newFixture(small()...).pool("p").node("a", "p", "mid", onDemand).pods("a", "web", 3, "1", "1Gi").node("b", "p", "mid", onDemand).pods("b", "web", 1, "1", "1Gi"),
			[]string{"underutilized b"}},
		"its pods may go to a node that is not ours": {
			newFixture(small()...).pool("p").node("a", "p", "cheap", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "", "mid", onDemand, func(n *corev1.Node, c *v1.NodeClaim) {
				c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "x", Kind: "Y", Name: "z"}
			}),
			[]string{"underutilized a"}},
		"a node that is too large is replaced": {
			newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 3, "1", "1Gi"),
			[]string{"underutilized a -> mid/on-demand"}},
		"one node becomes two where two are cheaper": {
			newFixture(shape("half", 4, 16, 0.2, 0), shape("whole", 8, 32, 1, 0)).pool("p").node("a", "p", "whole", onDemand).pods("a", "web", 2, "3", "1Gi"),
			[]string{"underutilized a -> half/on-demand,half/on-demand"}},
		"three nodes become two": {
			newFixture(shape("old", 4, 16, 0.5, 0), shape("new", 6, 24, 0.3, 0)).pool("p").
				node("a", "p", "old", onDemand).pods("a", "web", 4, "1", "1Gi").node("b", "p", "old", onDemand).pods("b", "web", 4, "1", "1Gi").node("c", "p", "old", onDemand).pods("c", "web", 4, "1", "1Gi"),
			[]string{"underutilized a,b,c -> new/on-demand,new/on-demand"}},
		"a full node of the cheapest kind stays": {
			newFixture(small()...).pool("p").node("a", "p", "mid", onDemand).pods("a", "web", 4, "1", "1Gi"), nil},
		"a node is not replaced by its like": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi"), nil},
		"a saving below the threshold moves nobody": {
			newFixture(shape("a", 4, 16, 0.200, 0), shape("b", 4, 16, 0.196, 0)).pool("p").node("n", "p", "a", onDemand).pods("n", "web", 1, "3", "1Gi"), nil},
		"a saving above it does": {
			newFixture(shape("a", 4, 16, 0.200, 0), shape("b", 4, 16, 0.180, 0)).pool("p").node("n", "p", "a", onDemand).pods("n", "web", 1, "3", "1Gi"),
			[]string{"underutilized n -> b/on-demand"}},
		"on-demand becomes spot, and nothing else": {
			newFixture(shape("m", 4, 16, 0.2, 0.06)).pool("p").node("a", "p", "m", onDemand).pods("a", "web", 1, "3", "1Gi"),
			[]string{"underutilized a -> m/spot"}},
		"policy WhenEmpty moves nobody": {
			newFixture(small()...).pool("p", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty }).node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi"), nil},
		"a node that saw a pod a moment ago is left": {
			newFixture(small()...).pool("p").node("a", "p", "big", onDemand, quiet).pods("a", "web", 1, "1", "1Gi"), nil},
		"a node whose pool waits takes no moved pods": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Minute) }).
				node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "one", onDemand, quiet).pods("b", "web", 1, "1", "1Gi"), nil},
		"with consolidateAfter 0s it does": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").
				node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "one", onDemand, quiet).pods("b", "web", 1, "1", "1Gi"),
			[]string{"underutilized a"}},
		"a node that is not initialised takes no moved pods": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi").
				node("b", "p", "one", onDemand, func(n *corev1.Node, c *v1.NodeClaim) {
					delete(n.Labels, v1.NodeInitializedLabelKey)
					condition.SetUnknown(c, v1.ConditionTypeInitialized, "x", "y", noon)
				}), nil},
		"spot stays spot while the gate is off": {
			newFixture(spots(20)...).pool("p", onlySpot).node("a", "p", "s00", spot).pods("a", "web", 1, "1500m", "1Gi"), nil},
		"drifted nodes are replaced at any price": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand, drift(0)).pods("a", "web", 4, "1", "1Gi"),
			[]string{"drifted a -> one/on-demand"}},
		"what another step is replacing does not count against the limit": {
			marked(newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("8")} }).
				node("theirs", "p", "one", onDemand).node("replacement", "p", "one", onDemand).pods("replacement", "web", 4, "1", "1Gi").
				node("a", "p", "one", onDemand, drift(0)).pods("a", "web", 4, "1", "1Gi"), "theirs"),
			[]string{"drifted a -> one/on-demand"}},
		"pods of drifted nodes do not go where an empty node goes": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand, drift(0)).pods("a", "web", 1, "1", "1Gi").node("b", "p", "one", onDemand),
			[]string{"drifted a -> one/on-demand", "empty b"}},
		"a drifted node stays while pods of others go to it, though the budget has room because one is stuck": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", allowing("2")).
				node("a", "p", "one", onDemand, drift(-3*time.Hour)).pods("a", "web", 4, "1", "1Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "a"} }).
				node("b", "p", "one", onDemand, drift(-2*time.Hour)).pods("b", "web", 1, "1", "1Gi").
				node("c", "p", "one", onDemand, drift(-time.Hour)).pods("c", "web", 1, "1", "1Gi"),
			[]string{"drifted b"}},
		"drift needs no consolidation": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("Never") }).node("a", "p", "one", onDemand, drift(0)).pods("a", "web", 4, "1", "1Gi"),
			[]string{"drifted a -> one/on-demand"}},
		"the node that drifted first goes first": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", allowing("1")).node("a", "p", "one", onDemand, drift(-time.Minute)).pods("a", "web", 4, "1", "1Gi").node("b", "p", "one", onDemand, drift(-time.Hour)).pods("b", "web", 4, "1", "1Gi"),
			[]string{"drifted b -> one/on-demand"}},
		"a drifted node with a protected pod stays": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand, drift(0)).pods("a", "web", 1, "1", "1Gi", protect), nil},
		"unless its claim has a grace period": {
			newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand, drift(0), func(_ *corev1.Node, c *v1.NodeClaim) {
				c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
			}).pods("a", "web", 1, "1", "1Gi", protect),
			[]string{"drifted a"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.propose(t)
			if got := say(p); !slices.Equal(got, tc.want) {
				t.Errorf("proposed\n  %s\nwant\n  %s\nnotes %v", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "), noteTexts(p))
			}
		})
	}
}

func protect(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }

func noteTexts(p *Proposal) []string {
	var out []string
	for _, n := range p.Notes {
		out = append(out, n.Node+": "+string(n.Code))
	}
	return out
}

func TestSpotToSpot(t *testing.T) {
	for name, tc := range map[string]struct {
		types, nodes int
		want         bool
	}{
		"the dearest of twenty types moves":      {20, 1, true},
		"with fourteen cheaper ones it does not": {15, 1, false},
		"with fifteen it does":                   {16, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(spots(tc.types)...).pool("p", onlySpot)
			f.set.SpotToSpot = true
			f.node("a", "p", "s00", spot).pods("a", "web", 1, "1500m", "1Gi")
			p := f.propose(t)
			if got := len(p.Steps) == 1; got != tc.want {
				t.Fatalf("moved = %v, want %v; %v", got, tc.want, noteTexts(p))
			}
			if tc.want && len(p.Steps[0].Open[0].Types) != minSpotTypes {
				t.Errorf("the claim lists %d types, want the %d cheapest", len(p.Steps[0].Open[0].Types), minSpotTypes)
			}
		})
	}
}

// Several spot nodes are replaced only by fewer: a mere change of pool is no saving. The pods of b need both of what would replace a
// and b.
func TestSeveralSpotNodesBecomeFewer(t *testing.T) {
	for name, tc := range map[string]struct {
		big  int // CPU of the type of which one may do
		want []string
	}{
		"two of other types do not replace two": {3, nil},
		"one replaces two":                      {4, []string{"underutilized a,b -> big/spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("old", 2, 8, 1, 0.10), shape("big", tc.big, 16, 1, 0.07), shape("tiny", 1, 4, 1, 0.02)).pool("p", onlySpot)
			f.set.SpotToSpot = true
			f.node("a", "p", "old", spot).pods("a", "web", 1, "1800m", "1Gi")
			f.node("b", "p", "old", spot).pods("b", "small", 3, "500m", "1Gi")
			if p := f.propose(t); !slices.Equal(say(p), tc.want) {
				t.Errorf("proposed %q, want %q; notes %v", say(p), tc.want, noteTexts(p))
			}
		})
	}
}

// A step of spot and other nodes must end with fewer nodes too, if it buys spot: the saving may be the spot node's change of pool. What
// replaces the other node alone is another matter.
func TestMixedNodesBecomeFewer(t *testing.T) {
	for name, tc := range map[string]struct {
		big  int // CPU of the type of which one may do
		want []string
	}{
		"two of other types do not replace two": {3, nil},
		"one replaces two":                      {4, []string{"underutilized a,b -> big/spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("old", 2, 8, 0.10, 0.10), shape("big", tc.big, 16, 1, 0.07), shape("tiny", 1, 4, 1, 0.02)).pool("p")
			f.set.SpotToSpot = true
			f.node("a", "p", "old", spot).pods("a", "web", 1, "1800m", "1Gi")
			f.node("b", "p", "old", onDemand).pods("b", "small", 3, "500m", "1Gi")
			p := f.propose(t)
			for _, s := range p.Steps {
				if len(s.Remove) > 1 && len(s.Open) >= len(s.Remove) {
					t.Errorf("proposed %q", say(p))
				}
			}
			if tc.want != nil && !slices.Equal(say(p), tc.want) {
				t.Errorf("proposed %q, want %q; notes %v", say(p), tc.want, noteTexts(p))
			}
		})
	}
}

// A step that opens spot is priced by the mean of what launch would name, not by the cheapest type.
func TestSpotIsPricedAsItIsBought(t *testing.T) {
	for name, tc := range map[string]struct {
		one, others float64 // prices of one type and of four others
		want        float64 // of the step; 0: nobody is moved
	}{
		"the mean of five types":               {0.40, 0.60, 0.56},
		"the band moves until it holds five":   {0.40, 0.99, 0.872},
		"what would not save is not listed":    {0.40, 1.10, 0.40},
		"the mean must save enough":            {0.96, 0.99, 0},
		"though the cheapest would, by itself": {0.96, 1.10, 0.96},
	} {
		t.Run(name, func(t *testing.T) {
			types := []*cloud.InstanceType{shape("big", 16, 64, 1.0, 0), shape("s0", 4, 16, 3, tc.one)}
			for i := range 4 {
				types = append(types, shape(fmt.Sprint("t", i), 4, 16, 3, tc.others))
			}
			f := newFixture(types...).pool("p")
			f.node("a", "p", "big", onDemand).pods("a", "web", 1, "3", "1Gi")
			p := f.propose(t)
			got := cloud.NanoUSD(0)
			for _, s := range p.Steps {
				if got = s.After; s.Open[0].Price != got || s.Worst < got || s.Worst >= s.Before {
					t.Errorf("priced %v, the opening %v, at the worst %v of %v", got, s.Open[0].Price, s.Worst, s.Before)
				}
			}
			if got != cloud.FromDollars(tc.want) {
				t.Errorf("%v, want %v: %q; %v", got, tc.want, say(p), noteTexts(p))
			}
		})
	}
}

// What a node costs by itself pays for a step only where the bill gets no higher for it: eight small nodes become one at the same price,
// two large ones do not.
func TestFewerNodesAtTheSameBill(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		price float64 // of each
		one   float64 // price of what holds all
		want  int     // nodes that go
	}{
		"many small nodes for one of the same price":    {8, 0.02, 0.16, 8},
		"two large ones save too little":                {2, 0.08, 0.16, 0},
		"no step makes the bill higher":                 {8, 0.02, 0.161, 0},
		"nor is it about nodes where there are as many": {1, 0.02, 0.02, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("each", 1, 4, tc.price, 0), shape("one", 8, 32, tc.one, 0)).pool("p")
			for i := range tc.nodes {
				name := fmt.Sprint("n", i)
				f.node(name, "p", "each", onDemand).pods(name, "web", 1, "700m", "1Gi")
			}
			p := f.propose(t)
			got := 0
			for _, s := range p.Steps {
				got += len(s.Remove)
			}
			if got != tc.want {
				t.Errorf("%d nodes go, want %d: %q; %v", got, tc.want, say(p), noteTexts(p))
			}
		})
	}
}

func TestBudgetsHoldBackSavingsAndSaySo(t *testing.T) {
	f := newFixture(small()...).pool("p", allowing("0")).node("a", "p", "big", onDemand).pods("a", "web", 3, "1", "1Gi")
	p := f.propose(t)
	if len(p.Steps) != 0 {
		t.Fatalf("steps %v although the budget is 0", say(p))
	}
	if got := p.HeldBack["p"].Dollars(); got < 0.79 || got > 0.81 {
		t.Errorf("held back $%.2f, want $0.80", got)
	}
	if !slices.Equal(p.Budgets["p"], []v1.DisruptionReason{v1.DisruptionReasonUnderutilized}) {
		t.Errorf("exhausted budgets %v", p.Budgets)
	}
}

func TestNothingToDoIsRemembered(t *testing.T) {
	f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 4, "1", "1Gi")
	asked := &counting{}
	planner := newPlanner(asked)
	w := f.world()
	if p := planner.Propose(w); p.Idle {
		t.Fatal("the first pass did not look")
	}
	before := asked.n
	if p := planner.Propose(w); !p.Idle || asked.n != before {
		t.Errorf("the second pass looked again: idle %v, %d questions", p.Idle, asked.n-before)
	}
	f.store.Observe(func(*cluster.Draft) bool { return false })
	if p := planner.Propose(f.world()); !p.Idle {
		t.Error("a heartbeat made the pass look again")
	}
	later := *w
	later.Now = w.Now.Add(sameFor)
	if p := planner.Propose(&later); p.Idle {
		t.Error("after five minutes prices may have changed, but the pass did not look")
	}
	planner.Propose(w)
	f.pods("a", "ds", 1, "1m", "1Mi", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" })
	changed := f.world()
	if p := planner.Propose(changed); p.Idle {
		t.Error("the cluster changed, but the pass did not look")
	}
}

func TestAFailedMoveIsNotTriedAgainAtOnce(t *testing.T) {
	f := newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 3, "1", "1Gi")
	planner := newPlanner(realEngine())
	w := f.world()
	first := planner.Propose(w)
	planner.Failed(first.Steps[0], w.Now)
	for _, tc := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {59 * time.Second, 0}, {time.Minute, 1}} {
		later := *w
		later.Now = w.Now.Add(tc.after)
		if got := len(planner.Propose(&later).Steps); got != tc.want {
			t.Errorf("%v after a failure: %d steps, want %d", tc.after, got, tc.want)
		}
	}
	planner.Failed(first.Steps[0], w.Now.Add(time.Minute))
	later := *w
	later.Now = w.Now.Add(2*time.Minute + 59*time.Second)
	if got := len(planner.Propose(&later).Steps); got != 0 {
		t.Error("after the second failure the pause is not twice as long")
	}
}

func TestConfirm(t *testing.T) {
	start := func() *fixture {
		return newFixture(small()...).pool("p", allowing("1")).node("a", "p", "mid", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "mid", onDemand).pods("b", "db", 3, "1", "1Gi")
	}
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   Code
	}{
		"a world that stayed as it was": {func(*fixture) {}, ""},
		"a protected pod arrived":       {func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi", protect) }, Churn},
		"a pod under a budget arrived":  {func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi").pdb("new", 0) }, Churn},
		"the node was promised":         {func(f *fixture) { f.promise("a", noon) }, Churn},
		"what it saves has shrunk": {func(f *fixture) {
			f.pods("b", "late", 1, "1", "1Gi")
			types := append(slices.Clone(f.pools["p"].Catalog.Types), shape("some", 1, 4, 0.19, 0))
			f.pools["p"] = engine.Pool{Pool: f.pools["p"].Pool, Catalog: &cloud.Catalog{Types: types}}
		}, Scheduling},
		"the room was taken": {func(f *fixture) { f.pods("b", "late", 1, "1", "1Gi") }, Scheduling},
		"the budget was used up": {func(f *fixture) {
			f.node("c", "p", "mid", onDemand, func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		}, Budget},
	} {
		t.Run(name, func(t *testing.T) {
			f := start()
			f.types = f.types[2:] // nothing cheaper can be bought, so that only room counts
			f.pools["p"].Catalog.Types = slices.DeleteFunc(slices.Clone(f.pools["p"].Catalog.Types), func(it *cloud.InstanceType) bool { return it.Name == "cheap" })
			planner := newPlanner(realEngine())
			p := planner.Propose(f.world())
			if len(p.Steps) != 1 {
				t.Fatalf("steps %v", say(p))
			}
			tc.change(f)
			step, refusal := planner.Confirm(f.world(), p.Steps[0])
			if refusal.Code != tc.want || (step == nil) != (tc.want != "") {
				t.Errorf("refused with %q, want %q", refusal.Code, tc.want)
			}
		})
	}
}

// TestConfirmAnEmptyNode has a step that waited for its approval: only such steps of empty nodes are looked at again.
func TestConfirmAnEmptyNode(t *testing.T) {
	daemon := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   Code
	}{
		"a world that stayed as it was": {func(*fixture) {}, ""},
		"a pod came":                    {func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi") }, Churn},
		"a protected daemon came":       {func(f *fixture) { f.pods("a", "agent", 1, "1m", "1Mi", protect, daemon) }, Churn},
		"the budget was used up": {func(f *fixture) {
			f.node("c", "p", "mid", onDemand, func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		}, Budget},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p", allowing("1")).node("a", "p", "mid", onDemand)
			planner := newPlanner(realEngine())
			p := planner.Propose(f.world())
			if len(p.Steps) != 1 || p.Steps[0].Method != Emptiness {
				t.Fatalf("steps %v", say(p))
			}
			tc.change(f)
			step, refusal := planner.Confirm(f.world(), p.Steps[0])
			if refusal.Code != tc.want || (step == nil) != (tc.want != "") {
				t.Errorf("refused with %q, want %q", refusal.Code, tc.want)
			}
			if step != nil && (len(step.Remove) != 1 || step.Before != p.Steps[0].Before || len(step.Open) > 0) {
				t.Errorf("the step became %v", step)
			}
		})
	}
}

// TestConfirmAStaticNode has two nodes of a pool that keeps two, of which one has drifted.
func TestConfirmAStaticNode(t *testing.T) {
	keeps := func(replicas int64, limit string) func(*v1.NodePool) {
		return func(p *v1.NodePool) {
			p.Spec.Replicas, p.Spec.Limits = &replicas, v1.Limits{v1.ResourceNodes: resource.MustParse(limit)}
		}
	}
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   Code
	}{
		"a world that stayed as it was": {func(*fixture) {}, ""},
		"it has not drifted any more":   {func(f *fixture) { f.node("a", "p", "mid", onDemand) }, Churn},
		"a protected pod arrived":       {func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi", protect) }, Churn},
		"the budget was used up": {func(f *fixture) {
			f.node("b", "p", "mid", onDemand, func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		}, Budget},
		"the limit leaves no room for a third": {func(f *fixture) { f.pool("p", keeps(2, "2"), allowing("1")) }, Scheduling},
		"it is to have fewer nodes":            {func(f *fixture) { f.pool("p", keeps(1, "3"), allowing("1")) }, Scheduling},
		"a third node is there already":        {func(f *fixture) { f.node("c", "p", "mid", onDemand) }, Scheduling},
		"its pool cannot launch anything now":  {func(f *fixture) { f.notReady = map[string]bool{"p": true} }, Scheduling},
		"its pool asks for a type that nobody sells": {func(f *fixture) {
			f.pool("p", keeps(2, "3"), allowing("1"), func(p *v1.NodePool) {
				p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"gone"}}}
			})
		}, Scheduling},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p", keeps(2, "3"), allowing("1")).node("a", "p", "mid", onDemand, drift(-time.Hour)).pods("a", "web", 1, "1", "1Gi").node("b", "p", "mid", onDemand)
			planner := newPlanner(realEngine())
			p := planner.Propose(f.world())
			if len(p.Steps) != 1 {
				t.Fatalf("steps %v", say(p))
			}
			tc.change(f)
			step, refusal := planner.Confirm(f.world(), p.Steps[0])
			if refusal.Code != tc.want || (step == nil) != (tc.want != "") {
				t.Fatalf("refused with %q, want %q", refusal.Code, tc.want)
			}
			if step != nil && (len(step.Remove) != 1 || len(step.Open) != 1 || step.Method != Drift) {
				t.Errorf("it became %+v, want the node replaced by one", step)
			}
		})
	}
}

// TestStaticNodesAtTheLimitGoFirstWithTheirGate has a pool of two nodes with room for no third, of which one has drifted.
func TestStaticNodesAtTheLimitGoFirstWithTheirGate(t *testing.T) {
	two := int64(2)
	fixed := func(limit string) func(*v1.NodePool) {
		return func(p *v1.NodePool) {
			p.Spec.Replicas, p.Spec.Limits = &two, v1.Limits{v1.ResourceNodes: resource.MustParse(limit)}
		}
	}
	gone := func(p *v1.NodePool) {
		p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"gone"}}}
	}
	for name, tc := range map[string]struct {
		gate   bool
		change func(*fixture)
		want   string // the decision, "" for none
	}{
		"gate off":                               {false, func(*fixture) {}, ""},
		"gate on":                                {true, func(*fixture) {}, "terminate-first"},
		"room for a third":                       {true, func(f *fixture) { f.pool("p", fixed("3"), allowing("2")) }, "replace"},
		"a budget of 0":                          {true, func(f *fixture) { f.pool("p", fixed("2"), allowing("0")) }, ""},
		"a protected pod":                        {true, func(f *fixture) { f.pods("a", "new", 1, "1m", "1Mi", protect) }, ""},
		"its pool is not ready":                  {true, func(f *fixture) { f.notReady = map[string]bool{"p": true} }, ""},
		"nothing could be launched in its place": {true, func(f *fixture) { f.pool("p", fixed("2"), allowing("2"), gone) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p", fixed("2"), allowing("2")).node("a", "p", "mid", onDemand, drift(-time.Hour)).
				pods("a", "web", 1, "1", "1Gi").node("b", "p", "mid", onDemand)
			f.set.TerminateFirstDrift = tc.gate
			tc.change(f)
			planner := newPlanner(realEngine())
			p := planner.Propose(f.world())
			if len(p.Steps) == 0 {
				if tc.want != "" {
					t.Fatalf("no steps: %v", say(p))
				}
				return
			}
			step, refusal := planner.Confirm(f.world(), p.Steps[0])
			if step == nil {
				t.Fatalf("refused with %q", refusal.Code)
			}
			if got := step.Decision(); got != tc.want || len(p.Steps) != 1 || (got == "replace") != (len(step.Open) == 1) {
				t.Errorf("decision %q with %d openings in %d steps, want %q", got, len(step.Open), len(p.Steps), tc.want)
			}
		})
	}
}

// TestTheToll has one node whose four pods could run for 0.18, among others that are as cheap as can be. A pod is worth 0.045, so in a
// restless cluster close to its target a step must save 0.18.
func TestTheToll(t *testing.T) {
	for name, tc := range map[string]struct {
		dear   float64 // the price of the node
		others int
		young  int  // pods that are new
		moved  int  // pods that were moved two hours ago
		steady bool // the new ones did not come at once, but ten minutes apart
		want   bool
	}{
		"calm, any saving will do":                                       {0.20, 20, 0, 0, false, true},
		"restless, 0.9 times what the pods are worth won't":              {0.34, 20, 84, 0, false, false},
		"restless, 1.1 times will":                                       {0.38, 20, 84, 0, false, true},
		"half as restless, 0.4 times won't":                              {0.252, 49, 1, 0, false, false},
		"half as restless, 0.6 times will":                               {0.288, 49, 1, 0, false, true},
		"restless and 15 % dearer than it could be, any will":            {0.212, 0, 4, 0, false, true},
		"restless and 10 % dearer, half will":                            {0.27, 4, 20, 0, false, true},
		"restless and 8 % dearer, half won't":                            {0.27, 5, 24, 0, false, false},
		"far too dear, and a quarter of the pods came at once, any will": {0.26, 2, 3, 0, false, true},
		"or in each ten minutes a twelfth: 1.9 times won't":              {0.53, 2, 3, 0, true, false},
		"or in each ten minutes a twelfth: 2.1 times will":               {0.56, 2, 3, 0, true, true},
		"calm, a fifth of the pods was moved, 0.4 times won't":           {0.252, 49, 0, 40, false, false},
		"calm, a fifth of the pods was moved, 0.5 times will":            {0.27, 49, 0, 40, false, true},
		"calm, sixty percent of the pods was moved, 3.9 times won't":     {0.882, 99, 0, 240, false, false},
		"calm, sixty percent of the pods was moved, 4.1 times will":      {0.918, 99, 0, 240, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			age := 8 * time.Minute
			young := func(p *corev1.Pod) {
				if tc.young > 0 {
					p.CreationTimestamp = metav1.NewTime(noon.Add(-age))
				}
				if tc.young--; tc.steady {
					age += 10 * time.Minute
				}
			}
			f := newFixture(shape("dear", 4, 16, tc.dear, 0), shape("fair", 4, 16, 0.18, 0)).pool("p").node("a", "p", "dear", onDemand).pods("a", "web", 4, "1", "1Gi", young)
			for i := range tc.others {
				other := fmt.Sprintf("other-%03d", i)
				f.node(other, "p", "fair", onDemand).pods(other, "web", 4, "1", "1Gi", young)
			}
			planner := newPlanner(realEngine())
			planner.churn = planner.churn.leaves(moving(tc.moved, time.Time{}), noon.Add(-2*time.Hour))
			p := planner.Propose(f.world())
			if got := len(p.Steps) == 1; got != tc.want {
				t.Errorf("replaced = %v, want %v; fleet %v, target %v; %v", got, tc.want, p.Before.Dollars(), p.Target.Dollars(), noteTexts(p)[:min(3, len(p.Notes))])
			}
		})
	}
}

// TestRestlessness has a hundred pods, some of which are new.
func TestRestlessness(t *testing.T) {
	for name, tc := range map[string]struct {
		young int           // pods that were made ten minutes ago
		moved int           // pods of a step
		ago   time.Duration // when it was decided
		want  float64
	}{
		"nobody comes": {0, 0, 0, 0},
		"one new pod in half an hour is two percent":          {1, 0, 0, 1},
		"more makes no difference":                            {50, 0, 0, 1},
		"those that we have moved did not come by themselves": {6, 6, 20 * time.Minute, 0.04},
		"one of them did":                                     {7, 6, 20 * time.Minute, 1},
		"these were moved too long ago to be new now":         {6, 6, time.Hour, 1},
		"many that were moved speak against more":             {0, 60, 23 * time.Hour, 4},
		"but not for longer than a day":                       {0, 60, 24 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand)
			f.pods("a", "old", 100-tc.young, "10m", "1Mi").pods("a", "new", tc.young, "10m", "1Mi", func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(noon.Add(-10 * time.Minute))
			})
			moves := churn{}.leaves(moving(tc.moved, time.Time{}), noon.Add(-tc.ago))
			u := toll{settings: DefaultSettings(), rates: moves.measure(f.world().Snap, noon)}
			if got := u.restlessness(); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("restlessness = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestWhatComesAllTheTime has a hundred pods.
func TestWhatComesAllTheTime(t *testing.T) {
	for name, tc := range map[string]struct {
		ages  []int // of new pods, in minutes
		moved []int // when pods were moved, in minutes
		age   int   // of those then
		want  int   // pods of a hundred in an hour
	}{
		"nobody comes": {},
		"all come at once, a quarter of an hour ago":    {ages: []int{15, 15, 15, 15, 15, 15}},
		"nobody came lately":                            {ages: []int{12, 14, 22, 24}},
		"one comes every ten minutes":                   {ages: []int{5, 15, 25}, want: 6},
		"more in some than in others":                   {ages: []int{0, 1, 9, 10, 19, 20, 21, 29}, want: 12},
		"half an hour ago is too long":                  {ages: []int{5, 15, 30}},
		"old ones were moved, these are in their place": {ages: []int{5, 15, 25}, moved: []int{6, 16, 26}, age: 30},
		"new ones were moved and come again":            {ages: []int{5, 15, 25}, moved: []int{6, 16, 26}, age: 29, want: 6},
		"more were moved than came":                     {ages: []int{5, 15, 25}, moved: []int{5, 5, 15, 25}, age: 60},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand)
			f.pods("a", "old", 100-len(tc.ages), "10m", "1Mi")
			for i, age := range tc.ages {
				f.pods("a", fmt.Sprint("new", i), 1, "10m", "1Mi", func(p *corev1.Pod) {
					p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Duration(age) * time.Minute))
				})
			}
			moves := churn{}
			for _, ago := range tc.moved {
				at := noon.Add(-time.Duration(ago) * time.Minute)
				moves = moves.leaves(moving(1, at.Add(-time.Duration(tc.age)*time.Minute)), at)
			}
			if got := 100 * moves.measure(f.world().Snap, noon).steady; math.Abs(got-float64(tc.want)) > 1e-9 {
				t.Errorf("%v in an hour, want %d", got, tc.want)
			}
		})
	}
}

// moving is a step of so many pods.
func moving(pods int, made time.Time) *Step {
	c := &Candidate{}
	for range pods {
		c.Pods = append(c.Pods, &cluster.Pod{PodTimes: cluster.PodTimes{Created: made}})
	}
	return &Step{Remove: []*Candidate{c}}
}

func TestWorkThatIsUnderWayKeepsThePlannerAwake(t *testing.T) {
	start := func() (*planner, *World) {
		f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 4, "1", "1Gi").node("b", "p", "one", onDemand).pods("b", "web", 4, "1", "1Gi")
		return newPlanner(realEngine()), f.world()
	}
	for name, tc := range map[string]struct {
		edit func(*World)
		want bool
	}{
		"nothing is under way":    {func(*World) {}, true},
		"a node is being removed": {func(w *World) { w.Busy = map[types.UID]bool{"claim-b": true} }, false},
		"pods are on their way":   {func(w *World) { w.Landing = map[string]bool{"b": true} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			planner, w := start()
			tc.edit(w)
			if got := planner.Propose(w).Calm; got != tc.want {
				t.Errorf("calm = %v, want %v", got, tc.want)
			}
			if got := planner.Propose(w).Idle; got != tc.want {
				t.Errorf("idle = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestNodesThatPodsAreOnTheirWayToAreLeftAlone promises the room on b to others: a cannot count on it, and b itself stays.
func TestNodesThatPodsAreOnTheirWayToAreLeftAlone(t *testing.T) {
	f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "one", onDemand)
	w := f.world()
	w.Landing = map[string]bool{"b": true}
	if out := newPlanner(realEngine()).Propose(w); len(out.Steps) > 0 {
		t.Errorf("proposed %v", say(out))
	}
	w = f.world()
	if out := newPlanner(realEngine()).Propose(w); !slices.Equal(say(out), []string{"empty b"}) {
		t.Errorf("without pods on their way: proposed %v", say(out))
	}
}

// TestRoomOfStepsThatWaitIsKept has a step of w that waits for its second look: its pod is to come to b. b stays, and of its room is
// free what that leaves.
func TestRoomOfStepsThatWaitIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		coming string // what the pod asks for of the four on b, one of which is in use
		want   []string
	}{
		"there is room for another one": {"2", []string{"underutilized a"}},
		"there is not":                  {"2500m", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 1, "1", "1Gi").
				node("b", "p", "one", onDemand).pods("b", "web", 1, "1", "1Gi").node("w", "p", "one", onDemand).pods("w", "web", 1, tc.coming, "1Gi")
			w := openForRoom(f.world())
			w.Busy = map[types.UID]bool{"claim-w": true}
			w.Coming = []engine.Placement{{Pod: w.Snap.Pod(cluster.PodKey{Namespace: "default", Name: "web-w-0"}), Node: "b"}}
			out := newPlanner(realEngine()).Propose(w)
			if got := say(out); !slices.Equal(got, tc.want) {
				t.Errorf("proposed %q, want %q", got, tc.want)
			}
			if !slices.ContainsFunc(out.Blocks, func(r Refusal) bool { return r.Node == "b" && r.Code == Landing }) {
				t.Errorf("b may go: %+v", out.Blocks)
			}
		})
	}
}

// TestConsolidationKeepsOffTheRoomOfDrift has a, which drifts, b, and x, which stays.
func TestConsolidationKeepsOffTheRoomOfDrift(t *testing.T) {
	for name, tc := range map[string]struct {
		b, x string // what pods ask for there, of 4 and of 8; that on a asks for 2
		want []string
	}{
		"there is room on x for the pods of both":      {"2500m", "1", []string{"drifted a", "underutilized b"}},
		"there is room for one":                        {"2500m", "4", []string{"drifted a"}},
		"the pod of a goes to b, whose pod could go":   {"1", "6500m", []string{"drifted a"}},
		"neither goes anywhere, as x has room for one": {"3", "7", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0), shape("two", 8, 32, 0.4, 0)).pool("p").
				node("a", "p", "one", onDemand, func(_ *corev1.Node, c *v1.NodeClaim) {
					condition.SetTrue(c, v1.ConditionTypeDrifted, noon.Add(-time.Hour))
				}).pods("a", "web", 1, "2", "1Gi").
				node("b", "p", "one", onDemand).pods("b", "web", 1, tc.b, "1Gi").
				node("x", "p", "two", onDemand, protectedEdit).pods("x", "filler", 1, tc.x, "1Gi")
			if got := say(newPlanner(realEngine()).Propose(openForRoom(f.world()))); !slices.Equal(got, tc.want) {
				t.Errorf("proposed %q, want %q", got, tc.want)
			}
		})
	}
}

// TestSmallChangesAreNotAnsweredAnew lets a pod report something, and then a node come.
func TestSmallChangesAreNotAnsweredAnew(t *testing.T) {
	f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).pods("a", "web", 4, "1", "1Gi")
	asked := &counting{}
	planner := newPlanner(asked)
	at := func(d time.Duration) *Proposal {
		w := f.world()
		w.Now = noon.Add(d)
		return planner.Propose(w)
	}
	at(0)
	before := asked.n
	f.pods("a", "web", 4, "1", "1Gi", func(p *corev1.Pod) { p.Status.Message = "fine" })
	if out := at(time.Minute); asked.n != before || out.Idle || out.Target == 0 {
		t.Errorf("%d questions after a pod reported, idle %v, target %v", asked.n-before, out.Idle, out.Target)
	}
	f.node("b", "p", "one", onDemand).pods("b", "web", 1, "1", "1Gi")
	at(betweenSearches - time.Second)
	if asked.n != before {
		t.Errorf("%d questions although the last answer is not %v old", asked.n-before, betweenSearches)
	}
	at(betweenSearches)
	if asked.n == before {
		t.Error("no question although a node has come")
	}
}

// TestBudgetsThatAreFreeAgainAreUsedAtOnce gives the whole budget to an empty node, and has it again a moment later.
func TestBudgetsThatAreFreeAgainAreUsedAtOnce(t *testing.T) {
	f := newFixture(small()...).pool("p", allowing("1")).node("a", "p", "mid", onDemand).
		node("b", "p", "mid", onDemand).pods("b", "web", 1, "1", "1Gi").node("c", "p", "mid", onDemand).pods("c", "web", 2, "1", "1Gi")
	planner := newPlanner(engine.New())
	if got := say(planner.Propose(f.world())); !slices.Equal(got, []string{"empty a"}) {
		t.Fatalf("steps %v, want the empty node's", got)
	}
	f.store.Update(func(d *cluster.Draft) { d.DeleteNode("a"); d.DeleteClaim("claim-a") })
	if got := say(planner.Propose(f.world())); !slices.Equal(got, []string{"underutilized b"}) {
		t.Errorf("steps %v after the empty node has gone, want those that the budget did not allow before", got)
	}
}

// TestAFleetThatIsLookedAtInVainIsLeftAlone has more nodes than a pass can weigh, and nothing to gain.
func TestAFleetThatIsLookedAtInVainIsLeftAlone(t *testing.T) {
	f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p")
	for i := range 40 {
		name := fmt.Sprint("n", i)
		f.node(name, "p", "one", onDemand).pods(name, "web", 4, "1", "1Gi")
	}
	planner, passes := newPlanner(engine.New()), 0
	for {
		w := f.world()
		w.Settings.Trials = 24
		if out := planner.Propose(w); len(out.Steps) > 0 {
			t.Fatalf("proposed %v", say(out))
		}
		passes++
		if planner.resume == "" {
			break
		}
		if passes > 10 {
			t.Fatalf("the planner goes on at %s after %d passes over 40 nodes", planner.resume, passes)
		}
	}
	if passes == 1 {
		t.Error("one pass has weighed every node, so nothing was tested")
	}
}
