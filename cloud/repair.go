package cloud

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A RepairPolicy says that a node is broken if its condition has had Status for longer than Toleration.
type RepairPolicy struct {
	ConditionType corev1.NodeConditionType
	Status        corev1.ConditionStatus
	// Reason is a regular expression that the condition's reason must match. Exactly one policy of a provider has no Reason: it is the
	// fallback, which also applies to the types and statuses of all other policies.
	Reason     string
	Toleration time.Duration
	// Grace bounds how long the drain waits for pods; nil leaves that to the claim.
	Grace    *time.Duration
	Priority int  // 0 to MostRepairPriority; of several broken nodes the node with the highest goes first
	Reboot   bool // a reboot may repair it
}

// MostRepairPriority is the highest priority of a RepairPolicy.
const MostRepairPriority = 100

// CheckRepairPolicies returns everything that is wrong with the policies of a provider, nil if nothing is.
func CheckRepairPolicies(policies []RepairPolicy) error {
	var errs []error
	fallbacks := 0
	for i, p := range policies {
		check := func(ok bool, format string, args ...any) {
			if !ok {
				what := fmt.Sprintf(format, args...)
				errs = append(errs, fmt.Errorf("repair policy %d (%s is %s): %s", i+1, p.ConditionType, p.Status, what))
			}
		}
		check(p.ConditionType != "", "the type of the condition is missing")
		check(p.Status == corev1.ConditionTrue || p.Status == corev1.ConditionFalse || p.Status == corev1.ConditionUnknown,
			"the status is neither True, False nor Unknown")
		check(p.Toleration >= 0 && (p.Grace == nil || *p.Grace >= 0), "toleration and grace period must not be negative")
		check(p.Priority >= 0 && p.Priority <= MostRepairPriority,
			"the priority %d is not between 0 and %d", p.Priority, MostRepairPriority)
		_, err := regexp.Compile(p.Reason)
		check(err == nil, "reason: %v", err)
		if p.Reason == "" {
			fallbacks++
			check(!p.Reboot, "the policy without a reason is the fallback, which replaces")
		}
	}
	if fallbacks != 1 {
		errs = append(errs, fmt.Errorf("%d repair policies have no reason; exactly one must, as the fallback of all", fallbacks))
	}
	return errors.Join(errs...)
}
