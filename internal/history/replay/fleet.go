package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// A standing is a machine that exists when the recording begins.
type standing struct {
	node  *corev1.Node
	claim *v1.NodeClaim // nil where only the node is known
	it    *cloud.InstanceType
	offer *cloud.Offering
}

// AddNode adds a machine that exists from the beginning, or returns why the variant cannot have it. Its claim may be
// nil. The machine begins ready and in use: traces of a step, a drain or a cordon on the objects are removed.
func (v *Variant) AddNode(node *corev1.Node, claim *v1.NodeClaim) error {
	i := slices.IndexFunc(v.Pools, func(p engine.Pool) bool { return p.Pool.Name == node.Labels[v1.NodePoolLabelKey] })
	if i < 0 {
		return errors.New("it is of no NodePool that is replayed")
	}
	s := standing{node: node.DeepCopy(), claim: claim, it: v.Pools[i].Catalog.Type(node.Labels[corev1.LabelInstanceTypeStable])}
	if s.it != nil {
		s.offer = offered(s.it, node.Labels[corev1.LabelTopologyZone], node.Labels[v1.CapacityTypeLabelKey])
	}
	if s.offer == nil {
		return fmt.Errorf("its price is not known: its labels say %q in zone %q (%s)",
			node.Labels[corev1.LabelInstanceTypeStable], node.Labels[corev1.LabelTopologyZone], node.Labels[v1.CapacityTypeLabelKey])
	}
	v.fleet = append(v.fleet, s)
	return nil
}

// offered returns the offering of a type in a zone with a capacity type, nil if there is none.
func offered(it *cloud.InstanceType, zone, capacityType string) *cloud.Offering {
	for i := range it.Offerings {
		if f := &it.Offerings[i]; f.Zone() == zone && f.CapacityType() == capacityType {
			return f
		}
	}
	return nil
}

// addStanding makes the machine of a standing one. The claim keeps its name, because equal steps are ordered by name.
func (r *run) addStanding(s *standing) {
	name := s.node.Name
	id := cmp.Or(s.node.Spec.ProviderID, "replay://"+name)
	sold := cloud.Machine{
		ProviderID: id, ClaimName: name, PoolName: s.node.Labels[v1.NodePoolLabelKey], InstanceType: s.it.Name,
		Zone: s.offer.Zone(), CapacityType: s.offer.CapacityType(),
		Labels: s.node.Labels, Capacity: s.it.CapacityAs(s.offer), Allocatable: s.it.Allocatable(s.offer),
	}
	var c *v1.NodeClaim
	if s.claim != nil {
		c = s.claim.DeepCopy()
	} else {
		c = lifecycle.Adopting(r.pools[sold.PoolName].Pool, s.node, sold)
		c.Name, c.CreationTimestamp = name, s.node.CreationTimestamp
	}
	c.UID, c.DeletionTimestamp = types.UID(cmp.Or(string(c.UID), name)), nil
	if c.CreationTimestamp.IsZero() || c.CreationTimestamp.After(r.now) {
		c.CreationTimestamp = metav1.NewTime(r.now)
	}
	c = lifecycle.Launched(c, sold, r.now, sentence.Lack)
	m := &machine{name: name, claim: c, price: s.offer.Price, offer: offerKey{s.it.Name, sold.Zone,
		sold.CapacityType}, pods: map[*pod]bool{}, stirred: r.now, lot: lotOf(name)}
	m.node = s.node
	m.node.UID, m.node.DeletionTimestamp = types.UID(cmp.Or(string(m.node.UID), "node/"+name)), nil
	m.node.Spec.ProviderID, m.node.Spec.Unschedulable = id, false
	m.node.Spec.Taints = slices.DeleteFunc(m.node.Spec.Taints, func(t corev1.Taint) bool { return temporaryTaint(t.Key) })
	if len(m.node.Status.Allocatable) == 0 {
		m.node.Status.Capacity, m.node.Status.Allocatable = sold.Capacity, sold.Allocatable
	}
	r.machines[name] = m
	r.meter.startPaying(m)
	r.makeReady(m)
}

// temporaryTaint reports whether a taint describes a passing state and not the node itself.
func temporaryTaint(key string) bool {
	return key == v1.DisruptedTaintKey || key == v1.UnderusedTaintKey || key == v1.UnregisteredTaintKey ||
		key == corev1.TaintNodeUnschedulable ||
		key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// makeReady makes the Node of a machine initialised: it puts Node and claim into the store, starts DaemonSet pods,
// and schedules expiry and interruption.
func (r *run) makeReady(m *machine) {
	now := metav1.NewTime(r.now)
	m.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	m.node.Labels = maps.Clone(m.node.Labels)
	if m.node.Labels == nil {
		m.node.Labels = map[string]string{}
	}
	m.node.Labels[v1.NodeRegisteredLabelKey] = "true" // as registered, so that Join leaves its taints: startup taints are gone
	lifecycle.Join(m.node, m.claim)
	if m.node.Labels[corev1.LabelHostname] == "" {
		m.node.Labels[corev1.LabelHostname] = m.node.Name
	}
	m.node.Labels[v1.NodeInitializedLabelKey] = "true"
	c := m.claim.DeepCopy()
	c.Status.NodeName = m.node.Name
	for _, done := range []string{v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
		condition.SetTrue(c, done, r.now)
	}
	m.claim, m.restless = c, true
	m.measure(r.axes)
	r.update(func(d *cluster.Draft) { d.PutClaim(c); d.PutNode(m.node) })
	if !m.leaving {
		r.open = append(r.open, m)
	}
	for _, ds := range r.daemons {
		r.daemon(ds, m)
	}
	if at, ok := lifecycle.Expiry(c); ok {
		r.at(at, func() { r.expire(m) })
	}
	if d, ok := r.set.Market.lifetime(m.offer, m.claim.Name); ok {
		r.after(d, func() { r.interrupt(m) })
	}
}
