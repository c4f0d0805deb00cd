// Package need tells whether the label values that a machine may have satisfy a claim's requirements.
//
// A machine's side is a list of possible values per label: no values mean that the machine never has the label. A label
// about which nothing is said is left to others (the pool, the kubelet) and satisfies everything.
package need

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Needs are requirements by label key; all of a key must hold.
type Needs map[string][]v1.NodeSelectorRequirementWithMinValues

// Of sorts requirements by key.
func Of(requirements []v1.NodeSelectorRequirementWithMinValues) Needs {
	n := Needs{}
	for _, r := range requirements {
		n[r.Key] = append(n[r.Key], r)
	}
	return n
}

// OfSelector is Of for plain node selector requirements.
func OfSelector(requirements []corev1.NodeSelectorRequirement) Needs {
	n := Needs{}
	for _, r := range requirements {
		n[r.Key] = append(n[r.Key], v1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return n
}

// Allow says whether every key that machine says something about can be satisfied.
func (n Needs) Allow(machine map[string][]string) bool {
	for key, requirements := range n {
		values, said := machine[key]
		if said && !satisfiable(requirements, values) {
			return false
		}
	}
	return true
}

// AllowLabels is Allow for labels that have one value each.
func (n Needs) AllowLabels(labels map[string]string) bool {
	for key, value := range labels {
		for _, r := range n[key] {
			if !r.Allows(value) {
				return false
			}
		}
	}
	return true
}

// AllowValue says whether a label may have a value.
func (n Needs) AllowValue(key, value string) bool {
	for _, r := range n[key] {
		if !r.Allows(value) {
			return false
		}
	}
	return true
}

// Named returns the values that a label is limited to, as a set: a claim names hundreds of instance types, and there are a thousand
// to be looked up. any says that its values are not listed.
func (n Needs) Named(key string) (values map[string]bool, any bool) {
	for _, r := range n[key] {
		if r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		values = make(map[string]bool, len(r.Values))
		for _, v := range r.Values {
			values[v] = true
		}
		return values, false
	}
	return nil, true
}

func satisfiable(requirements []v1.NodeSelectorRequirementWithMinValues, values []string) bool {
	if len(values) == 0 {
		return !slices.ContainsFunc(requirements, needsLabel)
	}
	return slices.ContainsFunc(values, func(value string) bool {
		for _, r := range requirements {
			if !r.Allows(value) {
				return false
			}
		}
		return true
	})
}

// needsLabel says whether a requirement fails for a node without the label.
func needsLabel(r v1.NodeSelectorRequirementWithMinValues) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpDoesNotExist:
		return false
	case corev1.NodeSelectorOpNotIn:
		return len(r.Values) == 0 // means that the label exists
	}
	return true
}

// HasMinValues says whether any requirement asks for flexibility.
func (n Needs) HasMinValues() bool {
	for _, requirements := range n {
		if slices.ContainsFunc(requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }) {
			return true
		}
	}
	return false
}

// MinValues returns the largest minValues of a key, 0 without one.
func (n Needs) MinValues(key string) int {
	least := 0
	for _, r := range n[key] {
		if r.MinValues != nil {
			least = max(least, *r.MinValues)
		}
	}
	return least
}
