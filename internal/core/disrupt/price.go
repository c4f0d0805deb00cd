package disrupt

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lower"
)

// minSpotTypes is how many cheaper types a single spot node must have to choose from before it is replaced by another spot
// node. Without the choice, chains of moves would end on the scarcest type.
const minSpotTypes = 15

// An option is one instance type that an opening may become, bought in one way.
type option struct {
	it    *cloud.InstanceType
	worst cloud.NanoUSD // the dearest offering that launch may pick
}

// typesByName finds the instance types of a catalogue.
type typesByName map[string]*cloud.InstanceType

// options lists the types of an opening that can be had as capacityType, cheapest worst price first. zone
// narrows them to one zone; "" does not.
func options(types typesByName, o *lower.Opening, capacityType, zone string) []option {
	out := make([]option, 0, len(o.Types))
	for _, name := range o.Types {
		it := types[name]
		if it == nil {
			continue
		}
		opt, offered := option{it: it}, false
		for i := range it.Offerings {
			offer := &it.Offerings[i]
			if !offer.Available || offer.CapacityType() != capacityType || zone != "" && offer.Zone() != zone || !admits(o.Claim.Spec.Requirements, offer.Labels) {
				continue
			}
			opt.worst, offered = max(opt.worst, offer.Price), true
		}
		if offered {
			out = append(out, opt)
		}
	}
	slices.SortFunc(out, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.it.Name, b.it.Name))
	})
	return out
}

// admits tells whether the requirements allow every one of the labels.
func admits(requirements []v1.NodeSelectorRequirementWithMinValues, labels map[string]string) bool {
	for i := range requirements {
		if value, ok := labels[requirements[i].Key]; ok && !requirements[i].Allows(value) {
			return false
		}
	}
	return true
}

// A way is how one opening of a step is bought: as which capacity type, perhaps in one zone, and which types that leaves.
type way struct {
	capacityType, zone string
	options            []option
}

// base is the least that this way can cost at the worst.
func (w way) base() cloud.NanoUSD {
	if len(w.options) == 0 {
		return math.MaxInt64
	}
	return w.options[0].worst
}

// cheapestWay chooses how to buy an opening. All zones are kept open unless pinning the cheapest one is what makes
// the opening cheaper than limit: choice of zones is what lets a launch succeed.
func cheapestWay(catalog typesByName, o *lower.Opening, skip string, limit cloud.NanoUSD) way {
	best := way{}
	for _, ct := range capacityTypes {
		if ct == skip {
			continue
		}
		if w := (way{capacityType: ct, options: options(catalog, o, ct, "")}); w.base() < best.base() {
			best = w
		}
	}
	if best.base() < limit {
		return best
	}
	for _, ct := range capacityTypes {
		if ct == skip {
			continue
		}
		for _, zone := range o.Zones {
			if w := (way{capacityType: ct, zone: zone, options: options(catalog, o, ct, zone)}); w.base() < best.base() {
				best = w
			}
		}
	}
	return best
}

// within keeps the options whose worst price is at most limit.
func (w way) within(limit cloud.NanoUSD) way {
	n, _ := slices.BinarySearchFunc(w.options, limit+1, func(o option, p cloud.NanoUSD) int { return cmp.Compare(o.worst, p) })
	w.options = w.options[:n]
	return w
}

// without drops the options that are refused.
func (w way) without(refuse func(option) bool) way {
	w.options = slices.DeleteFunc(slices.Clone(w.options), refuse)
	return w
}

// minValues returns how many of the cheapest options are needed to satisfy every minValues of the claim, and whether all
// of them together do.
func minValues(claim *v1.NodeClaim, options []option) (need int, ok bool) {
	for i := range claim.Spec.Requirements {
		r := &claim.Spec.Requirements[i]
		if r.MinValues == nil {
			continue
		}
		seen := map[string]bool{}
		met := false
		for j, o := range options {
			for _, value := range valuesOf(o.it, r.Key) {
				seen[value] = true
			}
			if len(seen) >= *r.MinValues {
				need, met = max(need, j+1), true
				break
			}
		}
		if !met {
			return len(options), false
		}
	}
	return need, true
}

// valuesOf returns the values that nodes of a type may have for a label.
func valuesOf(it *cloud.InstanceType, key string) []string {
	if key == corev1.LabelInstanceTypeStable {
		return []string{it.Name}
	}
	return it.Labels[key]
}

// narrow returns the opening with its claim cut down to one way of buying it.
func narrow(o lower.Opening, w way) lower.Opening {
	claim := o.Claim.DeepCopy()
	names := make([]string, len(w.options))
	for i, opt := range w.options {
		names[i] = opt.it.Name
	}
	require(claim, corev1.LabelInstanceTypeStable, names)
	require(claim, v1.CapacityTypeLabelKey, []string{w.capacityType})
	if w.zone != "" {
		require(claim, corev1.LabelTopologyZone, []string{w.zone})
		o.Zones = []string{w.zone}
	}
	o.Claim, o.Types, o.CapacityTypes = claim, names, []string{w.capacityType}
	o.Type, o.Price = names[0], w.options[0].worst
	return o
}

// require makes In(values) the claim's requirement on a key, keeping minValues.
func require(claim *v1.NodeClaim, key string, values []string) {
	in := v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(slices.Values(values))}
	kept := claim.Spec.Requirements[:0]
	for _, r := range claim.Spec.Requirements {
		if r.Key != key {
			kept = append(kept, r)
		} else if r.MinValues != nil {
			in.MinValues = r.MinValues
		}
	}
	claim.Spec.Requirements = append(kept, in)
}
