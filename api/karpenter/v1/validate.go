package v1

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"karpenter.sh/karpenter/api/label"
)

// Validate checks what the schema cannot: rules that need to know about domains, the real limits of keys and values, and
// rules across lists. All violations are reported together, each with the field that it is about. The result is what the
// condition ValidationSucceeded says.
func (p *NodePool) Validate(known *label.Vocabulary) error {
	spec := &p.Spec.Template.Spec
	var errs []error
	errs = append(errs, validateTemplateLabels(p.Spec.Template.Labels, known)...)
	errs = append(errs, validateTaints(spec.Taints, spec.StartupTaints)...)
	for _, problem := range validation.IsValidLabelValue(p.Provisioner()) {
		errs = append(errs, fmt.Errorf("metadata.annotations: %s %q: %s", ProvisionerAnnotationKey, p.Provisioner(), problem))
	}
	for i := range spec.Requirements {
		r := &spec.Requirements[i]
		if known.Normalize(r.Key) == NodePoolLabelKey {
			errs = append(errs, fmt.Errorf("spec.template.spec.requirements[%d]: key %q is set by Karpenter and may "+
				"not be required", i, r.Key))
		}
		for _, err := range ValidateRequirement(r, known) {
			errs = append(errs, fmt.Errorf("spec.template.spec.requirements[%d]: %w", i, err))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func validateTemplateLabels(labels map[string]string, known *label.Vocabulary) []error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == NodePoolLabelKey {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels: label %q is set by Karpenter and may not be given", key))
		}
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels: key %q: %s", key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(labels[key]) {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels: value %q of %q: %s", labels[key], key, problem))
		}
		if known.Restricted(key) {
			errs = append(errs, fmt.Errorf("spec.template.metadata.labels: %w", restricted(key, known)))
		}
	}
	return errs
}

func restricted(key string, known *label.Vocabulary) error {
	if domain := known.RestrictedDomain(known.Normalize(key)); domain != "" {
		return fmt.Errorf("label %q is restricted: domain %q belongs to Karpenter", key, domain)
	}
	return fmt.Errorf("label %q is restricted", key)
}

// validateTaints checks both lists of taints, which share the node and so must not contradict each other.
func validateTaints(taints, startupTaints []corev1.Taint) []error {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	var errs []error
	seen := map[identity]bool{}
	check := func(field string, list []corev1.Taint) {
		for i, t := range list {
			for _, err := range validateTaint(&t) {
				errs = append(errs, fmt.Errorf("spec.template.spec.%s[%d]: %w", field, i, err))
			}
			id := identity{t.Key, t.Effect}
			if seen[id] {
				errs = append(errs, fmt.Errorf("spec.template.spec.%s[%d]: taint %s:%s is given twice in taints and "+
					"startupTaints", field, i, t.Key, t.Effect))
			}
			seen[id] = true
		}
	}
	check("taints", taints)
	check("startupTaints", startupTaints)
	return errs
}

func validateTaint(t *corev1.Taint) []error {
	var errs []error
	if t.Key == "" {
		errs = append(errs, errors.New("key is missing"))
	} else {
		for _, problem := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, fmt.Errorf("key %q: %s", t.Key, problem))
		}
	}
	if t.Value != "" {
		for _, problem := range validation.IsQualifiedName(t.Value) {
			errs = append(errs, fmt.Errorf("value %q: %s", t.Value, problem))
		}
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = append(errs, fmt.Errorf("effect %q is unknown", t.Effect))
	}
	return errs
}

// ValidateRequirement checks one requirement as far as it can be judged without its surroundings.
func ValidateRequirement(r *NodeSelectorRequirementWithMinValues, known *label.Vocabulary) []error {
	key := known.Normalize(r.Key)
	var errs []error
	for _, problem := range validation.IsQualifiedName(key) {
		errs = append(errs, fmt.Errorf("key %q: %s", r.Key, problem))
	}
	if known.Restricted(key) {
		errs = append(errs, restricted(r.Key, known))
	}
	for _, value := range r.Values {
		for _, problem := range validation.IsValidLabelValue(value) {
			errs = append(errs, fmt.Errorf("value %q of key %q: %s", value, r.Key, problem))
		}
	}
	return append(errs, validateOperator(r, known)...)
}

func validateOperator(r *NodeSelectorRequirementWithMinValues, known *label.Vocabulary) []error {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return validateIn(r, known)
	case corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		return nil
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, NodeSelectorOpGte, NodeSelectorOpLte:
		if len(r.Values) != 1 {
			return []error{fmt.Errorf("key %q with operator %s needs exactly one value, has %d", r.Key, r.Operator, len(r.Values))}
		}
		if n, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil || n < 0 {
			return []error{fmt.Errorf("key %q with operator %s needs a whole number that is not negative, not %q",
				r.Key, r.Operator, r.Values[0])}
		}
		return nil
	default:
		return []error{fmt.Errorf("key %q has unknown operator %q", r.Key, r.Operator)}
	}
}

// validateIn checks a list of values. A list with some unknown values of a closed label is fine: they merely never match.
func validateIn(r *NodeSelectorRequirementWithMinValues, known *label.Vocabulary) []error {
	if len(r.Values) == 0 {
		return []error{fmt.Errorf("key %q with operator In needs at least one value", r.Key)}
	}
	var errs []error
	if r.MinValues != nil && len(r.Values) < *r.MinValues {
		errs = append(errs, fmt.Errorf("key %q has minValues %d but lists only %d values", r.Key, *r.MinValues, len(r.Values)))
	}
	closed := known.Values(r.Key)
	if closed == nil {
		return errs
	}
	usable := 0
	for _, value := range r.Values {
		if slices.Contains(closed, value) {
			usable++
		}
	}
	switch {
	case usable == 0:
		errs = append(errs, fmt.Errorf("key %q has none of the values that exist (%s): %s",
			r.Key, strings.Join(closed, ", "), strings.Join(r.Values, ", ")))
	case r.MinValues != nil && usable < *r.MinValues:
		errs = append(errs, fmt.Errorf("key %q has minValues %d but only %d of its values exist (%s)",
			r.Key, *r.MinValues, usable, strings.Join(closed, ", ")))
	}
	return errs
}

// UnknownValues lists the values that the pool's requirements name but that closed labels never have, as "key=value". They are
// harmless, but probably spelling mistakes.
func (p *NodePool) UnknownValues(known *label.Vocabulary) []string {
	var out []string
	for _, r := range p.Spec.Template.Spec.Requirements {
		closed := known.Values(r.Key)
		if r.Operator != corev1.NodeSelectorOpIn || closed == nil {
			continue
		}
		for _, value := range r.Values {
			if !slices.Contains(closed, value) {
				out = append(out, r.Key+"="+value)
			}
		}
	}
	return out
}
