package disrupt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

var noon = time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)

// A fixture builds a small world: a pool, nodes of it, pods on them.
type fixture struct {
	store *cluster.Store
	pools map[string]engine.Pool
	types []*cloud.InstanceType
	set   Settings
	terms engine.Settings

	vacant   map[types.UID]time.Time
	notReady map[string]bool
	repairs  *lifecycle.Repairs
}

func newFixture(shapes ...*cloud.InstanceType) *fixture {
	slices.SortFunc(shapes, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	f := &fixture{store: cluster.NewStore(), pools: map[string]engine.Pool{}, types: shapes, set: DefaultSettings(), vacant: map[types.UID]time.Time{}}
	f.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	return f
}

var classRef = v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}

func (f *fixture) pool(name string, edit ...func(*v1.NodePool)) *fixture {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("pool-" + name)}}
	p.Spec.Template.Spec.NodeClassRef = &classRef
	p.Spec.Disruption.ConsolidateAfter = v1.After(0)
	p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
	for _, e := range edit {
		e(p)
	}
	f.store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, p) })
	f.pools[name] = engine.Pool{Pool: p, Catalog: &cloud.Catalog{Types: f.types}}
	return f
}

// shape is an instance type in zones a and b, with a price on demand and one as spot (0: not offered).
func shape(name string, cpu int, gib int, onDemand, spot float64) *cloud.InstanceType {
	it := &cloud.InstanceType{
		Name: name,
		Labels: map[string][]string{
			corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"},
			corev1.LabelTopologyZone: {"a", "b"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand, v1.CapacityTypeSpot},
		},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(gib)<<30, resource.BinarySI),
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
		},
	}
	for _, zone := range []string{"a", "b"} {
		for ct, price := range map[string]float64{v1.CapacityTypeOnDemand: onDemand, v1.CapacityTypeSpot: spot} {
			if price > 0 {
				it.Offerings = append(it.Offerings, cloud.Offering{
					Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: ct}, Price: cloud.FromDollars(price), Available: true})
			}
		}
	}
	slices.SortFunc(it.Offerings, func(a, b cloud.Offering) int {
		return strings.Compare(a.Zone()+a.CapacityType(), b.Zone()+b.CapacityType())
	})
	return it
}

// node adds an initialised, consolidatable node in zone a.
func (f *fixture) node(name, pool, instanceType, capacityType string, edit ...func(*corev1.Node, *v1.NodeClaim)) *fixture {
	labels := map[string]string{
		v1.NodePoolLabelKey: pool, corev1.LabelInstanceTypeStable: instanceType, v1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: "a",
		v1.NodeInitializedLabelKey: "true", v1.NodeRegisteredLabelKey: "true", corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
	}
	var capacity corev1.ResourceList
	for _, it := range f.types {
		if it.Name == instanceType {
			capacity = it.Capacity
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: maps.Clone(labels)}}
	node.Spec.ProviderID = "test:///" + name
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name), Labels: maps.Clone(labels), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	claim.Spec.NodeClassRef = &classRef
	claim.Status.ProviderID, claim.Status.NodeName = node.Spec.ProviderID, name
	claim.Status.Capacity, claim.Status.Allocatable = capacity, capacity
	condition.SetTrue(claim, v1.ConditionTypeLaunched, noon.Add(-24*time.Hour))
	for _, c := range []string{v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
		condition.SetTrue(claim, c, noon.Add(-time.Hour))
	}
	for _, e := range edit {
		e(node, claim)
	}
	f.store.Update(func(d *cluster.Draft) { d.PutNode(node); d.PutClaim(claim) })
	return f
}

// pods adds n running pods of an application to a node.
func (f *fixture) pods(node, app string, n int, cpu, memory string, edit ...func(*corev1.Pod)) *fixture {
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%s-%d", app, node, i), UID: types.UID(fmt.Sprintf("%s-%s-%d", app, node, i)), Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: new(true)}},
		}}
		p.Spec.NodeName = node
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.StartTime = new(metav1.NewTime(noon.Add(-time.Hour)))
		for _, e := range edit {
			e(p)
		}
		f.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	}
	return f
}

// promisedPod is the pod of promise.
var promisedPod = cluster.PodKey{Namespace: "default", Name: "late-none-0"}

// promise adds a pod that waits for a node.
func (f *fixture) promise(node string, at time.Time) *fixture {
	f.pods("none", "late", 1, "1", "1Gi", waits)
	f.store.Update(func(d *cluster.Draft) { d.Plan(promisedPod, node, at) })
	return f
}

// pdb adds a budget for the pods of an application.
func (f *fixture) pdb(app string, allowed int32, edit ...func(*policyv1.PodDisruptionBudget)) *fixture {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app + "-pdb-" + fmt.Sprint(allowed)}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Status.DisruptionsAllowed = allowed
	for _, e := range edit {
		e(b)
	}
	f.store.Update(func(d *cluster.Draft) { cluster.PDBs.Put(d, b) })
	return f
}

func (f *fixture) world() *World {
	return &World{Snap: f.store.Snapshot(), Pools: f.pools, Vacant: f.vacant, NotReady: f.notReady, Settings: f.set, Terms: f.terms, Now: noon, Repairs: f.repairs}
}

// A planner asks an engine, and remembers from pass to pass.
type planner struct {
	engine asker
	Memory
}

func newPlanner(e asker) *planner { return &planner{engine: e} }

func (p *planner) Propose(w *World) (out *Proposal) {
	w.Engine = p.engine
	out, p.Memory = Propose(w, p.Memory)
	return out
}

func (p *planner) Confirm(w *World, step *Step) (out *Step, why Refusal) {
	w.Engine = p.engine
	out, why, p.Memory = Confirm(w, p.Memory, step)
	return out, why
}

func (p *planner) Failed(step *Step, now time.Time) { p.Memory = p.Memory.Failed(step, now) }

// propose runs one pass of a fresh planner over the real engine.
func (f *fixture) propose(t *testing.T) *Proposal {
	t.Helper()
	return newPlanner(engine.New()).Propose(f.world())
}

// say renders the steps of a proposal: "method: node,node -> type,type".
func say(p *Proposal) []string {
	var out []string
	for _, s := range p.Steps {
		names := make([]string, len(s.Remove))
		for i, c := range s.Remove {
			names[i] = c.Name()
		}
		line := strings.ToLower(string(s.Reason)) + " " + strings.Join(names, ",")
		if len(s.Open) > 0 {
			opened := make([]string, len(s.Open))
			for i, o := range s.Open {
				opened[i] = o.Type + "/" + o.CapacityTypes[0]
			}
			slices.Sort(opened)
			line += " -> " + strings.Join(opened, ",")
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func realEngine() *engine.Engine { return engine.New() }

// counting counts the questions it is asked.
type counting struct{ n int }

func (c *counting) Plan(in engine.Question) *engine.Plan {
	c.n++
	return realEngine().Plan(in)
}
