package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
)

// spreading makes a question of two applications, each spread over the zones of a few on-demand types.
func (r dice) spreading(pods, kinds, zones int) Question {
	cat := &cloud.Catalog{}
	for i := range kinds {
		it := r.instanceType(i)
		it.Labels[corev1.LabelTopologyZone] = nil
		plain := it.Offerings[0]
		it.Offerings = nil
		for z := range zones {
			o := plain
			o.Labels = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: string(rune('a' + z))}
			o.Available, o.Price = true, plain.Price*cloud.NanoUSD(100+r.IntN(40))/100
			it.Labels[corev1.LabelTopologyZone] = append(it.Labels[corev1.LabelTopologyZone], string(rune('a'+z)))
			it.Offerings = append(it.Offerings, o)
		}
		it.Labels[v1.CapacityTypeLabelKey] = []string{v1.CapacityTypeOnDemand}
		cat.Types = append(cat.Types, it)
	}
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "example.com", Kind: "Class", Name: "default"}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		needs := []corev1.ResourceList{quantities(int64(100*(1+r.IntN(20))), int64(256*(1+r.IntN(20))), 0), quantities(int64(100*(1+r.IntN(20))), int64(256*(1+r.IntN(20))), 0)}
		for i := range pods {
			app := r.IntN(2)
			labels := map[string]string{"app": fmt.Sprint(app)}
			q := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%02d", i), UID: types.UID(fmt.Sprint(i)), Labels: labels}}
			q.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: needs[app]}}}
			delete(q.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
			q.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: int32(1 + app), TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
			q.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			d.PutPod(q)
		}
	})
	snap := store.Snapshot()
	return Question{Snap: snap, Pools: []Pool{{Pool: p, Catalog: cat}}, Pods: snap.Provisionable(), Now: time.Unix(0, 0),
		Settings: Settings{Size: SizePolicy{Large: -1}}}
}

// cheapestSpread finds the optimum by trying every zone for every pod and every way to share nodes in a zone; 0 if there is none.
func cheapestSpread(p *problem.Problem, zones int) int64 {
	var class []int
	for i := range p.Classes {
		for range p.Classes[i].Count {
			class = append(class, i)
		}
	}
	tmpl := &p.Templates[0]
	best := make([][]int64, zones) // by zone and set of pods; −1: impossible
	for z := range best {
		best[z] = make([]int64, 1<<len(class))
		one := make([]int64, 1<<len(class))
		for set := range one {
			one[set] = cheapestNode(p, tmpl, class, set, string(rune('a'+z)))
		}
		for set := 1; set < len(one); set++ {
			best[z][set] = -1
			for sub := set; sub > 0; sub = (sub - 1) & set {
				if rest := best[z][set&^sub]; one[sub] > 0 && rest >= 0 && (best[z][set] < 0 || rest+one[sub] < best[z][set]) {
					best[z][set] = rest + one[sub]
				}
			}
		}
	}
	out := int64(0)
	var assign func(pod int, sets []int, counts [][]int)
	assign = func(pod int, sets []int, counts [][]int) {
		if pod == len(class) {
			sum := int64(0)
			for z, set := range sets {
				if best[z][set] < 0 {
					return
				}
				sum += best[z][set]
			}
			for c, byZone := range counts {
				least, most := byZone[0], byZone[0]
				for _, n := range byZone {
					least, most = min(least, n), max(most, n)
				}
				if most-least > int(p.Groups[p.Classes[c].Groups[0]].MaxSkew) {
					return
				}
			}
			if out == 0 || sum < out {
				out = sum
			}
			return
		}
		for z := range sets {
			sets[z] |= 1 << pod
			counts[class[pod]][z]++
			assign(pod+1, sets, counts)
			counts[class[pod]][z]--
			sets[z] &^= 1 << pod
		}
	}
	counts := make([][]int, len(p.Classes))
	for i := range counts {
		counts[i] = make([]int, zones)
	}
	assign(0, make([]int, zones), counts)
	return out
}

// cheapestNode is the lowest cost of one node in a zone that holds a set of pods; 0 if there is none.
func cheapestNode(p *problem.Problem, tmpl *problem.Template, class []int, set int, zone string) int64 {
	best := int64(0)
	for sh := range tmpl.Shapes.All() {
		fits := true
		for r := range p.Resources {
			sum := int64(0)
			for i, c := range class {
				if set>>i&1 != 0 {
					sum += p.Classes[c].Need[r]
				}
			}
			fits = fits && sum <= tmpl.Room[sh][r]
		}
		for o := range tmpl.Catalog.Sold[sh].All() {
			if cost := reckoned(p, tmpl.Catalog.Price[sh][o]); fits && tmpl.Catalog.Offers[o].Labels[corev1.LabelTopologyZone] == zone && (best == 0 || cost < best) {
				best = cost
			}
		}
	}
	return best
}

// TestSpreadProblemsAgainstEveryFleet compares pods that are spread over zones with the optimum: bound ≤ optimum ≤ ours, and the bound
// knows that zones have to be used.
func TestSpreadProblemsAgainstEveryFleet(t *testing.T) {
	tight, total := 0, 0
	for seed := range uint64(60) {
		r := dice{rand.New(rand.NewPCG(seed, 23))}
		zones := 2 + r.IntN(2)
		in := r.spreading(2+r.IntN(6), 1+r.IntN(4), zones)
		b := New().compile(in)
		got := repack.Run(b.Problem)
		if err := solve.Check(b.Problem, got); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		best := cheapestSpread(b.Problem, zones)
		if len(got.Bins) == 0 || best == 0 {
			continue // a pod fits nowhere
		}
		bound := max(got.Volume, got.Config)
		if got.Cost < best || bound > best || got.Config == 0 {
			t.Errorf("seed %d: cost %d, optimum %d, bounds %d and %d", seed, got.Cost, best, got.Volume, got.Config)
		}
		total++
		if float64(bound) > 0.8*float64(best) {
			tight++
		}
	}
	if total < 40 || tight*3 < total {
		t.Errorf("of %d questions %d have a bound near the optimum", total, tight)
	}
}

// TestBoundsOfLimitedPools asks small questions with what the packer does not know: limits that are wide enough, and minValues. The
// bound is proven all the same, and holds for the question without them.
func TestBoundsOfLimitedPools(t *testing.T) {
	for name, edit := range map[string]func(p *v1.NodePool){
		"limits": func(p *v1.NodePool) { p.Spec.Limits = v1.Limits(quantities(10_000_000, 10_000_000, 10_000_000)) },
		"minValues": func(p *v1.NodePool) {
			p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: new(2)}}
		},
	} {
		proven := 0
		for seed := range uint64(60) {
			r := dice{rand.New(rand.NewPCG(seed, 29))}
			in := r.small(1+r.IntN(8), 2+r.IntN(5))
			in.Settings.MinValuesBestEffort = true
			edit(in.Pools[0].Pool)
			b := New().compile(in)
			got := repack.Run(b.Problem)
			if err := solve.Check(b.Problem, got); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
			}
			best := cheapest(b.Problem)
			if got.Cost < best || max(got.Volume, got.Config) > best {
				t.Errorf("%s, seed %d: cost %d, optimum without them %d, bounds %d and %d", name, seed, got.Cost, best, got.Volume, got.Config)
			}
			if got.Config > 0 {
				proven++
			}
		}
		if proven < 40 {
			t.Errorf("%s: %d of 60 have a bound by the LP", name, proven)
		}
	}
}

// heldApart ties the pods of two applications of many sizes on a host: those of the first keep apart, of the second few share a node.
func heldApart(apps int, skew int32) func(i int, p *corev1.Pod) {
	return func(i int, p *corev1.Pod) {
		app := i % (apps + 1)
		p.Labels = map[string]string{"app": fmt.Sprint(app)}
		if app == apps {
			return // plain pods fill the gaps
		}
		selector := &metav1.LabelSelector{MatchLabels: p.Labels}
		if app%2 == 0 {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: selector}}}}
			return
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: skew, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector}}
	}
}

// TestPodsHeldApartAgainstEveryFleet compares pods that are tied on a host, of many sizes, with the optimum: bound ≤ optimum ≤ ours, and
// the bound knows how many machines are forced.
func TestPodsHeldApartAgainstEveryFleet(t *testing.T) {
	exact, tight, total := 0, 0, 0
	for seed := range uint64(150) {
		r := dice{rand.New(rand.NewPCG(seed, 31))}
		in := r.small(1+r.IntN(8), 1+r.IntN(6), heldApart(2, 2))
		b := New().compile(in)
		got := repack.Run(b.Problem)
		if err := solve.Check(b.Problem, got); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		best := cheapest(b.Problem)
		bound := max(got.Volume, got.Config)
		if got.Cost < best || bound > best {
			t.Errorf("seed %d: cost %d, optimum %d, bounds %d and %d", seed, got.Cost, best, got.Volume, got.Config)
		}
		if best == 0 {
			continue
		}
		total++
		if got.Cost == best {
			exact++
		}
		if float64(bound) > 0.9*float64(best) {
			tight++
		}
		if float64(got.Cost) > 1.4*float64(best) {
			t.Errorf("seed %d: cost %d, optimum %d", seed, got.Cost, best)
		}
	}
	if total < 140 || exact*100 < total*90 || tight*100 < total*90 {
		t.Errorf("of %d questions %d are solved exactly and %d have a bound near the optimum", total, exact, tight)
	}
}

// TestPodsHeldApartPackWell plans several hundred pods of many sizes that are tied on a host, application by application. Placed class by
// class, those that need much of one resource fill nodes to which nobody else can come any more.
func TestPodsHeldApartPackWell(t *testing.T) {
	cpu, memory := []int64{100, 250, 500, 1000, 1500}, []int64{100, 256, 512, 1024, 2048, 4096}
	var near float64
	const seeds = 8
	for seed := range uint64(seeds) {
		r := dice{rand.New(rand.NewPCG(seed, 37))}
		in := r.small(800, 12, heldApart(12, 3), func(_ int, p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = quantities(cpu[r.IntN(len(cpu))], memory[r.IntN(len(memory))], 0)
			delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
		})
		for _, it := range in.Pools[0].Catalog.Types {
			it.Capacity[corev1.ResourcePods] = resource.MustParse("250")
		}
		b := New().compile(in)
		got := repack.Run(b.Problem)
		if err := solve.Check(b.Problem, got); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		first := *b.Problem
		first.Settings.FirstFit = true
		before := repack.Run(&first)
		if len(before.Bins) == 0 || float64(got.Price) > 0.98*float64(before.Price) {
			t.Errorf("seed %d: %d, class by class %d", seed, got.Price, before.Price)
		}
		near += float64(got.Cost) / float64(max(got.Volume, got.Config)) / seeds
	}
	if near > 1.10 {
		t.Errorf("%.3f of the bound on average", near)
	}
}
