package engine

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
)

// endanger gives the spot offerings of a question hazards: up to one interruption in ten hours.
func (r dice) endanger(in *Question) {
	for i := range in.Pools {
		for _, it := range in.Pools[i].Catalog.Types {
			for j := range it.Offerings {
				if o := &it.Offerings[j]; o.CapacityType() == v1.CapacityTypeSpot && r.one(2) {
					o.Hazard = int64(r.IntN(1e8))
				}
			}
		}
	}
}

// Plans that reckon with interruptions pass the slow verifier: their bounds hold for what they reckon with, and what is printed is paid.
func TestRandomWorldsWithRisk(t *testing.T) {
	risky := 0
	for seed := range uint64(150) {
		r := dice{rng(seed)}
		in := r.world(5 + int(seed%40))
		r.endanger(&in)
		in.Settings.InterruptionCost = cloud.FromDollars([]float64{0, 0.1, 1, 10}[seed%4])
		e := New()
		b := e.compile(in)
		result := repack.Run(b.Problem)
		if err := solve.Check(b.Problem, result); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		plan := e.raise(&in, b, result)
		sum := cloud.NanoUSD(0)
		for i := range plan.Open {
			o := &plan.Open[i]
			sum += o.Price
			if o.Risk > 0 {
				risky++
			}
			if o.Risk > 0 && in.Settings.InterruptionCost == 0 || o.Risk < 0 {
				t.Errorf("seed %d: risk %d where an interruption costs %d", seed, o.Risk, in.Settings.InterruptionCost)
			}
			least, most := cloud.NanoUSD(1<<62), cloud.NanoUSD(0)
			for _, name := range o.Types {
				it := poolOf(&in, o.Pool).Catalog.Type(name)
				for j := range it.Offerings {
					if of := &it.Offerings[j]; of.Available && of.CapacityType() == o.CapacityType {
						least, most = min(least, of.Price), max(most, of.Price)
					}
				}
			}
			if o.CapacityType == v1.CapacityTypeSpot && (o.Price < least || o.Price > most || o.Floor < least || o.Worst > most) {
				t.Errorf("seed %d: a node costs %d, from %d to %d; offerings from %d to %d", seed, o.Price, o.Floor, o.Worst, least, most)
			}
			if said := o.Claim.Annotations[v1.InterruptionCostAnnotationKey]; (said != "") != (in.Settings.InterruptionCost > 0) {
				t.Errorf("seed %d: the claim says %q of what an interruption costs", seed, said)
			}
		}
		if sum != plan.Price || plan.Price > plan.Cost {
			t.Errorf("seed %d: nodes cost %d, the plan %d and is reckoned %d", seed, sum, plan.Price, plan.Cost)
		}
	}
	if risky < 50 {
		t.Errorf("only %d nodes had a risk", risky)
	}
}

func poolOf(in *Question, name string) *Pool {
	for i := range in.Pools {
		if in.Pools[i].Pool.Name == name {
			return &in.Pools[i]
		}
	}
	return nil
}

// Hazards change nothing while interruptions cost nothing.
func TestHazardsAreFreeWhileInterruptionsCostNothing(t *testing.T) {
	for seed := range uint64(40) {
		in := dice{rng(seed)}.world(20)
		before := New().Plan(in)
		dice{rng(seed)}.endanger(&in)
		after := New().Plan(in)
		if a, b := summary(before), summary(after); a != b || before.Cost != after.Cost {
			t.Fatalf("seed %d: the plan is another one:\n%s\n%s", seed, a, b)
		}
	}
}

func TestWhatAnInterruptionCosts(t *testing.T) {
	for text, want := range map[string]float64{"": 2, "0": 0, "0.5": 0.5, " 3 ": 3, "-1": 2, "NaN": 2, "much": 2, "20000": 2} {
		p := Pool{Pool: &v1.NodePool{}}
		if text != "" {
			p.Pool.Annotations = map[string]string{v1.InterruptionCostAnnotationKey: text}
		}
		if got := p.InterruptionCost(cloud.FromDollars(2)); got != cloud.FromDollars(want) {
			t.Errorf("%q: $%v, want $%v", text, got.Dollars(), want)
		}
	}
}

// Claims of a pool whose spot machines are shared out name the workloads that they are opened for, and those of others do not.
func TestClaimsNameWorkloadsWhereSpotIsSharedOut(t *testing.T) {
	for share, want := range map[string]bool{"": false, "50%": true} {
		in := dice{rng(1)}.small(5, 2, func(i int, p *corev1.Pod) {
			if yes := true; i > 0 {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: &yes}}
			}
		})
		in.Pools[0].Pool.Annotations = map[string]string{v1.SpotMaxShareAnnotationKey: share}
		sum := 0
		for _, o := range New().Plan(in).Open {
			if text := o.Claim.Annotations[v1.OpenedForAnnotationKey]; text != "" {
				_, n, _ := strings.Cut(text, "default/web=")
				x, err := strconv.Atoi(n)
				if err != nil {
					t.Errorf("a claim names %q", text)
				}
				sum += x
			}
		}
		if (sum == 4) != want || sum > 0 != want {
			t.Errorf("share %q: claims name %d pods of the workload", share, sum)
		}
	}
}
