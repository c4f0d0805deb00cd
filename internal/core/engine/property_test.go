package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/solve"
)

// small makes a question of few plain pods and few on-demand types in one zone.
func (r dice) small(pods, kinds int, edit ...func(i int, p *corev1.Pod)) Question {
	cat := &cloud.Catalog{}
	for i := range kinds {
		it := r.instanceType(i)
		it.Labels[corev1.LabelTopologyZone] = []string{"a"}
		it.Offerings = it.Offerings[:1]
		it.Offerings[0].Available = true
		cat.Types = append(cat.Types, it)
	}
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "example.com", Kind: "Class", Name: "default"}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for i := range pods {
			q := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%02d", i), UID: types.UID(fmt.Sprint(i))}}
			q.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities(int64(100*(1+r.IntN(30))), int64(256*(1+r.IntN(30))), 0)}}}
			delete(q.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
			q.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			for _, e := range edit {
				e(i, q)
			}
			d.PutPod(q)
		}
	})
	snap := store.Snapshot()
	return Question{Snap: snap, Pools: []Pool{{Pool: p, Catalog: cat}}, Pods: snap.Provisionable(), Now: time.Unix(0, 0),
		Settings: Settings{Size: SizePolicy{Large: -1}}}
}

// together says whether host-level constraints let a set of pods share a node, where whoever they select has them too.
func together(p *problem.Problem, class []int, set int) bool {
	for g := range p.Groups {
		most, n := int(p.Groups[g].MaxSkew), 0
		if p.Groups[g].Kind == spread.Anti {
			most = 1
		}
		for i, c := range class {
			if set>>i&1 != 0 && slices.Contains(p.Classes[c].Groups, g) {
				n++
			}
		}
		if n > most {
			return false
		}
	}
	return true
}

// reckoned is what decisions make of the price of a machine: a node costs something by itself, a twentieth of its price at most.
func reckoned(p *problem.Problem, price int64) int64 {
	return price + min(p.Settings.Terms.Node, price/20)
}

// cheapest finds the optimum, as decisions reckon it, by trying every way to split the pods that can run; 0 if none can.
func cheapest(p *problem.Problem) int64 {
	var needs [][]int64
	var class []int
	for i := range p.Classes {
		for range p.Classes[i].Count {
			needs = append(needs, p.Classes[i].Need)
			class = append(class, i)
		}
	}
	t := &p.Templates[0]
	holds := func(set int) int64 {
		best := int64(0)
		for sh := range t.Shapes.All() {
			fits := true
			for r := range p.Resources {
				sum := int64(0)
				for i, n := range needs {
					if set>>i&1 != 0 {
						sum += n[r]
					}
				}
				fits = fits && sum <= t.Room[sh][r]
			}
			fits = fits && together(p, class, set)
			if cost := reckoned(p, t.Catalog.Price[sh][0]); fits && (best == 0 || cost < best) {
				best = cost
			}
		}
		return best
	}
	all := 1<<len(needs) - 1
	one := make([]int64, all+1)
	for set := 1; set <= all; set++ {
		one[set] = holds(set)
	}
	for i := range needs {
		if one[1<<i] == 0 {
			all &^= 1 << i // it fits nowhere
		}
	}
	best := make([]int64, 1<<len(needs))
	for set := 1; set < len(best); set++ {
		if set&^all != 0 {
			continue
		}
		best[set] = -1
		for sub := set; sub > 0; sub = (sub - 1) & set {
			if one[sub] > 0 && best[set&^sub] >= 0 && (best[set] < 0 || best[set&^sub]+one[sub] < best[set]) {
				best[set] = best[set&^sub] + one[sub]
			}
		}
	}
	return best[all]
}

// TestSmallProblemsAgainstEveryFleet compares with the optimum: bound ≤ optimum ≤ ours, and ours is never far off.
func TestSmallProblemsAgainstEveryFleet(t *testing.T) {
	exact, total := 0, 0
	for seed := range uint64(150) {
		r := dice{rand.New(rand.NewPCG(seed, 11))}
		in := r.small(1+r.IntN(8), 1+r.IntN(6))
		e := New()
		b := e.compile(in)
		got := repack.Run(b.Problem)
		if err := solve.Check(b.Problem, got); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		best := cheapest(b.Problem)
		if got.Cost < best || max(got.Volume, got.Config) > best {
			t.Errorf("seed %d: cost %d, optimum %d, bounds %d and %d", seed, got.Cost, best, got.Volume, got.Config)
		}
		if float64(got.Cost) > 1.1*float64(best) {
			t.Errorf("seed %d: cost %d, optimum %d", seed, got.Cost, best)
		}
		total++
		if got.Cost == best {
			exact++
		}
	}
	if exact*100 < total*95 {
		t.Errorf("%d of %d small problems solved exactly", exact, total)
	}
}

// TestWhatMustNotMatter changes what has no meaning and expects the same price.
func TestWhatMustNotMatter(t *testing.T) {
	for seed := range uint64(40) {
		r := dice{rand.New(rand.NewPCG(seed, 13))}
		in := r.world(20)
		want := New().Plan(in)
		shuffled := in
		shuffled.Pods = slices.Clone(in.Pods)
		r.Shuffle(len(shuffled.Pods), func(i, j int) { shuffled.Pods[i], shuffled.Pods[j] = shuffled.Pods[j], shuffled.Pods[i] })
		if got := New().Plan(shuffled); summary(got) != summary(want) {
			t.Errorf("seed %d: the order of the pods matters", seed)
		}
		useless := in
		useless.Pools = slices.Clone(in.Pools)
		for i, p := range in.Pools {
			cat := &cloud.Catalog{Types: slices.Clone(p.Catalog.Types)}
			sold := *cat.Types[0]
			sold.Name = "useless"
			sold.Labels = map[string][]string{corev1.LabelInstanceTypeStable: {"useless"}}
			sold.Offerings = nil
			cat.Types = append(cat.Types, &sold)
			useless.Pools[i].Catalog = cat
		}
		if got := New().Plan(useless); got.Price != want.Price || len(got.Refused) != len(want.Refused) {
			t.Errorf("seed %d: a type that nobody sells changes the price from %d to %d", seed, want.Price, got.Price)
		}
		e := New()
		e.Plan(in)
		if again := e.Plan(in); summary(again) != summary(want) {
			t.Errorf("seed %d: an engine that remembers answers differently", seed)
		}
	}
}

// TestClaim checks the whole content of a claim.
func TestClaim(t *testing.T) {
	r := dice{rand.New(rand.NewPCG(1, 1))}
	in := r.small(2, 3)
	pool := in.Pools[0].Pool
	pool.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: "123", v1.NodePoolHashVersionAnnotationKey: "k1", v1.KubeletCompatibilityAnnotationKey: "{}"}
	pool.Spec.Template.Labels = map[string]string{"team": "a"}
	pool.Spec.Template.Annotations = map[string]string{"note": "x", v1.DisruptionCommandAnnotationKey: "forged", v1.LaunchTokenAnnotationKey: "forged"}
	pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoSchedule}}
	pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: "tier", Operator: corev1.NodeSelectorOpIn, Values: []string{"gold", "silver"}}}
	grace := 5 * time.Minute
	in.Settings.DefaultTerminationGracePeriod = &grace
	plan := New().Plan(in)
	if len(plan.Open) == 0 {
		t.Fatal("nothing was opened")
	}
	c := plan.Open[0].Claim
	for key, want := range map[string]string{"team": "a", "tier": "gold", v1.NodePoolLabelKey: "default", "example.com/class": "default"} {
		if c.Labels[key] != want {
			t.Errorf("label %s = %q, want %q", key, c.Labels[key], want)
		}
	}
	if _, ok := c.Labels[v1.NodeInitializedLabelKey]; ok {
		t.Error("a label of the simulation is exported")
	}
	for key, want := range map[string]string{"note": "x", v1.NodePoolHashAnnotationKey: "123", v1.NodePoolHashVersionAnnotationKey: "k1", v1.NodeClaimMinValuesRelaxedAnnotationKey: "false", v1.KubeletCompatibilityAnnotationKey: "{}"} {
		if c.Annotations[key] != want {
			t.Errorf("annotation %s = %q, want %q", key, c.Annotations[key], want)
		}
	}
	for key, value := range c.Annotations {
		if value == "forged" {
			t.Errorf("annotation %s of the template is on the claim", key)
		}
	}
	if o := c.OwnerReferences; len(o) != 1 || o[0].Kind != "NodePool" || o[0].Controller != nil || !*o[0].BlockOwnerDeletion {
		t.Errorf("owners %v", o)
	}
	if c.GenerateName != "default-" || c.Name != "" || len(c.Spec.StartupTaints) != 1 || c.Spec.TerminationGracePeriod.Duration != grace {
		t.Errorf("claim %+v", c.Spec)
	}
	var requested int64
	for _, p := range plan.Open[0].Pods {
		requested += p.Class.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	if got := c.Spec.Resources.Requests.Cpu().MilliValue(); got != requested {
		t.Errorf("requests %dm of CPU, want %dm", got, requested)
	}
	if pods := c.Spec.Resources.Requests[corev1.ResourcePods]; pods.Value() != int64(len(plan.Open[0].Pods)) {
		t.Errorf("requests %v pods", pods.Value())
	}
	var types []string
	for _, q := range c.Spec.Requirements {
		if q.Key == corev1.LabelInstanceTypeStable {
			types = q.Values
		}
	}
	if !slices.Equal(types, plan.Open[0].Types) || types[0] != plan.Open[0].Type {
		t.Errorf("types %v, want %v", types, plan.Open[0].Types)
	}
}
