package disrupt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
)

// A load is a deployment: so many pods of one size.
type deployment struct {
	name        string
	before, now int
	cpu, memory string
}

// The bar for a deployment that shrinks.
const rounds, limit = 7, 1.05

// TestADeploymentShrinks scales deployments down on the cheapest fleet for them, over EC2's catalogue, and lets the planner work within
// the default budget. A round is a validation delay, a boot and a drain, about forty seconds, so five minutes are seven rounds.
func TestADeploymentShrinks(t *testing.T) {
	for name, deployments := range map[string][]deployment{
		"two of 500 to 350":   {{"thin", 500, 350, "900m", "3100Mi"}, {"fat", 500, 350, "3500m", "28Gi"}},
		"one of 1,000 to 700": {{"inflate", 1000, 700, "1", "1Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := onEC2(t, allowing("10%"))
			f.deploy(t, deployments, rand.New(rand.NewPCG(17, 19)))
			if ratio := f.shrink(t, rounds); ratio > limit {
				t.Errorf("the fleet costs %.3f times the bound, want at most %.2f", ratio, limit)
			}
		})
	}
}

// TestADeploymentShrinksFromAnyFleet varies the deployments a little, and with them the first fleet and the pods that go. Some of the
// fleets have as many empty nodes as the budget lets go, so that the first pass can do nothing else.
func TestADeploymentShrinksFromAnyFleet(t *testing.T) {
	for _, seed := range []uint64{8, 14, 17, 28, 36, 47, 59, 69} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 23))
			thin, fat := 480+r.IntN(41), 480+r.IntN(41)
			thinCPU, thinMemory, fatCPU, fatMemory := 850+r.IntN(100), 3000+r.IntN(200), 3300+r.IntN(400), 27000+r.IntN(2500)
			f := onEC2(t, allowing("10%"))
			f.deploy(t, []deployment{
				{"thin", thin, thin * 7 / 10, fmt.Sprintf("%dm", thinCPU), fmt.Sprintf("%dMi", thinMemory)},
				{"fat", fat, fat * 7 / 10, fmt.Sprintf("%dm", fatCPU), fmt.Sprintf("%dMi", fatMemory)},
			}, r)
			if ratio := f.shrink(t, rounds); ratio > limit {
				t.Errorf("the fleet costs %.3f times the bound, want at most %.2f", ratio, limit)
			}
		})
	}
}

// shrink runs passes until nothing is proposed, and returns how many times the bound the fleet costs then.
func (f *fleet) shrink(t *testing.T, most int) float64 {
	t.Helper()
	before := f.price()
	planner, done := newPlanner(engine.New()), 0
	for done < most {
		w := f.world()
		w.Terms.Search = work.Second / 10
		out := planner.Propose(w)
		if len(out.Steps) == 0 && planner.resume == "" {
			break
		}
		for _, s := range out.Steps {
			planner.churn = planner.churn.leaves(s, w.Now)
			f.apply(t, s)
		}
		done++
	}
	bound := f.bound(t)
	ratio := float64(f.price()) / float64(bound)
	t.Logf("$%.2f, after %d rounds $%.2f on %d nodes = %.3f times the bound of $%.2f, %d evictions", before.Dollars(), done, f.price().Dollars(), len(f.live), ratio, bound.Dollars(), f.moved)
	return ratio
}

// onEC2 is a fleet without nodes that may be made of EC2's c, m and r types, on demand.
func onEC2(t *testing.T, edits ...func(*v1.NodePool)) *fleet {
	t.Helper()
	catalog, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a"}, Spot: offline.SpotNone})
	if err != nil {
		t.Fatal(err)
	}
	edits = append(edits, func(p *v1.NodePool) {
		p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: "karpenter.k8s.aws/instance-category", Operator: corev1.NodeSelectorOpIn, Values: []string{"c", "m", "r"}},
			{Key: "karpenter.k8s.aws/instance-generation", Operator: "Gt", Values: []string{"4"}},
			{Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{onDemand}},
		}
	})
	f := newFleet(newFixture(catalog.Types...).pool("p", edits...))
	f.pools["p"] = engine.Pool{Pool: f.pools["p"].Pool, Catalog: catalog}
	f.dress = func(n *corev1.Node, c *v1.NodeClaim) {
		for key, values := range catalog.Type(n.Labels[corev1.LabelInstanceTypeStable]).Labels {
			if len(values) == 1 {
				n.Labels[key], c.Labels[key] = values[0], values[0]
			}
		}
		n.Labels[corev1.LabelTopologyZone], c.Labels[corev1.LabelTopologyZone] = "us-east-1a", "us-east-1a"
		it := catalog.Type(n.Labels[corev1.LabelInstanceTypeStable])
		room := it.Capacity.DeepCopy()
		for _, kept := range []corev1.ResourceList{it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold} {
			for name, q := range kept {
				left := room[name]
				left.Sub(q)
				room[name] = left
			}
		}
		n.Status.Allocatable, c.Status.Allocatable = room, room
	}
	return f
}

// young pods make the fleet a restless one, in which moving pods is dearest.
func young(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-5 * time.Minute)) }

// deploy opens the cheapest fleet for all pods of the deployments, and takes away those that are to go, at random.
func (f *fleet) deploy(t *testing.T, deployments []deployment, r *rand.Rand) {
	t.Helper()
	var names []string
	for _, d := range deployments {
		for i := range d.before {
			name := fmt.Sprintf("%s-%04d", d.name, i)
			f.put(name, "", d.cpu, d.memory, labelled(d.name), young)
			names = append(names, name)
		}
	}
	snap := f.store.Snapshot()
	var pods []*cluster.Pod
	for _, name := range names {
		pods = append(pods, snap.Pod(cluster.PodKey{Namespace: "default", Name: name}))
	}
	in := engine.Question{Snap: snap, Pools: []engine.Pool{f.pools["p"]}, Pods: pods, Now: noon, Settings: engine.Settings{Search: work.Second / 10}}
	for _, o := range engine.New().Plan(in).Open {
		node := f.add("p", o.Type, onDemand)
		for _, p := range o.Pods {
			f.bind(p.Name, node)
		}
	}
	for _, d := range deployments {
		of := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name[:len(d.name)] != d.name })
		for _, i := range r.Perm(len(of))[:d.before-d.now] {
			f.drop(of[i])
		}
	}
}
