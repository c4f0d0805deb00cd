// Package need reads requirements of API objects as sets of package label, and reports whether the labels that a
// machine may have satisfy them.
//
// Package label defines what operators mean. A machine is given as the possible values of each label: an empty list means that the machine
// never has the label. A label that is not given is set by others (the pool, the kubelet), and satisfies every requirement here.
package need

import (
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/label"
)

// Set returns the values that a requirement allows. If it cannot be read it allows nothing; validation reports the mistake.
func Set(r *v1.NodeSelectorRequirementWithMinValues) label.Set {
	s, ok := label.New(label.Op(r.Operator), r.Values)
	if !ok {
		s = label.Nothing()
	}
	if r.MinValues != nil {
		s.Min = *r.MinValues
	}
	return s
}

// A Needs has the values that requirements allow, by label.
type Needs map[string]label.Set

// Of returns what all of some requirements together allow.
func Of(requirements []v1.NodeSelectorRequirementWithMinValues) Needs {
	n := Needs{}
	for i := range requirements {
		n.and(&requirements[i])
	}
	return n
}

// OfSelector is Of for plain node selector requirements.
func OfSelector(requirements []corev1.NodeSelectorRequirement) Needs {
	n := Needs{}
	for _, r := range requirements {
		n.and(&v1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return n
}

// and adds a requirement: its label may only have values that old and new requirements allow.
func (n Needs) and(r *v1.NodeSelectorRequirementWithMinValues) {
	s := Set(r)
	if old, said := n[r.Key]; said {
		s = old.Intersect(s)
	}
	n[r.Key] = s
}

// Allow reports whether machine may satisfy the needs: every label that it has an entry for may have an allowed value.
func (n Needs) Allow(machine map[string][]string) bool {
	for key, s := range n {
		if values, said := machine[key]; said && !s.Takes(values...) {
			return false
		}
	}
	return true
}

// AllowLabels is Allow for labels that have one value each.
func (n Needs) AllowLabels(labels map[string]string) bool {
	for key, s := range n {
		if value, said := labels[key]; said && !s.Has(value) {
			return false
		}
	}
	return true
}

// AllowValue reports whether the needs allow this value of a label.
func (n Needs) AllowValue(key, value string) bool {
	s, said := n[key]
	return !said || s.Has(value)
}

// HasMinValues reports whether any requirement has minValues.
func (n Needs) HasMinValues() bool {
	for _, s := range n {
		if s.Min > 0 {
			return true
		}
	}
	return false
}

// MinValues returns the largest minValues of a key, 0 without one.
func (n Needs) MinValues(key string) int { return n[key].Min }
