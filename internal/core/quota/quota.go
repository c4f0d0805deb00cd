// Package quota reads CapacityQuotas and sums up what counts against them.
//
// A node counts if its labels match the selector. A claim that is not launched counts if any machine that it lists may match, with the
// most that such a machine has of each resource, so that the quota is kept for any machine that the launch gets. Dollars are a resource
// like others: the present price of the machine.
package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/need"
)

// Dollars is the resource that stands for the price of a machine, in millionths of a dollar an hour.
const Dollars = corev1.ResourceName(autoscalingv1beta1.ResourceDollars)

// A Quota is a CapacityQuota that can be enforced.
type Quota struct {
	Name   string
	Limits v1.Limits

	selector labels.Selector
	needs    need.Needs // the same as conditions on labels
}

// Read returns the quota of an object, or an error that says what is wrong with it.
func Read(o *autoscalingv1beta1.CapacityQuota) (Quota, error) {
	q := Quota{Name: o.Name, Limits: v1.Limits{}, selector: labels.Everything()}
	for name, amount := range o.Spec.Limits.Resources {
		if amount.Sign() < 0 || amount.CmpInt64(amount.Value()) != 0 {
			return Quota{}, fmt.Errorf("limits.resources: %s is %s, which is not a whole number of 0 or more", name, amount.String())
		}
		q.Limits[corev1.ResourceName(name)] = amount
	}
	if o.Spec.Selector == nil {
		return q, nil
	}
	var err error
	if q.selector, err = metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil {
		return Quota{}, fmt.Errorf("selector: %w", err)
	}
	var terms []corev1.NodeSelectorRequirement
	for key, value := range o.Spec.Selector.MatchLabels {
		terms = append(terms, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	for _, e := range o.Spec.Selector.MatchExpressions { // the operators have the same names
		op := corev1.NodeSelectorOperator(e.Operator)
		terms = append(terms, corev1.NodeSelectorRequirement{Key: e.Key, Operator: op, Values: e.Values})
	}
	q.needs = need.OfSelector(terms)
	return q, nil
}

// All returns the quotas of a cluster that can be enforced, by name.
func All(snap *cluster.Snapshot) []Quota {
	var out []Quota
	for o := range cluster.Quotas.All(snap) {
		if q, err := Read(o); err == nil && len(q.Limits) > 0 && o.DeletionTimestamp == nil {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b Quota) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Needs returns the selector as conditions on labels.
func (q *Quota) Needs() need.Needs { return q.needs }

// Holds reports whether a node with these labels counts against the quota.
func (q *Quota) Holds(node map[string]string) bool { return q.selector.Matches(labels.Set(node)) }

// Asks reports whether it depends on this label of a node whether or how much the node counts: the selector names it, or the quota limits
// dollars and the label is the capacity type, on which prices depend.
func (q *Quota) Asks(key string) bool {
	_, asked := q.needs[key]
	_, dollars := q.Limits[Dollars]
	return asked || dollars && key == v1.CapacityTypeLabelKey
}

// A Market has the catalogue of each pool, by the pool's name.
type Market map[string]*cloud.Catalog

// Price returns what a machine with these labels costs now, and whether that is known. If the pool does not sell its type, the first pool
// by name that does decides. Without a capacity type it is the on-demand price. If its zone has no price, it is the lowest price of other
// zones.
func (m Market) Price(pool string, node map[string]string) (price cloud.NanoUSD, known bool) {
	at := m[pool].Type(node[corev1.LabelInstanceTypeStable])
	if at == nil {
		first := ""
		for name, catalog := range m {
			if it := catalog.Type(node[corev1.LabelInstanceTypeStable]); it != nil && (first == "" || name < first) {
				first, at = name, it
			}
		}
	}
	if at == nil {
		return 0, false
	}
	capacityType := node[v1.CapacityTypeLabelKey]
	if capacityType == "" {
		capacityType = v1.CapacityTypeOnDemand
	}
	for i := range at.Offerings {
		o := &at.Offerings[i]
		exact := o.Zone() == node[corev1.LabelTopologyZone]
		if o.CapacityType() != capacityType || !exact && known && price >= o.Price {
			continue
		}
		if price, known = o.Price, true; exact {
			break
		}
	}
	return price, known
}

// Used returns the sum of what counts against a quota, without the nodes for which gone returns true.
func (q *Quota) Used(snap *cluster.Snapshot, m Market, gone func(*cluster.Node) bool) corev1.ResourceList {
	return q.Sum(snap, m, gone, func(c *v1.NodeClaim) corev1.ResourceList { return q.Most(c, m) })
}

// Sum is Used, except that waiting returns what counts of a claim that is not launched.
func (q *Quota) Sum(snap *cluster.Snapshot, m Market, gone func(*cluster.Node) bool,
	waiting func(*v1.NodeClaim) corev1.ResourceList) corev1.ResourceList {
	used := q.none()
	for n := range snap.Nodes() {
		if n.Incomplete || gone(n) {
			continue
		}
		if n.Node == nil && len(n.Claim.Status.Capacity) == 0 {
			Add(used, waiting(n.Claim))
			continue
		}
		if q.Holds(n.Labels()) {
			Add(used, q.counted(n, m))
		}
	}
	return used
}

// none returns 0 of each resource that is limited.
func (q *Quota) none() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name := range q.Limits {
		out[name] = resource.Quantity{}
	}
	return out
}

// Add adds the amounts of more to those of to, for the resources that to has.
func Add(to, more corev1.ResourceList) {
	for name, sum := range to {
		if q, ok := more[name]; ok {
			sum.Add(q)
			to[name] = sum
		}
	}
}

// counted returns what a node has: its capacity, and its price if dollars are limited (0 if it is not known).
func (q *Quota) counted(n *cluster.Node, m Market) corev1.ResourceList {
	out := n.Capacity()
	if _, limited := q.Limits[Dollars]; limited {
		price, _ := m.Price(n.Pool(), n.Labels())
		out[Dollars] = micros(price)
	}
	return out
}

// micros returns a price as an amount of Dollars, rounded up.
func micros(p cloud.NanoUSD) resource.Quantity {
	return *resource.NewQuantity((int64(p)+999)/1000, resource.DecimalSI)
}

// Most returns the most of each resource that a claim's machine may have, among the machines that would count; nil if none would. If the
// catalogue has none of its types, the claim counts as one node with what its pods request.
func (q *Quota) Most(c *v1.NodeClaim, m Market) corev1.ResourceList {
	catalog := m[c.Labels[v1.NodePoolLabelKey]]
	listed := typesOf(c)
	if listed == nil && catalog != nil {
		for _, it := range catalog.Types {
			listed = append(listed, it.Name)
		}
	}
	most := q.MostOf(c, catalog, listed)
	known := slices.ContainsFunc(listed, func(name string) bool { return catalog.Type(name) != nil })
	if !known && q.may(c, need.Of(c.Spec.Requirements), &cloud.InstanceType{}, &cloud.Offering{}) { // it has at least what its pods request
		most = corev1.ResourceList{v1.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)}
		Raise(most, c.Spec.Resources.Requests)
	}
	return most
}

// typesOf returns the instance types that a claim lists, nil if it lists none.
func typesOf(c *v1.NodeClaim) []string {
	for i := range c.Spec.Requirements {
		if r := &c.Spec.Requirements[i]; r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			return r.Values
		}
	}
	return nil
}

// MostOf is Most for the named types of a catalogue instead of those that the claim lists.
func (q *Quota) MostOf(c *v1.NodeClaim, catalog *cloud.Catalog, names []string) (most corev1.ResourceList) {
	wants := need.Of(c.Spec.Requirements)
	for _, name := range names {
		it := catalog.Type(name)
		if it == nil {
			continue
		}
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if !wants.AllowLabels(o.Labels) || !q.may(c, wants, it, o) {
				continue
			}
			if most == nil {
				most = corev1.ResourceList{v1.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)}
			}
			Raise(most, it.Capacity)
			Raise(most, o.Capacity)
			if _, limited := q.Limits[Dollars]; limited {
				Raise(most, corev1.ResourceList{Dollars: micros(o.Price)})
			}
		}
	}
	return most
}

// may reports whether the machine of a claim, if it is this offering of this type, may match the selector. For each label the first of
// these that has it decides: the offering, the type, the labels of the claim, its requirements. A label that none has is absent.
func (q *Quota) may(c *v1.NodeClaim, wants need.Needs, it *cloud.InstanceType, o *cloud.Offering) bool {
	for key, s := range q.needs {
		ok := s.HasAbsent()
		if value, decided := o.Labels[key]; decided {
			ok = s.Has(value)
		} else if values, decided := it.Labels[key]; decided {
			ok = s.Takes(values...)
		} else if value, decided := c.Labels[key]; decided {
			ok = s.Has(value)
		} else if wanted, decided := wants[key]; decided {
			ok = s.Meets(wanted)
		}
		if !ok {
			return false
		}
	}
	return true
}

// Raise sets each amount of to to the larger one of to and by.
func Raise(to, by corev1.ResourceList) {
	for name, q := range by {
		if have, ok := to[name]; !ok || have.Cmp(q) < 0 {
			to[name] = q.DeepCopy()
		}
	}
}
