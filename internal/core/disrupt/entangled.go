package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// Steps of one answer go together: the engine has placed all of their pods at once. A step of another answer is
// planned without those that the first one moves, which are then neither where they were nor where they go.
// Consolidation looks at each step again when those before it have begun, and sees their pods where they are going,
// as far as that is a node that is ready. Steps of drift begin at once: what moves pods whose places depend on
// those of another answer has to wait for the next pass.

// entanglement finds steps that move pods whose places depend on pods of another answer of the pass. It is made for one pass.
//
// The engine's answer is a picture in which all of its steps are done. A second answer of the same pass starts from a picture in which the
// first one's pods are nowhere, neither where they were nor where they will be; where a spread counts them, it counts too few. It is
// enough to know whose places could depend on whose: labels and selectors say that without looking at a node.
type entanglement struct {
	terms constraints
	moved map[cohort]bool // by the steps that were taken, each answer's together
	last  map[cohort]bool // by the answer of which steps are being taken
}

// A cohort is pods that ask for the same and are the same to others.
type cohort struct {
	class  *podclass.Class
	labels *podclass.Labels
}

// next begins another answer.
func (e *entanglement) next() {
	if e.moved == nil {
		e.terms, e.moved = constraints{}, map[cohort]bool{}
	}
	for c := range e.last {
		e.moved[c] = true
	}
	e.last = map[cohort]bool{}
}

// take notes the pods of a step.
func (e *entanglement) take(step []*Candidate) {
	for _, r := range step {
		for _, p := range r.Pods {
			e.last[cohort{p.Class, p.Labels}] = true
		}
	}
}

// with reports whether a place of some pod of a step depends on a pod that another answer moves, or the other way round.
func (e *entanglement) with(step []*Candidate) bool {
	if len(e.moved) == 0 {
		return false
	}
	seen := map[cohort]bool{}
	for _, r := range step {
		for _, p := range r.Pods {
			c := cohort{p.Class, p.Labels}
			if seen[c] {
				continue
			}
			seen[c] = true
			for other := range e.moved {
				if e.looksAt(c, other) || e.looksAt(other, c) {
					return true
				}
			}
		}
	}
	return false
}

// looksAt reports whether a constraint of one cohort counts pods of the other. Namespaces are not looked at: it is
// enough that it might. Those over hosts do not matter: no two answers put pods onto one node.
//
// To find too much here delays a step to the next pass. To find too little moves pods to places that kube-scheduler refuses. So selectors
// are all that is looked at: neither namespaces nor the domains in which pods are.
func (e *entanglement) looksAt(a, b cohort) bool {
	return slices.ContainsFunc(e.terms.of(a.class), func(t constraint) bool { return t.key != corev1.LabelHostname && t.counts(b) })
}

// A constraint is a rule of a pod about where others are, that kube-scheduler insists on.
type constraint struct {
	kind     kindOfConstraint
	key      string // of the domains
	selector labels.Selector
}

type kindOfConstraint uint8

const (
	even kindOfConstraint = iota
	near
	away
)

func (t *constraint) counts(other cohort) bool {
	return t.selector.Matches(labels.Set(other.labels.Map))
}

func (t *constraint) equal(other constraint) bool {
	return t.kind == other.kind && t.key == other.key && t.selector.String() == other.selector.String()
}

// constraints are those of each class, read when first asked for.
type constraints map[*podclass.Class][]constraint

func (c constraints) of(class *podclass.Class) []constraint {
	if known, ok := c[class]; ok {
		return known
	}
	var out []constraint
	add := func(kind kindOfConstraint, key string, selector *metav1.LabelSelector) {
		if s, err := metav1.LabelSelectorAsSelector(selector); err == nil {
			out = append(out, constraint{kind, key, s})
		}
	}
	for _, t := range class.Spec.TopologySpreadConstraints {
		if t.WhenUnsatisfiable == corev1.DoNotSchedule {
			add(even, t.TopologyKey, t.LabelSelector)
		}
	}
	if a := class.Spec.Affinity; a != nil && a.PodAffinity != nil {
		for _, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			add(near, t.TopologyKey, t.LabelSelector)
		}
	}
	if a := class.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			add(away, t.TopologyKey, t.LabelSelector)
		}
	}
	c[class] = out
	return out
}
