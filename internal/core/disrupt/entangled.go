package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// entanglement finds steps that move pods whose places depend on pods of another answer of the same pass. Such steps have to wait for the
// next pass. It is made for one pass.
//
// Steps of one answer go together: the engine has placed all of their pods at once. The next answer of the pass is planned as if the pods
// of the first one were nowhere, neither where they were nor where they will be; a spread that counts them counts too few. Consolidation
// need not care: Confirm looks at each of its steps again after the steps before it have begun. Steps of drift begin at once.
type entanglement struct {
	terms constraints
	moved map[cohort]bool // pods that steps of earlier answers move
	last  map[cohort]bool // pods that steps of the present answer move
}

// A cohort is pods with equal specs (as far as scheduling reads them) and equal labels.
type cohort struct {
	class  *podclass.Class
	labels *podclass.Labels
}

// next begins another answer: what steps of the last answer move counts as moved from here on.
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

// with reports whether the place of some pod of a step depends on a pod that an earlier answer moves, or the other way round.
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

// looksAt reports whether a constraint of cohort a may count pods of cohort b. Constraints over hosts do not matter, because no two
// answers put pods onto one node.
//
// Only selectors are compared, neither namespaces nor domains. To find too much here delays a step to the next pass; to find too little
// would move pods to places that kube-scheduler refuses.
func (e *entanglement) looksAt(a, b cohort) bool {
	return slices.ContainsFunc(e.terms.of(a.class), func(t constraint) bool { return t.key != corev1.LabelHostname && t.counts(b) })
}

// A constraint is a hard rule of kube-scheduler by which the place of a pod depends on where other pods are.
type constraint struct {
	kind     kindOfConstraint
	key      string // of the domains
	selector labels.Selector
}

type kindOfConstraint uint8

const (
	even kindOfConstraint = iota // topology spread
	near                         // pod affinity
	away                         // pod anti-affinity
)

// counts reports whether the selector matches the pods of a cohort. Namespaces are not compared.
func (t *constraint) counts(other cohort) bool {
	return t.selector.Matches(labels.Set(other.labels.Map))
}

// equal compares kind, key and selector. Other fields, such as the allowed skew, are not kept.
func (t *constraint) equal(other constraint) bool {
	return t.kind == other.kind && t.key == other.key && t.selector.String() == other.selector.String()
}

// constraints caches the constraints of each class of pods.
type constraints map[*podclass.Class][]constraint

// of returns the constraints of a class. They are read from its spec the first time.
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
