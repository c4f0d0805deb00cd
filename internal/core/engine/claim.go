package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/shape"
)

// reqsOf returns the requirements on the labels of a new node: those of the pool, of all its pods, of the chosen domains, of a reservation
// that it holds, and what was narrowed for other pods. Lowered minValues replace those of the pool.
func (b *raiser) reqsOf(bin *problem.Bin) label.Reqs {
	t := &b.Problem.Templates[bin.Template]
	_, r := b.Template(bin.Template)
	seen := map[int]bool{}
	for _, put := range bin.Puts {
		at := b.Problem.Classes[put.Class].Variants[put.Variant].Reqs
		if !seen[at] {
			seen[at] = true
			r = r.And(b.Reqs[at])
		}
	}
	for k, d := range bin.Domain {
		if d >= 0 && b.Problem.Keys[k].Tmpl[bin.Template].Choice != nil {
			r = r.With(b.Problem.Keys[k].Name, label.Only(b.Problem.Keys[k].Values[d]))
		}
	}
	for _, at := range bin.Narrowed.To {
		r = r.And(b.Reqs[at])
	}
	for _, not := range bin.Narrowed.From {
		r = r.With(b.Problem.Keys[not.Key].Name, label.Except(b.Problem.Keys[not.Key].Values[not.Value]))
	}
	if bin.Held >= 0 {
		for k, v := range ofReservation(t.Catalog, bin.Launch.First.Offer) {
			r = r.With(k, label.Only(v))
		}
	}
	for i, n := range bin.Relaxed {
		m := t.Min[i]
		s, _ := r.Get(m.Key)
		s.Min = n
		r = r.Without(m.Key).With(m.Key, s)
	}
	return r
}

// ofReservation returns the labels that all offers of one reservation have in common.
func ofReservation(cat *shape.Catalog, offer int) map[string]string {
	out := maps.Clone(cat.Offers[offer].Labels)
	for _, o := range cat.Offers {
		if o.Reservation == cat.Offers[offer].Reservation {
			maps.DeleteFunc(out, func(k, v string) bool { return o.Labels[k] != v })
		}
	}
	return out
}

// claimOf returns the NodeClaim of a new node, ready to create but for its name. o has the types, zones and capacity types that it lists.
func (b *raiser) claimOf(bin *problem.Bin, o *Opening) *v1.NodeClaim {
	pool, _ := b.Template(bin.Template)
	spec := &pool.Spec.Template.Spec
	reqs := b.reqsOf(bin)
	if bin.Discounted { // a zonal Reserved Instance covers one zone
		reqs = reqs.With(corev1.LabelTopologyZone, label.Only(o.Zones...))
	}
	c := &v1.NodeClaim{}
	c.GenerateName = pool.Name + "-"
	c.Labels = b.claimLabels(pool, b.Problem.Templates[bin.Template].Catalog, reqs)
	c.Annotations = pool.Spec.Template.NodeAnnotations()
	for _, key := range []string{v1.NodePoolHashAnnotationKey, v1.NodePoolHashVersionAnnotationKey, v1.KubeletCompatibilityAnnotationKey,
		v1.LastGoodImagesAnnotationKey} {
		if v, ok := pool.Annotations[key]; ok {
			c.Annotations[key] = v
		}
	}
	if cost := (&Pool{Pool: pool}).InterruptionCost(b.q.Settings.InterruptionCost); cost > 0 {
		c.Annotations[v1.InterruptionCostAnnotationKey] = strconv.FormatFloat(cost.Dollars(), 'f', -1, 64)
	}
	c.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey] = strconv.FormatBool(bin.Relaxed != nil)
	if drivers := b.DriversOf(bin); len(drivers) > 0 {
		c.Annotations[v1.RequestedDRADriversAnnotationKey] = strings.Join(drivers, ",")
	}
	yes := true
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "NodePool",
		Name: pool.Name, UID: pool.UID, BlockOwnerDeletion: &yes}}
	c.Spec = v1.NodeClaimSpec{
		Taints: slices.Clone(spec.Taints), StartupTaints: slices.Clone(spec.StartupTaints), NodeClassRef: spec.NodeClassRef,
		TerminationGracePeriod: spec.TerminationGracePeriod, ExpireAfter: spec.ExpireAfter,
		Requirements: requirements(reqs, o),
	}
	if d := b.q.Settings.DefaultTerminationGracePeriod; d != nil && c.Spec.TerminationGracePeriod == nil {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *d}
	}
	need := slices.Clone(bin.Used)
	need.Add(bin.Overhead)
	c.Spec.Resources.Requests = b.resourceList(need)
	return c
}

// claimLabels returns the labels that the node is certain to have: those of the pool's template, and one value for each requirement on a
// custom label. Labels that the machine decides are left out: they are known only after the launch.
func (b *raiser) claimLabels(pool *v1.NodePool, cat *shape.Catalog, reqs label.Reqs) map[string]string {
	out := maps.Clone(pool.NodeLabels())
	if out == nil {
		out = map[string]string{}
	}
	for _, q := range reqs {
		if (b.e.known.WellKnown(q.Key) || cat.Mentions(q.Key)) && q.Key != v1.NodePoolLabelKey || setLater(q.Key) ||
			q.Key == corev1.LabelHostname {
			continue
		}
		if _, set := out[q.Key]; set {
			continue
		}
		if v, ok := compile.AnyValue(q.Set); ok {
			out[q.Key] = v
		}
	}
	return out
}

// setLater reports whether Karpenter itself sets a label after the launch. Plans assume it (see compile), but claims do not ask for it.
func setLater(key string) bool {
	return key == v1.NodeRegisteredLabelKey || key == v1.NodeInitializedLabelKey
}

// onlyLabel reports whether a claim must not contain a requirement with this key: the definition of NodeClaims refuses it, and
// no provider sells by it. A label of the claim or node meets it.
func onlyLabel(key string) bool {
	return setLater(key) || key == corev1.LabelHostname || key == v1.ProvisionerLabelKey
}

// requirements returns the requirements of a claim, in the order of their keys. Types and capacity types come last, listed as in o: by
// price and by name.
func requirements(reqs label.Reqs, o *Opening) []v1.NodeSelectorRequirementWithMinValues {
	types, _ := reqs.Get(corev1.LabelInstanceTypeStable)
	capacity, _ := reqs.Get(v1.CapacityTypeLabelKey)
	out := make([]v1.NodeSelectorRequirementWithMinValues, 0, len(reqs)+2)
	add := func(key string, op label.Op, values []string, min int) {
		r := v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOperator(op), Values: values}
		if min > 0 {
			r.MinValues = &min
		}
		out = append(out, r)
	}
	for _, q := range reqs {
		if onlyLabel(q.Key) || q.Key == corev1.LabelInstanceTypeStable || q.Key == v1.CapacityTypeLabelKey {
			continue
		}
		for _, term := range q.Set.Terms() {
			add(q.Key, term.Op, term.Values, term.Min)
		}
	}
	add(v1.CapacityTypeLabelKey, label.In, o.CapacityTypes, capacity.Min)
	add(corev1.LabelInstanceTypeStable, label.In, o.Types, types.Min)
	return out
}

// resourceList writes a vector as Kubernetes writes it, without zeros.
func (b *raiser) resourceList(v quantity.Vec) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i, n := range v {
		if n == 0 || quantity.Assumed(b.Problem.Names[i]) {
			continue
		}
		name := corev1.ResourceName(b.Problem.Names[i])
		switch name {
		case corev1.ResourceCPU:
			out[name] = *resource.NewMilliQuantity(n, resource.DecimalSI)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name] = *resource.NewQuantity(n, resource.BinarySI)
		default:
			out[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return out
}
