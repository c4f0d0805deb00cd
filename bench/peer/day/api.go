package day

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/cloud"
)

// An api is the API server and the informers of a simulated cluster, and the cloud that launches NodeClaims. Pods are
// found by their node, and every write is in Karpenter's picture of the cluster at once. Kinds that the cluster has
// none of are empty lists.
type api struct {
	client.Client // only what is below is called
	k             *karpenter
	ours          *cloud.Catalog
	types         []*cloudprovider.InstanceType
	byName        map[string]*cloudprovider.InstanceType

	mu       sync.Mutex
	pool     *peerv1.NodePool
	claims   map[string]*peerv1.NodeClaim
	nodes    map[string]*corev1.Node
	machines map[string]*machine
	pods     map[string]map[string]*corev1.Pod // by node, "" for none, and by name
}

// newAPI returns the API of a cluster without nodes. Its cloud sells what the pool allows and nothing else, and types
// have only the labels that something asks for, so that Karpenter's scheduler is faster. What it decides is the same.
func newAPI(k *karpenter, catalog *cloud.Catalog, pool *peerv1.NodePool) *api {
	a := &api{k: k, ours: catalog, byName: map[string]*cloudprovider.InstanceType{}, pool: pool,
		claims: map[string]*peerv1.NodeClaim{}, nodes: map[string]*corev1.Node{}, machines: map[string]*machine{},
		pods: map[string]map[string]*corev1.Pod{}}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	for _, it := range sold.Types(catalog) {
		it.Offerings = slices.DeleteFunc(it.Offerings, func(o *cloudprovider.Offering) bool {
			return !wanted.IsCompatible(o.Requirements, known)
		})
		if !wanted.IsCompatible(it.Requirements, known) || len(it.Offerings) == 0 {
			continue
		}
		drop := func(key string, _ *scheduling.Requirement) bool { return !asked[key] }
		maps.DeleteFunc(it.Requirements, drop)
		for _, o := range it.Offerings {
			maps.DeleteFunc(o.Requirements, drop)
		}
		a.types, a.byName[it.Name] = append(a.types, it), it
	}
	slices.SortStableFunc(a.types, func(x, y *cloudprovider.InstanceType) int { // its scheduler sorts them again and again
		return cmp.Compare(x.Offerings.Cheapest().Price, y.Offerings.Cheapest().Price)
	})
	a.pool.Spec.Template.Spec.Requirements = slices.DeleteFunc(a.pool.Spec.Template.Spec.Requirements,
		func(r peerv1.NodeSelectorRequirementWithMinValues) bool { return !asked[r.Key] })
	return a
}

// known are the labels that a type may lack, as its scheduler has it.
var known = scheduling.AllowUndefinedWellKnownLabels

// asked are the labels of machine types that Karpenter itself asks for: the pods of the day have no constraints.
var asked = map[string]bool{corev1.LabelInstanceTypeStable: true, corev1.LabelTopologyZone: true, peerv1.CapacityTypeLabelKey: true}

func (a *api) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch into := into.(type) {
	case *peerv1.NodePool:
		if key.Name == a.pool.Name {
			a.pool.DeepCopyInto(into)
			return nil
		}
	case *peerv1.NodeClaim:
		if c := a.claims[key.Name]; c != nil {
			c.DeepCopyInto(into)
			return nil
		}
	case *corev1.Node:
		if n := a.nodes[key.Name]; n != nil {
			n.DeepCopyInto(into)
			return nil
		}
	}
	return errors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

func (a *api) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var o client.ListOptions
	o.ApplyOptions(opts)
	field := func(name string) (string, bool) {
		if o.FieldSelector == nil {
			return "", false
		}
		return o.FieldSelector.RequiresExactMatch(name)
	}
	switch into := into.(type) {
	case *peerv1.NodePoolList:
		into.Items = append(into.Items, *a.pool.DeepCopy())
	case *peerv1.NodeClaimList:
		id, one := field("status.providerID")
		for _, name := range slices.Sorted(maps.Keys(a.claims)) {
			if c := a.claims[name]; !one || c.Status.ProviderID == id {
				into.Items = append(into.Items, *c.DeepCopy())
			}
		}
	case *corev1.NodeList:
		for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
			into.Items = append(into.Items, *a.nodes[name].DeepCopy())
		}
	case *corev1.PodList:
		node, one := field("spec.nodeName")
		if !one {
			return fmt.Errorf("pods are listed by %v", o)
		}
		for _, name := range slices.Sorted(maps.Keys(a.pods[node])) {
			into.Items = append(into.Items, *a.pods[node][name])
		}
	}
	return nil
}

// Create launches a NodeClaim as the cheapest machine that it allows.
func (a *api) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := o.(*peerv1.NodeClaim)
	if !ok {
		return fmt.Errorf("a %T is created", o)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(c.Spec.Requirements...)
	var it *cloudprovider.InstanceType
	var best *cloudprovider.Offering
	for _, name := range slices.Sorted(slices.Values(wanted.Get(corev1.LabelInstanceTypeStable).Values())) {
		for _, o := range a.byName[name].Offerings.Available().Compatible(wanted) {
			if best == nil || o.Price < best.Price {
				it, best = a.byName[name], o
			}
		}
	}
	if best == nil {
		return fmt.Errorf("a claim allows no machine")
	}
	ours := a.ours.Type(it.Name)
	i := slices.IndexFunc(ours.Offerings, func(o cloud.Offering) bool {
		return o.Zone() == best.Zone() && o.CapacityType() == best.CapacityType()
	})
	m := a.k.buy(ours, &ours.Offerings[i])
	labels := map[string]string{}
	for _, reqs := range []scheduling.Requirements{it.Requirements, best.Requirements} {
		for key, r := range reqs {
			if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
				labels[key] = r.Any()
			}
		}
	}
	maps.Copy(labels, c.Labels)
	c.Labels, c.Name, c.UID, c.CreationTimestamp = labels, m.name, types.UID(m.name), metav1.NewTime(a.k.now)
	c.Status.ProviderID, c.Status.Capacity, c.Status.Allocatable = "day://"+m.name, it.Capacity, it.Allocatable()
	a.set(c, peerv1.ConditionTypeLaunched)
	a.claims[c.Name], a.machines[m.name] = c.DeepCopy(), m
	return nil
}

// set makes a condition of a NodeClaim true.
func (a *api) set(c *peerv1.NodeClaim, condition string) {
	c.StatusConditions(status.WithClock(a.k.clock)).SetTrue(condition)
}

// Delete has a NodeClaim's machine be drained.
func (a *api) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	a.mu.Lock()
	c := a.claims[o.GetName()]
	if c == nil {
		a.mu.Unlock()
		return errors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, o.GetName())
	}
	first := c.DeletionTimestamp.IsZero()
	if first {
		now := metav1.NewTime(a.k.now)
		c.DeletionTimestamp = &now
		m := a.machines[c.Name]
		a.k.at(a.k.now, func() { a.terminate(m) })
	}
	c = c.DeepCopy()
	a.mu.Unlock()
	if first {
		a.k.cluster.UpdateNodeClaim(c)
	}
	return nil
}

// terminate drains a machine, whose claim then says that it ends.
func (a *api) terminate(m *machine) {
	a.k.drain(m)
	a.mu.Lock()
	c := a.claims[m.name]
	a.set(c, peerv1.ConditionTypeInstanceTerminating)
	c = c.DeepCopy()
	a.mu.Unlock()
	a.k.cluster.UpdateNodeClaim(c)
}

// Patch replaces the stored object. The caller has read it a moment ago, and no other writer runs.
func (a *api) Patch(ctx context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	switch o := o.(type) {
	case *peerv1.NodeClaim:
		a.mu.Lock()
		if a.claims[o.Name] == nil {
			a.mu.Unlock()
			return errors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, o.Name)
		}
		a.claims[o.Name] = o.DeepCopy()
		a.mu.Unlock()
		a.k.cluster.UpdateNodeClaim(o.DeepCopy())
		return nil
	case *corev1.Node:
		a.mu.Lock()
		a.nodes[o.Name] = o.DeepCopy()
		m := a.machines[o.Name]
		m.closed = m.drained || slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool {
			return t.MatchTaint(&peerv1.DisruptedNoScheduleTaint)
		})
		if a.k.at(a.k.now, a.k.retry); m.closed {
			a.k.at(a.k.now, a.k.trigger)
		}
		a.mu.Unlock()
		return a.k.cluster.UpdateNode(ctx, o.DeepCopy())
	}
	return fmt.Errorf("a %T is patched", o)
}

func (a *api) Status() client.SubResourceWriter { return statusOf{a: a} }

// statusOf writes the status of objects.
type statusOf struct {
	client.SubResourceWriter // only what is below is called
	a                        *api
}

func (s statusOf) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.a.Patch(ctx, o, p)
}

func (a *api) claim(name string) *peerv1.NodeClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claims[name].DeepCopy()
}

// putPod stores a pod, and deletePod deletes it. Both return it.
func (a *api) putPod(p *pod, now time.Time) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := p.object(now)
	delete(a.pods[""], o.Name)
	if a.pods[o.Spec.NodeName] == nil {
		a.pods[o.Spec.NodeName] = map[string]*corev1.Pod{}
	}
	a.pods[o.Spec.NodeName][o.Name] = o
	return o
}

func (a *api) deletePod(p *pod, m *machine) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	node := ""
	if m != nil {
		node = m.name
	}
	o := a.pods[node][p.name]
	delete(a.pods[node], p.name)
	return o
}

// join creates the Node of a machine, initialised, and returns both objects.
func (a *api) join(m *machine, now time.Time) (*corev1.Node, *peerv1.NodeClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.claims[m.name]
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID(m.name), CreationTimestamp: metav1.NewTime(now),
		Labels: maps.Clone(c.Labels)}}
	maps.Copy(n.Labels, map[string]string{peerv1.NodeRegisteredLabelKey: "true", peerv1.NodeInitializedLabelKey: "true",
		corev1.LabelHostname: m.name})
	n.Spec.ProviderID = c.Status.ProviderID
	n.Status = corev1.NodeStatus{Capacity: c.Status.Capacity, Allocatable: c.Status.Allocatable,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	c.Status.NodeName = m.name
	a.set(c, peerv1.ConditionTypeRegistered)
	a.set(c, peerv1.ConditionTypeInitialized)
	a.nodes[m.name] = n
	return n.DeepCopy(), c.DeepCopy()
}

// forget deletes the objects of a machine.
func (a *api) forget(m *machine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims, m.name)
	delete(a.nodes, m.name)
	delete(a.machines, m.name)
	delete(a.pods, m.name)
}
