package compile

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A selector selects pods by label. Its text is canonical: equal texts select the same pods.
type selector struct {
	text string
	sel  labels.Selector
	// key, if not "", is a label that must have one of values. whole: the selector asks for nothing else.
	key    string
	values []string
	whole  bool
}

// nothing selects no pod. Its text differs from that of each selector made of requirements.
var nothing = selector{text: "\x00nothing", sel: labels.Nothing()}

// usersOf returns the selector of a group of users of a volume claim. It selects no pod by label, because the users are added to the group
// one by one; its text tells the groups of different claims apart.
func usersOf(claim types.NamespacedName) selector {
	text := identity.Of("", "claim", claim.Namespace, claim.Name) // the identity of requirements does not start with an empty text
	return selector{text: text, sel: labels.Nothing()}
}

// sortedClaims returns the keys of a map in the order of their names with namespace.
func sortedClaims[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
}

// selectorOf reads a label selector, narrowed to the values that the pod has for keys (matchLabelKeys). A missing or invalid selector
// selects nothing.
func selectorOf(s *metav1.LabelSelector, keys []string, pod map[string]string) selector {
	if s == nil {
		return nothing
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nothing
	}
	reqs, selectable := sel.Requirements()
	if !selectable {
		return nothing
	}
	for _, k := range keys {
		if v, ok := pod[k]; ok {
			r, err := labels.NewRequirement(k, "in", []string{v})
			if err != nil {
				return nothing
			}
			reqs = append(slices.Clone(reqs), *r)
		}
	}
	return canonical(reqs)
}

// canonical makes the selector of requirements, sorted and each once: the API server may have put the requirement of a matchLabelKey into
// the selector already. Its key is that of the "in" requirement with the fewest values, so that an index has few label sets to look at.
func canonical(reqs labels.Requirements) selector {
	type part struct {
		text string
		req  labels.Requirement
	}
	parts := make([]part, len(reqs))
	for i := range reqs {
		parts[i] = part{textOf(&reqs[i]), reqs[i]}
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.text, b.text) })
	parts = slices.CompactFunc(parts, func(a, b part) bool { return a.text == b.text })
	s := selector{whole: len(parts) == 1}
	texts, kept := make([]string, len(parts)), make(labels.Requirements, len(parts))
	for i := range parts {
		r := &parts[i].req
		texts[i], kept[i] = parts[i].text, *r
		if operatorOf(r) == "in" && (s.key == "" || r.Values().Len() < len(s.values)) {
			s.key, s.values = r.Key(), r.Values().List()
		}
	}
	s.text, s.sel = identity.Of(texts...), labels.NewSelector().Add(kept...)
	return s
}

// textOf returns a text that is equal for requirements that ask for the same.
func textOf(r *labels.Requirement) string {
	w := make([]byte, 0, 256)
	w = identity.Text(w, r.Key())
	w = identity.Text(w, operatorOf(r))
	w = identity.Texts(w, r.Values().List())
	return string(w)
}

// operatorOf returns one name for each of the operators that have several.
func operatorOf(r *labels.Requirement) string {
	switch op := string(r.Operator()); op {
	case "=", "==":
		return "in"
	case "!=":
		return "notin"
	default:
		return op
	}
}

// excluding narrows a selector to pods with other values for keys (mismatchLabelKeys) than the pod's own.
func excluding(s selector, keys []string, pod map[string]string) selector {
	reqs, selectable := s.sel.Requirements()
	if !selectable || s.text == nothing.text {
		return s
	}
	reqs = slices.Clone(reqs)
	for _, k := range keys {
		if v, ok := pod[k]; ok {
			if r, err := labels.NewRequirement(k, "notin", []string{v}); err == nil {
				reqs = append(reqs, *r)
			}
		}
	}
	return canonical(reqs)
}

// together returns a selector of the pods that all given selectors select.
func together(list ...selector) selector {
	if len(list) == 1 {
		return list[0]
	}
	var all labels.Requirements
	for i := range list {
		reqs, selectable := list[i].sel.Requirements()
		if !selectable {
			return nothing
		}
		all = append(all, reqs...)
	}
	return canonical(all)
}

// matches reports whether the selector selects a pod with these labels. It tests key first, which is cheap.
func (s *selector) matches(pod map[string]string) bool {
	if s.key != "" {
		v, ok := pod[s.key]
		if !ok || !slices.Contains(s.values, v) {
			return false
		}
		if s.whole {
			return true
		}
	}
	return s.sel.Matches(labels.Set(pod))
}

// A spreadTerm is one topology spread constraint of a class.
type spreadTerm struct {
	key         string
	skew        int32
	minDomains  int32
	selector    *metav1.LabelSelector
	fixed       *selector // in place of selector, for default constraints
	labelKeys   []string
	honorTaints bool
	honorNodes  bool
	soft        bool      // set for default constraints only; those of pods are in podInfo.hard or podInfo.soft
	known       *selector // cached, if it does not depend on the pod's labels
}

// selectorFor returns the selector of the constraint for a pod with these labels.
func (t *spreadTerm) selectorFor(pod map[string]string) selector {
	if len(t.labelKeys) > 0 {
		return selectorOf(t.selector, t.labelKeys, pod)
	}
	if t.known == nil {
		s := selectorOf(t.selector, nil, nil)
		t.known = &s
	}
	return *t.known
}

// A podTerm is one term of pod affinity or anti-affinity.
type podTerm struct {
	key        string
	selector   *metav1.LabelSelector
	namespaces []string  // sorted
	every      bool      // all namespaces
	among      *selector // selects further namespaces by their labels; nil: none
	labelKeys  []string
	mismatch   []string
	known      *selector // cached, if it does not depend on the pod's labels
}

// selectorFor returns the selector of the term for a pod with these labels.
func (t *podTerm) selectorFor(pod map[string]string) selector {
	if len(t.labelKeys)+len(t.mismatch) > 0 {
		return excluding(selectorOf(t.selector, t.labelKeys, pod), t.mismatch, pod)
	}
	if t.known == nil {
		s := selectorOf(t.selector, nil, nil)
		t.known = &s
	}
	return *t.known
}

// readSpread reads the topology spread constraints of a pod: those that must hold, and the first mostPreferences of the others.
func (m *Memory) readSpread(i *podInfo, spec *corev1.PodSpec) {
	for k := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[k]
		t := m.spreadTermOf(c)
		switch {
		case c.WhenUnsatisfiable != corev1.ScheduleAnyway:
			i.hard = append(i.hard, t)
		case len(i.soft) < mostPreferences:
			i.soft = append(i.soft, t)
		}
	}
}

// spreadTermOf reads one topology spread constraint, with the defaults of Kubernetes: node affinity is honoured, taints are not.
func (m *Memory) spreadTermOf(c *corev1.TopologySpreadConstraint) spreadTerm {
	t := spreadTerm{key: m.known.Normalize(c.TopologyKey), skew: max(c.MaxSkew, 1), selector: c.LabelSelector,
		labelKeys: c.MatchLabelKeys, honorNodes: true}
	if c.MinDomains != nil {
		t.minDomains = *c.MinDomains
	}
	if c.NodeTaintsPolicy != nil {
		t.honorTaints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	if c.NodeAffinityPolicy != nil {
		t.honorNodes = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	}
	return t
}

// readPodAffinity reads the terms of pod affinity and anti-affinity. Preferred terms are sorted, heaviest first.
func (m *Memory) readPodAffinity(i *podInfo, namespace string, a *corev1.Affinity) {
	if a == nil {
		return
	}
	terms := func(list []corev1.PodAffinityTerm) []podTerm {
		var out []podTerm
		for k := range list[:min(len(list), mostTerms)] {
			out = append(out, m.podTermOf(&list[k], namespace))
		}
		return out
	}
	weighted := func(list []corev1.WeightedPodAffinityTerm) []podTerm {
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b corev1.WeightedPodAffinityTerm) int { return int(b.Weight) - int(a.Weight) })
		var out []podTerm
		for k := range list[:min(len(list), mostPreferences)] {
			out = append(out, m.podTermOf(&list[k].PodAffinityTerm, namespace))
		}
		return out
	}
	if p := a.PodAffinity; p != nil {
		i.near = terms(p.RequiredDuringSchedulingIgnoredDuringExecution)
		i.nearSoft = weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		i.apart = terms(p.RequiredDuringSchedulingIgnoredDuringExecution)
		i.ownLabels = slices.ContainsFunc(i.apart, func(t podTerm) bool { return len(t.labelKeys)+len(t.mismatch) > 0 })
		i.apartSoft = weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// podTermOf reads one term. Without namespaces and namespaceSelector it is about the pod's own namespace; an empty namespaceSelector
// selects all.
func (m *Memory) podTermOf(t *corev1.PodAffinityTerm, namespace string) podTerm {
	out := podTerm{key: m.known.Normalize(t.TopologyKey), selector: t.LabelSelector, labelKeys: t.MatchLabelKeys,
		mismatch: t.MismatchLabelKeys}
	out.namespaces = slices.Clone(t.Namespaces)
	if t.NamespaceSelector != nil {
		s := selectorOf(t.NamespaceSelector, nil, nil)
		out.every = s.sel.Empty() && s.text != nothing.text
		if !out.every {
			out.among = &s
		}
	} else if len(t.Namespaces) == 0 {
		out.namespaces = []string{namespace}
	}
	slices.Sort(out.namespaces)
	out.namespaces = slices.Compact(out.namespaces)
	return out
}
