package disrupt

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
)

// happens are things that change what is said of a node: of its row, of its pods, of what surrounds it.
var happens = []func(f *fixture, node string, n int){
	func(f *fixture, node string, n int) { f.pods(node, "web", n, "1", "1Gi") },
	func(f *fixture, node string, n int) { f.pods(node, "db", n, "1", "1Gi", prioritized) },
	func(f *fixture, node string, n int) { f.pods(node, "web", n, "1", "1Gi", stopping) },
	func(f *fixture, node string, n int) { f.pods(node, "log", n, "1", "1Gi", ofDaemonSet) },
	func(f *fixture, node string, n int) { f.pods(node, "web", n, "1", "1Gi", guard("true")) },
	func(f *fixture, node string, n int) {
		f.pods(node, "db", n, "1", "1Gi", guard(fmt.Sprintf("%dm", 50+7*n)))
	},
	func(f *fixture, node string, n int) {
		f.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: "web-" + node + "-0"}) })
	},
	func(f *fixture, _ string, n int) { f.pdb("web", int32(n%2)) },
	func(f *fixture, _ string, _ int) { f.pdb("db", 0, anyUnready) },
	func(f *fixture, _ string, n int) {
		f.store.Update(func(d *cluster.Draft) { cluster.PDBs.Delete(d, "default", fmt.Sprint("web-pdb-", n%2)) })
	},
	func(f *fixture, node string, _ int) {
		f.node(node, "p", "m", v1.CapacityTypeSpot, drift(-time.Hour), func(n *corev1.Node, _ *v1.NodeClaim) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
	},
	func(f *fixture, node string, n int) {
		f.node(node, "p", "m", v1.CapacityTypeOnDemand, func(node *corev1.Node, c *v1.NodeClaim) {
			condition.Clear(c, []string{v1.ConditionTypeConsolidatable, v1.ConditionTypeInitialized, v1.ConditionTypeRegistered}[n%3], noon)
			if n == 4 {
				delete(node.Labels, v1.NodeInitializedLabelKey)
			}
		})
	},
	func(f *fixture, node string, _ int) { f.node(node, "other", "m", v1.CapacityTypeOnDemand, terminating) },
	func(f *fixture, node string, _ int) {
		f.store.Update(func(d *cluster.Draft) { d.MarkForRemoval("claim-" + node) })
	},
	func(f *fixture, node string, _ int) { f.store.Update(func(d *cluster.Draft) { d.DeleteNode(node) }) },
	func(f *fixture, node string, _ int) { f.promise(node, noon) },
}

func prioritized(p *corev1.Pod) { p.Spec.Priority = new(int32(1 << 25)) }
func guard(how string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: how} }
}
func anyUnready(b *policyv1.PodDisruptionBudget) {
	b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
}
func terminating(_ *corev1.Node, c *v1.NodeClaim) {
	condition.SetTrue(c, v1.ConditionTypeInstanceTerminating, noon)
}

// A fleet in which this and that happens is surveyed with and without what earlier looks read of it.
func TestWhatIsRememberedOfRowsChangesNoSurvey(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("p").pool("other", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Minute) })
		for n := range 5 {
			f.node(fmt.Sprint(n), "p", "m", v1.CapacityTypeOnDemand)
		}
		facts, vacancies := &Facts{}, &Vacancies{}
		for at := range 60 {
			happens[random.IntN(len(happens))](f, fmt.Sprint(random.IntN(5)), 1+random.IntN(4))
			plain := f.world()
			plain.Now = noon.Add(time.Duration(at) * time.Minute / 4)
			remembering := *plain
			remembering.Facts = facts
			want, got := surveyOf(plain), surveyOf(&remembering)
			for _, part := range [][2]any{{want.rows, got.rows}, {want.pools, got.pools}, {want.waiting, got.waiting}, {want.closed, got.closed}, {want.settling, got.settling}} {
				if !reflect.DeepEqual(part[0], part[1]) {
					t.Fatalf("seed %d, after %d changes: %+v, want %+v", seed, at+1, part[1], part[0])
				}
			}
			for _, c := range got.rows {
				var pods []*cluster.Pod
				held := false
				for _, p := range c.Node.Pods {
					if got.pdbs.CurrentlyReschedulable(p, plain.Now) {
						pods = append(pods, p)
					}
					held = held || got.podBlock(c.Node, p) != nil
				}
				if c.Node.Node != nil && (!slices.Equal(c.Pods, pods) || held != (c.Held != nil)) {
					t.Fatalf("seed %d, after %d changes: %d pods need another place, want %d; held %v, want %v", seed, at+1, len(c.Pods), len(pods), c.Held, held)
				}
			}
			before := vacancies.seen
			since := vacancies.Look(plain.Snap, plain.Now)
			for n := range plain.Snap.Nodes() {
				if n.Claim == nil || n.Node == nil {
					continue
				}
				uid := n.Claim.UID
				if vacant := Vacated(n) && !promises(plain.Snap, plain.Now)[n.Name].After(plain.Now); vacancies.seen[uid].vacant != vacant || !vacant && !since[uid].Equal(plain.Now) {
					t.Fatalf("seed %d, after %d changes: node %s is vacant: %v, was %+v, is %+v", seed, at+1, n.Name, vacant, before[uid], vacancies.seen[uid])
				}
			}
		}
	}
}

// Of nodes that have not changed nothing is read again, and nothing is kept of those that are gone.
func TestRowsAreReadOnce(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("p").node("a", "p", "m", onDemand).node("b", "p", "m", onDemand)
	facts := &Facts{}
	look := func() map[string]any {
		w := f.world()
		w.Facts = facts
		surveyOf(w)
		out := map[string]any{}
		for n := range w.Snap.Nodes() {
			out[n.Name] = facts.of[n]
		}
		return out
	}
	first := look()
	f.pods("b", "web", 1, "1", "1Gi")
	again := look()
	if first["a"] != again["a"] || first["b"] == again["b"] {
		t.Errorf("a was read again: %v, b was: %v", first["a"] != again["a"], first["b"] != again["b"])
	}
	for i := range 500 {
		f.pods("b", fmt.Sprint("web", i%90), 1, "10m", "1Mi", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i) * time.Second)) })
		look()
	}
	if len(facts.of) > 100 {
		t.Errorf("%d rows are remembered of two nodes", len(facts.of))
	}
}

// A row is priced by the catalogue of the day.
func TestARowIsPricedAnewWithAnotherCatalogue(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("p").node("a", "p", "m", onDemand)
	facts := &Facts{}
	price := func() float64 {
		w := f.world()
		w.Facts = facts
		return surveyOf(w).rows[0].Price.Dollars()
	}
	before := price()
	f.types = []*cloud.InstanceType{shape("m", 4, 16, 0.3, 0.1)}
	f.pool("p")
	if after := price(); before != 0.2 || after != 0.3 {
		t.Errorf("$%.2f, then $%.2f", before, after)
	}
}
