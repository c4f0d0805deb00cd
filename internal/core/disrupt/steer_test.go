package disrupt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func underused(n *corev1.Node, _ *v1.NodeClaim) {
	n.Spec.Taints = append(n.Spec.Taints, v1.UnderusedTaint())
}

func TestWhichNodesAreAvoided(t *testing.T) {
	wasted := []float64{0.01, 0.05, 0.04, 0.02} // of nodes a, b, c, d …
	for name, tc := range map[string]struct {
		nodes   int
		marked  string // that have the taint
		surplus float64
		part    float64 // of the nodes may be chosen
		want    string
	}{
		"none in a fleet as cheap as can be":              {4, "", 0, mostAvoided, ""},
		"none while the surplus is less than any node":    {4, "", 0.19, mostAvoided, ""},
		"the one that wastes most":                        {4, "", 0.3, mostAvoided, "b"},
		"at least one, however small the fleet":           {4, "", 0.8, 0.05, "b"},
		"two of forty":                                    {40, "", 8, 0.05, "b,c"},
		"one of forty, if that is all the surplus":        {40, "", 0.3, mostAvoided, "b"},
		"still the one that was chosen, if nearly as bad": {40, "c", 0.3, mostAvoided, "c"},
		"another one, if it is much better now":           {40, "d", 0.3, mostAvoided, "b"},
		"never the only one":                              {1, "", 0.3, mostAvoided, ""},
		"many, where many may be":                         {40, "", 0.8, mostLeft, "a,b,c,d"},
		"nine of ten at the most":                         {10, "", 8, mostLeft, "a,b,c,d,e,f,g,h,i"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p")
			money := map[string]float64{}
			for i := range tc.nodes {
				name := string(rune('a' + i))
				if i >= 26 {
					name = fmt.Sprintf("z%d", i)
				}
				if i < len(wasted) {
					money[name] = wasted[i]
				}
				var edits []func(*corev1.Node, *v1.NodeClaim)
				if name == tc.marked {
					edits = append(edits, underused)
				}
				f.node(name, "p", "one", onDemand, edits...).pods(name, "web", 1, "1", "1Gi")
			}
			candidates := surveyOf(f.world()).candidates()
			by := map[*Candidate]float64{}
			for _, c := range candidates {
				by[c] = money[c.Name()]
			}
			got := avoid(candidates, by, target{before: cloud.FromDollars(8), after: cloud.FromDollars(8 - tc.surplus)}, tc.part)
			if names := uidNames(got); names != tc.want {
				t.Errorf("avoid %q, want %q", names, tc.want)
			}
		})
	}
}

func uidNames(set map[types.UID]bool) string {
	var names []string
	for uid := range maps.Keys(set) {
		names = append(names, strings.TrimPrefix(string(uid), "claim-"))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// TestSteering has a fleet in which node a is nearly empty and could go, if the budget were not used up, and looks at what becomes of it.
func TestSteering(t *testing.T) {
	type edit = func(*corev1.Node, *v1.NodeClaim)
	settling := func(_ *corev1.Node, c *v1.NodeClaim) {
		c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1.ConditionTypeConsolidatable })
	}
	freeze := func(w *World) { allowing("0")(w.Pools["p"].Pool) }
	freezeDrift := func(w *World) {
		pool := w.Pools["p"].Pool
		pool.Spec.Disruption.Budgets = append(pool.Spec.Disruption.Budgets, v1.Budget{Nodes: "0", Reasons: []v1.DisruptionReason{v1.DisruptionReasonDrifted}})
	}
	for name, tc := range map[string]struct {
		node  []edit // what is special about a
		pod   func(*corev1.Pod)
		world func(*World)
		want  string
	}{
		"the node should get empty":                       {want: "mark"},
		"it is marked already":                            {node: []edit{underused}, want: ""},
		"a pod has just come or gone":                     {node: []edit{settling}, want: ""},
		"a pod has just come or gone on a marked one":     {node: []edit{underused, settling}, want: ""},
		"it must not be removed":                          {node: []edit{protectedNode}, want: ""},
		"a marked one must not be removed":                {node: []edit{underused, protectedNode}, want: "clear"},
		"a marked one holds a pod that must not be moved": {node: []edit{underused}, pod: protect, want: "clear"},
		"a marked one is being removed":                   {node: []edit{underused}, world: func(w *World) { w.Busy = map[types.UID]bool{"claim-a": true} }, want: ""},
		"pods are on their way to a marked one":           {node: []edit{underused}, world: func(w *World) { w.Landing = map[string]bool{"a": true} }, want: ""},
		"the pool no longer consolidates a marked one": {node: []edit{underused}, world: func(w *World) {
			w.Pools["p"].Pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty
		}, want: "clear"},
		"the pool is frozen":              {world: freeze, want: ""},
		"a marked one's pool is frozen":   {node: []edit{underused}, world: freeze, want: "clear"},
		"frozen for another reason it is": {world: freezeDrift, want: "mark"},
		"a marked one belongs to somebody else": {node: []edit{underused, func(_ *corev1.Node, c *v1.NodeClaim) {
			c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "other", Kind: "Class", Name: "c"}
		}, protectedNode}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", allowing("1"))
			f.node("a", "p", "one", onDemand, tc.node...)
			edits := []func(*corev1.Pod){}
			if tc.pod != nil {
				edits = append(edits, tc.pod)
			}
			f.pods("a", "web", 1, "1", "1Gi", edits...)
			for _, name := range []string{"b", "c", "d"} {
				f.node(name, "p", "one", onDemand).pods(name, "web", 3, "1", "1Gi")
			}
			w := f.world()
			w.Promised = map[string]int{"p": 1}
			if tc.world != nil {
				tc.world(w)
			}
			got := ""
			for n, want := range newPlanner(realEngine()).Propose(w).Steering {
				if n.Name == "a" {
					got = map[bool]string{true: "mark", false: "clear"}[want]
				}
			}
			if got != tc.want {
				t.Errorf("steering %q, want %q", got, tc.want)
			}
		})
	}
}

// TestHowManyAreAvoided has twenty nodes, some of which could go if the budget were not used up. kube-scheduler would give the pods of
// those that go first to those that go next.
func TestHowManyAreAvoided(t *testing.T) {
	for name, tc := range map[string]struct {
		full, want int // nodes whose pods leave no room; marked ones
	}{
		"a fleet that is nearly right":     {18, 1},
		"a fleet that is much too large":   {0, 15},
		"a fleet in which nothing is free": {20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", allowing("1"))
			for i := range 20 {
				name, pods := fmt.Sprintf("n%02d", i), 1
				if i < tc.full {
					pods = 4
				}
				f.node(name, "p", "one", onDemand).pods(name, "web", pods, "1", "1Gi")
			}
			w := f.world()
			w.Promised = map[string]int{"p": 1}
			marked := 0
			for _, want := range newPlanner(realEngine()).Propose(w).Steering {
				if want {
					marked++
				}
			}
			if marked != tc.want {
				t.Errorf("%d nodes are avoided, want %d", marked, tc.want)
			}
		})
	}
}

// TestARestartKeepsWhatWasMarked remembers no search, because budgets and searches come later than its first look.
func TestARestartKeepsWhatWasMarked(t *testing.T) {
	f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand, underused).pods("a", "web", 4, "1", "1Gi")
	w := f.world()
	candidates := surveyOf(w).candidates()
	movers, _ := moversOf(candidates)
	s := surveyOf(w).search()
	if got := s.steer(candidates, movers, nil); len(got) > 0 {
		t.Errorf("before the first search %d nodes are changed", len(got))
	}
	if got := s.steer(candidates, movers, map[types.UID]bool{}); len(got) != 1 {
		t.Errorf("after a search that chose none %d nodes are changed, want 1", len(got))
	}
}

func protectedNode(n *corev1.Node, _ *v1.NodeClaim) {
	n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
}
