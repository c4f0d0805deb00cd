package v1alpha1

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

// Validate checks what the schema cannot. Its result is what the condition ValidationSucceeded says, with reason
// RuntimeValidation.
func (o *NodeOverlay) Validate(known *label.Vocabulary) error {
	var errs []error
	for i, r := range o.Spec.Requirements {
		general := v1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values}
		problems := v1.ValidateRequirement(&general, known)
		if r.Operator == corev1.NodeSelectorOpNotIn && len(r.Values) == 0 {
			problems = append(problems, fmt.Errorf("key %q with operator NotIn needs at least one value", r.Key))
		}
		for _, err := range problems {
			errs = append(errs, fmt.Errorf("spec.requirements[%d]: %w", i, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Spec.Capacity)) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
			errs = append(errs, fmt.Errorf("spec.capacity: %s may not be given", name))
		}
		if q := o.Spec.Capacity[name]; q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("spec.capacity: %s is %s, and no machine has less than nothing", name, q.String()))
		}
	}
	return utilerrors.NewAggregate(errs)
}
